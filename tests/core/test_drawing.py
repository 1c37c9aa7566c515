"""Where the points of a chart lie."""

import pytest

from courier.drawing import Frame, scale, short_number

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
NOON_MS = 1_794_830_400_000


def frame(length_ms: int = 60 * MINUTE_MS) -> Frame:
    """100 wide and high inside, with margins of 10 at the left and of 20 at the top."""
    return Frame(110, 120, 10, 0, 20, 0, NOON_MS, NOON_MS + length_ms)


def test_moments_and_shares_lie_inside_the_margins() -> None:
    drawn = frame()
    assert [drawn.x(NOON_MS + minutes * MINUTE_MS) for minutes in (0, 30, 60)] == [10, 60, 110]
    assert (drawn.x(0), drawn.x(2 * NOON_MS)) == (10, 110)
    assert [drawn.y(share) for share in (0, 0.5, 1)] == [120, 70, 20]


@pytest.mark.parametrize(
    ("shares", "line", "area"),
    [
        ([], "", ""),
        ([None, None], "", ""),
        ([0.5], "M10,70.0H110", "M10,120V70.0H110V120Z"),
        ([0, 0, 1, 1], "M10,120.0H60V20.0H110", "M10,120V120.0H60V20.0H110V120Z"),
        ([1, None, 1, None], "M10,20.0H35M60,20.0H85", "M10,120V20.0H35V120ZM60,120V20.0H85V120Z"),
    ],
)
def test_a_path_has_a_step_for_each_change_and_a_gap_for_none(
    shares: list[float | None], line: str, area: str
) -> None:
    assert (frame().steps(shares), frame().steps(shares, area=True)) == (line, area)


@pytest.mark.parametrize(
    ("length_ms", "texts"),
    [
        (5_000, ["12:00:00", "12:00:01", "12:00:02", "12:00:03", "12:00:04", "12:00:05"]),
        (60 * MINUTE_MS, ["12:00", "12:20", "12:40", "13:00"]),
        (DAY_MS, ["16:00", "17 Nov", "08:00"]),
        (4 * DAY_MS, ["17 Nov", "18 Nov", "19 Nov", "20 Nov"]),
        (3_000 * DAY_MS, ["Oct 2027", "Oct 2029", "Oct 2031", "Oct 2033"]),
    ],
)
def test_the_time_axis_has_few_round_moments(length_ms: int, texts: list[str]) -> None:
    ticks = frame(length_ms).ticks(5)
    assert [text for _, text in ticks] == texts
    assert all(10 <= x <= 110 for x, _ in ticks)


def test_a_time_axis_never_has_more_than_its_limit() -> None:
    assert len(frame(10**6 * DAY_MS).ticks(3)) == 4


@pytest.mark.parametrize(
    ("top", "whole", "values"),
    [
        (0, False, [0, 1]),
        (4, False, [0, 1, 2, 3, 4]),
        (4.1, False, [0, 2, 4, 6]),
        (0.5, False, [0, 0.2, 0.4, 0.6000000000000001]),
        (0.5, True, [0, 1]),
        (3, True, [0, 1, 2, 3]),
        (1_000, True, [0, 500, 1_000]),
    ],
)
def test_a_scale_has_round_numbers_and_reaches_its_top(
    top: float, whole: bool, values: list[float]
) -> None:
    assert scale(top, parts=4, whole=whole) == values


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.25, "0.25"), (20, "20"), (1_500, "1.5k"), (2e6, "2M")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
