import pytest
from hypothesis import given
from hypothesis import strategies as st

from courier.core.lifecycle import Again, Bury, after_failure, expires_ms
from courier.core.types import Queue

ENDED_MS = 1_000


def queue(
    *,
    attempts_max: int | None = 3,
    retry_delay_ms: int = 0,
    retention_ms: int = 100,
    dead_letter: str | None = None,
) -> Queue:
    return Queue(
        id="c0" + "1" * 30,
        tenant="c0" + "2" * 30,
        name="orders",
        created_ms=0,
        modified_ms=0,
        attempts_max=attempts_max,
        retry_delay_ms=retry_delay_ms,
        retention_ms=retention_ms,
        dead_letter=dead_letter,
    )


@pytest.mark.parametrize(("attempt", "buried"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_last_attempt_buries(attempt: int, buried: bool) -> None:
    step = after_failure(queue(), attempt=attempt, delay_ms=None, ended_ms=ENDED_MS)
    assert step == (Bury(None) if buried else Again(ENDED_MS))


def test_a_single_attempt_buries_at_once() -> None:
    only = queue(attempts_max=1)
    assert after_failure(only, attempt=1, delay_ms=5, ended_ms=ENDED_MS) == Bury(None)


def test_a_burial_goes_to_the_queues_dead_letters() -> None:
    dead = "c0" + "d" * 30
    step = after_failure(queue(dead_letter=dead), attempt=3, delay_ms=None, ended_ms=ENDED_MS)
    assert step == Bury(dead)


@given(attempt=st.integers(1, 2**24))
def test_without_a_limit_nothing_is_buried(attempt: int) -> None:
    endless = queue(attempts_max=None)
    step = after_failure(endless, attempt=attempt, delay_ms=None, ended_ms=ENDED_MS)
    assert step == Again(ENDED_MS)


@pytest.mark.parametrize(
    ("own_ms", "due_ms"), [(None, ENDED_MS + 50), (0, ENDED_MS), (7, ENDED_MS + 7)]
)
def test_a_delay_of_its_own_overrides_the_queues(own_ms: int | None, due_ms: int) -> None:
    step = after_failure(queue(retry_delay_ms=50), attempt=1, delay_ms=own_ms, ended_ms=ENDED_MS)
    assert step == Again(due_ms)


@pytest.mark.parametrize(
    ("own_ms", "wanted_ms"), [(None, 600), (599, 599), (600, 600), (601, 601), (500, 500)]
)
def test_a_messages_own_expiry_wins_over_the_queues(own_ms: int | None, wanted_ms: int) -> None:
    assert expires_ms(queue(retention_ms=100), published_ms=500, own_ms=own_ms) == wanted_ms
