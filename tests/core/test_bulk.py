"""Publishing many drafts: checked as a whole, stored part by part, and each of them once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from courier.clock import ManualClock
from courier.core.broker import PART_BYTES_MAX, PART_DRAFTS_MAX, ROWS_KNOWN_MS, Broker
from courier.core.errors import (
    Conflict,
    Frozen,
    InvalidRequest,
    OverLimit,
    RateLimited,
    RowsChanged,
)
from courier.core.limits import Limits
from courier.core.types import Draft, Queue, Run, Schema
from courier.ops.digests import digests
from courier.sealing import KeySealer
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.driver import CALLER, TENANT, Driver

LIMITS = Limits(queue_bytes_max=10 << 20)


class Bulk(Driver):
    """A broker on a store on disk."""

    def broker(self, limits: Limits = LIMITS) -> Broker:
        return Broker(self.store, self.clock, limits, KeySealer([b"k" * 32]))

    def send(
        self,
        queue: Queue,
        drafts: list[Draft],
        *,
        key: str = "k",
        first: int = 0,
        limits: Limits = LIMITS,
        marks: list[bytes] | None = None,
    ) -> int:
        call = self.broker(limits).publish_rows(
            queue, drafts, key=key, first=first, actor=CALLER, marks=marks
        )
        return self.run(call)

    def parts(self) -> list[Run]:
        """What was stored together, in its order."""
        runs = self.run(self.store.journal.read(after=0, limit=1_000_000))
        return [run for run in runs if run.kind == "published"]


@pytest.fixture
def bulk(tmp_path: Path) -> Iterator[Bulk]:
    with asyncio.Runner() as runner:
        # One block and so one run of the journal for a part.
        opening = EmbeddedStore.open(
            tmp_path / "courier.db", block_messages=MANY, block_bytes=64 << 20
        )
        bulk = Bulk(runner.run(opening), ManualClock(), runner)
        yield bulk
        runner.run(bulk.store.close())


@pytest.fixture
def queue(bulk: Bulk) -> Queue:
    return bulk.queue()


def numbered(count: int) -> list[Draft]:
    return [Draft(str(number).encode()) for number in range(count)]


MANY = 3 * PART_DRAFTS_MAX + 7


@pytest.mark.parametrize("key", ["k", ""])
def test_many_drafts_are_stored_in_parts_and_in_order(bulk: Bulk, queue: Queue, key: str) -> None:
    assert bulk.send(queue, numbered(MANY), key=key) == MANY
    parts = bulk.parts()
    assert [part.count for part in parts] == [PART_DRAFTS_MAX] * 3 + [7]
    bodies = [body for part in parts for body in part.columns["body"]]
    assert bodies == [draft.body for draft in numbered(MANY)]


def test_long_drafts_make_smaller_parts(bulk: Bulk, queue: Queue) -> None:
    half, whole = Draft(bytes(PART_BYTES_MAX // 2)), Draft(bytes(PART_BYTES_MAX + 1))
    assert bulk.send(queue, [half, half, half, whole, Draft(b"a")]) == 5
    assert [part.count for part in bulk.parts()] == [2, 1, 1, 1]


def test_others_have_their_turn_between_the_parts(bulk: Bulk, queue: Queue) -> None:
    broker = bulk.broker()

    async def both() -> int:
        many = asyncio.create_task(
            broker.publish_rows(queue, numbered(MANY), key="k", first=0, actor=CALLER)
        )
        while not (await bulk.store.stats([queue.id], now_ms=bulk.now_ms))[queue.id].count:
            assert not many.done()
        await broker.publish(queue, [Draft(b"other")], actor=CALLER)
        return await many

    assert bulk.run(both()) == MANY
    [other] = [part.columns["seq"] for part in bulk.parts() if part.count == 1]
    assert 1 < other[0] < MANY


def test_a_call_that_broke_off_is_finished_by_the_same_call(bulk: Bulk, queue: Queue) -> None:
    broker = bulk.broker()

    async def broken_off() -> None:
        many = asyncio.create_task(
            broker.publish_rows(queue, numbered(MANY), key="k", first=0, actor=CALLER)
        )
        while not (await bulk.store.stats([queue.id], now_ms=bulk.now_ms))[queue.id].count:
            pass
        many.cancel()
        await asyncio.gather(many, return_exceptions=True)

    bulk.run(broken_off())
    stored = bulk.rows(queue)
    assert 0 < stored < MANY
    assert bulk.send(queue, numbered(MANY)) == MANY - stored
    bodies = [body for part in bulk.parts() for body in part.columns["body"]]
    assert bodies == [draft.body for draft in numbered(MANY)]


def test_two_callers_with_the_same_drafts_store_each_once(bulk: Bulk, queue: Queue) -> None:
    broker = bulk.broker()

    async def both() -> list[int]:
        calls = [
            broker.publish_rows(queue, numbered(MANY), key="k", first=0, actor=CALLER)
            for _ in range(2)
        ]
        return await asyncio.gather(*calls)

    assert sum(bulk.run(both())) == MANY
    assert bulk.stats(queue).count == MANY


def test_other_drafts_are_refused_before_the_first_part_is_stored(bulk: Bulk, queue: Queue) -> None:
    """Wherever what is stored ends, be it within a part or at its edge."""
    drafts = numbered(MANY)
    marks = digests(drafts, b"")
    other = [Draft(b"other"), *drafts[1:]]
    for stored in (1, PART_DRAFTS_MAX, PART_DRAFTS_MAX + 3, MANY - 1, MANY):
        key = str(stored)
        bulk.send(queue, drafts[:stored], key=key, marks=marks[: stored + 1])
        before = bulk.last()
        with pytest.raises(RowsChanged):
            bulk.send(queue, other, key=key, marks=digests(other, b""))
        assert bulk.last() == before
        for first, new in ((0, MANY - stored), (stored // 2, 0)):
            again = bulk.send(queue, drafts[first:], key=key, first=first, marks=marks[first:])
            assert again == new


def test_of_two_callers_with_other_drafts_one_is_refused(bulk: Bulk, queue: Queue) -> None:
    """Both begin alike, so that the later ones are noticed between the parts."""
    broker = bulk.broker()
    alike = PART_DRAFTS_MAX + 9
    ours = numbered(MANY)
    theirs = ours[:alike] + [Draft(b"other") for _ in ours[alike:]]

    async def both() -> list[int | BaseException]:
        calls = [
            broker.publish_rows(
                queue, drafts, key="k", first=0, actor=CALLER, marks=digests(drafts, b"")
            )
            for drafts in (ours, theirs)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = bulk.run(both())
    assert sorted(type(answer).__name__ for answer in answers) == ["RowsChanged", "int"]
    bodies = [body for part in bulk.parts() for body in part.columns["body"]]
    assert bodies in [[draft.body for draft in drafts] for drafts in (ours, theirs)]


def test_only_what_is_new_is_checked_and_counted(bulk: Bulk, queue: Queue) -> None:
    limits = Limits(queue_bytes_max=4, queue_rate_max=3)
    bulk.send(queue, [Draft(b"a"), Draft(b"bb")], limits=limits)
    assert bulk.send(queue, [Draft(b"a"), Draft(b"bb")], limits=limits) == 0
    assert bulk.send(queue, [Draft(b"bb"), Draft(b"c")], first=1, limits=limits) == 1
    with pytest.raises(Conflict):
        bulk.send(queue, [Draft(b"e")], first=4)


def test_numbers_are_known_for_a_day_after_they_were_last_sent(bulk: Bulk, queue: Queue) -> None:
    bulk.send(queue, numbered(3))
    bulk.advance(ROWS_KNOWN_MS - 1)
    assert bulk.send(queue, numbered(2)) == 0
    bulk.advance(ROWS_KNOWN_MS - 1)
    assert bulk.rows(queue) == 3
    bulk.advance(1)
    assert bulk.rows(queue) == 0


def test_nothing_is_stored_of_what_is_too_much(bulk: Bulk, queue: Queue) -> None:
    size = PART_BYTES_MAX // 2
    before = bulk.last()
    with pytest.raises(OverLimit):
        bulk.send(queue, [Draft(bytes(size))] * 10, limits=Limits(queue_bytes_max=9 * size))
    rate = Limits(queue_rate_max=5)
    broker = bulk.broker(rate)

    async def twice() -> None:
        await broker.publish(queue, numbered(1), actor=CALLER)
        await broker.publish_rows(queue, numbered(MANY), key="k", first=0, actor=CALLER)

    with pytest.raises(RateLimited):
        bulk.run(twice())
    assert bulk.last() == before + 1
    frozen = bulk.update(queue, frozen=True)
    with pytest.raises(Frozen):
        bulk.send(frozen, numbered(1))
    assert bulk.rows(queue) == 0


def test_a_draft_that_breaks_the_schema_is_named_and_nothing_is_stored(bulk: Bulk) -> None:
    properties = {"n": {"type": "number", "required": True}}
    schema = Schema(
        id="s" * 32, tenant=TENANT, created_ms=0, fingerprint="f", properties=properties
    )
    bulk.change(puts=[schema])
    queue = bulk.queue(schema=schema.id)
    good, bad = Draft(b'{"n": 1}', "json"), Draft(b'{"n": "1"}', "json")
    bulk.send(queue, [good] * 3)
    before = bulk.last()
    drafts = [good] * MANY
    drafts[MANY - 2] = bad
    with pytest.raises(InvalidRequest, match=f"body: row {MANY - 2}: .*/n"):
        bulk.send(queue, drafts)
    assert (bulk.last(), bulk.rows(queue)) == (before, 3)
    drafts[MANY - 2] = good
    assert bulk.send(queue, drafts) == MANY - 3


def test_bodies_of_an_encrypted_queue_are_sealed(bulk: Bulk) -> None:
    queue = bulk.queue(encrypted=True)
    bulk.send(queue, [Draft(b"secret")])
    [message] = bulk.peek(queue)
    assert message.sealed and b"secret" not in message.body
    assert bulk.broker().opened(queue, message).body == b"secret"
