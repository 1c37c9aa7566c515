"""How many requests a listener gets at a time."""

import pytest

from courier.delivery.pace import IN_FLIGHT_MAX, QUICK_MS, PushPace


def after(events: str) -> PushPace:
    """`+` reached, `s` reached slowly, `-` not reached, `r` it is back after it was away."""
    pace = PushPace()
    for event in events:
        if event == "-":
            pace.unreached()
        elif event == "r":
            pace.restart()
        else:
            pace.reached(duration_ms=QUICK_MS + 1 if event == "s" else 1)
    return pace


@pytest.mark.parametrize(
    ("events", "width"),
    [
        ("", IN_FLIGHT_MAX),
        ("+" * 100, IN_FLIGHT_MAX),
        ("r", 1),
        ("r+", 2),
        ("r++", 2),
        ("r+++", 4),
        ("r++++++", 4),
        ("r+++++++", 8),
        ("r" + "+" * 14, 8),
        ("r" + "+" * 15, IN_FLIGHT_MAX),
        ("r" + "+" * 100, IN_FLIGHT_MAX),
        ("r++r", 1),
        ("r-", 1),
        ("r+--", 1),
    ],
)
def test_one_when_it_is_back_then_twice_as_many_whenever_all_reached_it(
    events: str, width: int
) -> None:
    assert after(events).width == width


@pytest.mark.parametrize(
    ("events", "width"),
    [
        ("-", 10),
        ("-" * 9, 10),
        ("-" * 10, 5),
        ("-" * 15, 3),
        ("-" * 18, 1),
        ("-" * 100, 1),
        ("+++++++++-", 9),
        ("+++++-----", 8),
        ("+++++++++-" + "+" * 9, IN_FLIGHT_MAX),
    ],
)
def test_fewer_by_half_the_share_of_those_that_did_not_reach_it(events: str, width: int) -> None:
    assert after(events).width == width


@pytest.mark.parametrize(
    ("events", "quick"),
    [
        ("", False),
        ("+", True),
        ("s", False),
        ("+s", False),
        ("s+", True),
        ("r+", False),
        ("r" + "+" * 15, False),
        ("r" + "+" * 16, True),
        ("+-", False),
        ("+-+", True),
    ],
)
def test_it_goes_as_well_as_can_be_at_full_width_and_quickly(events: str, quick: bool) -> None:
    assert after(events).quick == quick
