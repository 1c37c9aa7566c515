"""How many requests a listener gets at a time."""

import pytest

from courier.delivery.pace import IN_FLIGHT_MAX, QUICK_MS, Pace


def after(events: str) -> Pace:
    """`+` went well, `s` went well but slowly, `-` failed."""
    pace = Pace()
    for event in events:
        if event == "-":
            pace.failed()
        else:
            pace.went_well(duration_ms=QUICK_MS + 1 if event == "s" else 1)
    return pace


@pytest.mark.parametrize(
    ("events", "width"),
    [
        ("", IN_FLIGHT_MAX),
        ("+" * 100, IN_FLIGHT_MAX),
        ("-", 1),
        ("---", 1),
        ("-+", 2),
        ("-++", 2),
        ("-+++", 4),
        ("-++++++", 4),
        ("-+++++++", 8),
        ("-" + "+" * 14, 8),
        ("-" + "+" * 15, IN_FLIGHT_MAX),
        ("-" + "+" * 100, IN_FLIGHT_MAX),
        ("-++-", 1),
        ("-++-+", 2),
    ],
)
def test_one_while_it_fails_then_twice_as_many_whenever_all_went_well(
    events: str, width: int
) -> None:
    assert after(events).width == width


@pytest.mark.parametrize(
    ("events", "quick"),
    [
        ("", False),
        ("+", True),
        ("s", False),
        ("+s", False),
        ("s+", True),
        ("-+", False),
        ("-" + "+" * 15, False),
        ("-" + "+" * 16, True),
        ("+-", False),
    ],
)
def test_it_goes_as_well_as_can_be_at_full_width_and_quickly(events: str, quick: bool) -> None:
    assert after(events).quick == quick
