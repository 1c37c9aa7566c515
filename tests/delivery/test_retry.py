"""How long a failed push waits for its next attempt."""

import time
from email.utils import formatdate

import pytest

from courier.core.types import HOUR_MS, MINUTE_MS, SECOND_MS
from courier.delivery import pace

NOW_MS = 1_700_000_000_000
SCHEDULE_MS = [
    *(5 * SECOND_MS, 30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS),
    *(HOUR_MS, 2 * HOUR_MS, 4 * HOUR_MS, 8 * HOUR_MS, 12 * HOUR_MS),
]
ATTEMPTS = 11


def date(ms: int) -> str:
    return formatdate(ms / 1_000, usegmt=True)


@pytest.mark.parametrize("attempt", range(1, ATTEMPTS))
@pytest.mark.parametrize(("luck", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_the_wait_after_each_attempt_is_that_of_the_schedule_and_a_fifth_more_or_less(
    attempt: int, luck: float, factor: float
) -> None:
    delay_ms = pace.delay_ms(attempt=attempt, attempts_max=ATTEMPTS, luck=luck)
    assert delay_ms == round(SCHEDULE_MS[attempt - 1] * factor)


def test_eleven_attempts_take_about_28_hours_and_then_it_is_over() -> None:
    delays = [
        pace.delay_ms(attempt=attempt, attempts_max=ATTEMPTS, luck=0.5)
        for attempt in range(1, ATTEMPTS + 1)
    ]
    assert delays[-1] is None
    hours = sum(delay for delay in delays if delay is not None) / HOUR_MS
    assert hours == pytest.approx(27.7, rel=0.01)


@pytest.mark.parametrize("attempts_max", [1, 2, 5])
def test_a_listener_may_want_fewer_attempts(attempts_max: int) -> None:
    last = pace.delay_ms(attempt=attempts_max, attempts_max=attempts_max, luck=0.5, asked_ms=1)
    assert last is None
    if attempts_max > 1:
        attempt = attempts_max - 1
        assert pace.delay_ms(attempt=attempt, attempts_max=attempts_max, luck=0.5) is not None


def test_a_retry_by_hand_beyond_the_last_attempt_is_not_followed_by_others() -> None:
    assert pace.delay_ms(attempt=ATTEMPTS + 1, attempts_max=ATTEMPTS, luck=0.5) is None


@pytest.mark.parametrize(
    ("header", "ms"),
    [
        ("0", 0),
        ("7", 7 * SECOND_MS),
        (" 7 ", 7 * SECOND_MS),
        ("3600", HOUR_MS),
        ("3601", HOUR_MS),
        ("9" * 400, HOUR_MS),
        (date(NOW_MS + 90 * SECOND_MS), 90 * SECOND_MS),
        (date(NOW_MS + 48 * HOUR_MS), HOUR_MS),
        (date(NOW_MS - HOUR_MS), 0),
        ("Tue, 14 Nov 2023 22:14:50 GMT", 90 * SECOND_MS),
        ("Tuesday, 14-Nov-23 22:14:50 GMT", 90 * SECOND_MS),
        ("Tue Nov 14 22:14:50 2023", 90 * SECOND_MS),
        ("Tue, 14 Nov 2023 23:14:50 +0100", 90 * SECOND_MS),
        ("Fri, 31 Dec 9999 23:59:59 GMT", HOUR_MS),
        *[
            (text, 0)
            for text in ("", "-1", "+5", "1.5", "1e3", "soon", "٣", "7 s", "0x10", "Tue, 99 Nov")
        ],
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0),
    ],
)
def test_a_retry_after_asks_for_seconds_or_names_a_date_or_says_nothing(
    header: str, ms: int
) -> None:
    assert pace.asked_ms(header, wall_ms=NOW_MS) == ms


def test_a_date_without_a_zone_is_in_universal_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert pace.asked_ms("Tue Nov 14 22:14:50 2023", wall_ms=NOW_MS) == 90 * SECOND_MS
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("asked_ms", "waits_ms"),
    [
        (0, 5 * SECOND_MS),
        (SECOND_MS, 5 * SECOND_MS),
        (MINUTE_MS, MINUTE_MS),
        (9 * HOUR_MS, HOUR_MS),
    ],
)
def test_the_wait_is_at_least_what_was_asked_for_but_never_more_than_an_hour_of_it(
    asked_ms: int, waits_ms: int
) -> None:
    delay_ms = pace.delay_ms(attempt=1, attempts_max=ATTEMPTS, luck=0.5, asked_ms=asked_ms)
    assert delay_ms == waits_ms


def test_a_long_wait_of_the_schedule_is_not_cut_by_a_short_one_asked_for() -> None:
    delay_ms = pace.delay_ms(attempt=10, attempts_max=ATTEMPTS, luck=0.5, asked_ms=SECOND_MS)
    assert delay_ms == 12 * HOUR_MS
