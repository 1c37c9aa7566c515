"""Whether a listener seems to be there."""

import pytest

from courier.core.types import Liveness
from courier.delivery import liveness

NOW_MS = 1_700_000_000_000
NEW = Liveness(id="l", tenant="t", parent="l", created_ms=0)


def after(events: str, known: Liveness = NEW) -> Liveness:
    """`+` a good probe, `-` a failed one, `s` too many pushes without an answer."""
    for number, event in enumerate(events):
        at_ms = NOW_MS + number
        if event == "s":
            known = liveness.silent(known, now_ms=at_ms, why="silence")
        else:
            known = liveness.probed(known, ok=event == "+", now_ms=at_ms, why="answered 500")
    return known


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", "pending"),
        ("+", "stable"),
        ("-", "unstable"),
        ("--", "unstable"),
        ("---", "inactive"),
        ("+--", "unstable"),
        ("+---", "inactive"),
        ("--+", "stable"),
        ("--+--", "unstable"),
        ("--+---", "inactive"),
        ("----------", "inactive"),
        ("---+", "unstable"),
        ("---++", "stable"),
        ("---+-", "unstable"),
        ("---+---", "inactive"),
        ("---+-+", "stable"),
        ("s", "inactive"),
        ("+s", "inactive"),
        ("s-", "inactive"),
        ("s+", "unstable"),
        ("s++", "stable"),
        ("s+s", "inactive"),
        ("s+--", "unstable"),
    ],
)
def test_the_state_follows_from_how_probes_and_pushes_went(events: str, state: str) -> None:
    assert after(events).state == state


def test_probes_are_counted_and_pushes_are_not() -> None:
    known = after("+-s--+")
    assert (known.success_count, known.failure_count) == (2, 3)


def test_the_last_good_and_the_last_bad_moment_are_remembered() -> None:
    known = after("+-+")
    assert (known.last_success_ms, known.last_failure_ms) == (NOW_MS + 2, NOW_MS + 1)
    assert known.last_failure == "answered 500"


def test_why_pushes_went_unanswered_is_remembered() -> None:
    known = after("+s")
    assert (known.last_failure_ms, known.last_failure) == (NOW_MS + 1, "silence")


def test_a_listener_that_is_back_must_fail_three_times_again() -> None:
    assert after("---+--").state == "unstable"
    assert after("---+---").state == "inactive"
