"""Random histories of the engine: blocks of three messages and no cache, so that edges are met.

Besides what every store is asked for, calls share groups, the journal is trimmed, and after each
history every body is accounted for.
"""

import asyncio
import os
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from courier.core.types import Ack, Draft
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.driver import CALLER, Driver
from tests.model.accounts import audit, checked
from tests.model.histories import DRAFTS, JUMPS, STEPS, Histories, live
from tests.model.pushing import PICKS
from tests.model.stage import Jump

# A soak run asks for more.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "5"))
STEPS_MAX = 150

MORE_STEPS: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]] = {
    **STEPS,
    "together": (
        6,
        st.tuples(PICKS, st.lists(st.lists(DRAFTS, max_size=3), max_size=3), st.integers(1, 3)),
    ),
}
TRIMS = {**MORE_STEPS, "trim": (5, st.tuples(st.integers(0, 30)))}


def steps(table: dict[str, tuple[int, st.SearchStrategy[tuple[Any, ...]]]]) -> Any:
    kinds = [kind for kind in table for _ in range(table[kind][0])]
    return st.sampled_from(kinds).flatmap(lambda kind: st.tuples(st.just(kind), table[kind][1]))


class EngineHistories(Histories):
    @rule(jump=JUMPS, step=steps(MORE_STEPS))
    def step(self, jump: Jump, step: tuple[str, tuple[Any, ...]]) -> None:
        self.take_step(jump, step)

    def take_step(self, jump: Jump, step: tuple[str, tuple[Any, ...]]) -> None:
        kind, values = step
        self.move(jump)
        getattr(self, kind)(*values)
        self.look()

    def opened(self) -> EmbeddedStore:
        return checked(
            self.runner.run(
                EmbeddedStore.open(
                    self.folder / "courier.db", block_messages=3, block_cache_bytes=0
                )
            )
        )

    def together(self, number: int, batches: list[list[Draft]], count: int) -> None:
        """Calls that share a group: publishes, leases, and acks of what was leased before."""
        queue = self.queues[self.pick_to_pull(number)]
        now_ms = self.clock.now_ms()
        own = [[self.drafted(draft) for draft in drafts] for drafts in batches]
        held = [message for name, message in self.leases if name == queue.name][:3]
        acks = [Ack(message.seq, message.attempts) for message in held]

        async def run(driver: Driver) -> Any:
            store = driver.store
            publishes = [
                store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms) for drafts in own
            ]
            settles = [store.settle(queue.id, [ack], actor=CALLER, now_ms=now_ms) for ack in acks]
            leases = [
                store.lease(queue.id, count=count, lease_ms=50, actor=CALLER, now_ms=now_ms)
                for _ in range(2)
            ]
            answers: list[Any] = await asyncio.gather(*publishes, *settles, *leases)
            ids = [[receipt.ids for receipt in receipts] for receipts in answers[: len(own)]]
            leased = [lease.messages for lease in answers[len(own) + len(acks) :]]
            return ids, answers[len(own) : len(own) + len(acks)], leased

        _, _, leased = self.both(lambda driver: driver.run(run(driver)))
        self.leases += [(queue.name, message) for messages in leased for message in messages]
        self.mark(50, queue.delay_ms, queue.retention_ms)

    def account(self) -> None:
        store = self.other.store
        assert isinstance(store, EmbeddedStore)
        self.runner.run(store.journal.trim(upto=0))
        audit(store)


class FifoEngineHistories(EngineHistories):
    FIFO = frozenset({"work", "dead"})


class TrimmedEngineHistories(EngineHistories):
    """The journal is trimmed all the while, and so cannot be compared."""

    @rule(jump=JUMPS, step=steps(TRIMS))
    def step(self, jump: Jump, step: tuple[str, tuple[Any, ...]]) -> None:
        self.take_step(jump, step)

    def trim(self, left: int) -> None:
        """All but the last few events; what is left of messages is seen as before."""
        store = self.other.store
        last = self.other.last()
        self.runner.run(store.journal.trim(upto=last - left))
        self.account()

    def compare_backlogs(self) -> None:
        pass

    def compare_journals(self) -> None:
        for driver in (self.reference, self.other):
            driver.sweep_all()

    def lease(self, *values: Any) -> None:
        """Without judging its order by the journal."""
        number, count, lease_ms, leased_max, *_ = values
        name = self.pick_to_pull(number)
        queue = self.queues[name]
        leased = self.both(
            lambda d: d.lease(queue, count=count, lease_ms=lease_ms, leased_max=leased_max)
        )
        self.leases += [(name, message) for message in leased]
        self.mark(lease_ms, lease_ms + queue.retry_delay_ms)


class TrimmedFifoEngineHistories(TrimmedEngineHistories):
    FIFO = frozenset({"work", "dead"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "histories",
    [EngineHistories, FifoEngineHistories, TrimmedEngineHistories, TrimmedFifoEngineHistories],
)
def test_the_engine_lives_every_history_like_the_reference(
    histories: type[EngineHistories],
) -> None:
    live(histories, examples=EXAMPLES, steps=STEPS_MAX)
