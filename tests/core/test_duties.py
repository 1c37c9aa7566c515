"""A duty is done by the process that has it, again and again, whatever happens on the way."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from courier.clock import ManualClock
from courier.core import duties
from courier.core.duties import Duty
from courier.core.errors import StoreUnavailable
from tests.oracle.store import Oracle

LOG = logging.getLogger("courier.test")


class SharedStore(Oracle):
    """Which grants a duty as it was told to, one answer for each time it is asked."""

    def __init__(self, *granted: int | None) -> None:
        super().__init__()
        self.granted = list(granted)

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        assert duties == ["test"] and not evenly
        granted = self.granted.pop(0)
        return {} if granted is None else {"test": granted}


def done(store: Oracle, *steps: float | Exception | None) -> list[str]:
    """What happens with a duty whose steps end like these."""
    happened: list[str] = []
    left = list(steps)

    async def turn() -> float | None:
        happened.append("turn")
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    duty = Duty("test", turn, "test_failed", 0.0, LOG, lambda: happened.append("lost"))
    asyncio.run(asyncio.wait_for(duties.run(duty, store, ManualClock()), 10))
    return happened


def test_a_store_of_one_process_grants_it_always() -> None:
    assert done(Oracle(), 0.0, 0.0, None) == ["turn"] * 3


def test_a_step_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    assert done(Oracle(), StoreUnavailable("away"), ValueError("bug"), None) == ["turn"] * 3
    levels = [record.levelno for record in caplog.records if record.message == "test_failed"]
    assert levels == [logging.WARNING, logging.ERROR]


def test_only_the_process_that_has_it_takes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "ASK_AGAIN_S", 0.0)
    store = SharedStore(None, 1, 1, None, None, 3)
    assert done(store, 0.0, 0.0, None) == ["turn", "turn", "lost", "turn"]


def test_a_duty_is_kept_through_a_rest_and_lost_when_another_had_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last answer grants it again, under another fence: what was known is of no use."""
    monkeypatch.setattr(duties, "RENEW_EVERY_S", 0.01)
    store = SharedStore(1, 1, 1, 3, 3)
    assert done(store, 3_600.0, None) == ["turn", "lost", "turn"]
    assert store.granted == []


def test_a_rest_ends_early_when_there_is_something_to_do() -> None:
    async def story() -> None:
        woken, turns = asyncio.Event(), asyncio.Event()

        async def turn() -> float | None:
            if turns.is_set():
                return None
            turns.set()
            return 3_600.0

        duty = Duty("test", turn, "test_failed", 0.0, LOG, woken=woken)
        running = asyncio.create_task(duties.run(duty, Oracle(), ManualClock()))
        await turns.wait()
        woken.set()
        await asyncio.wait_for(running, 10)

    asyncio.run(story())
