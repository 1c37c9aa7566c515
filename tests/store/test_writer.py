"""What goes wrong in one call stays in that call, and the writer goes on."""

import asyncio
from pathlib import Path

import pytest

from courier import ids
from courier.core.records import decided
from courier.core.types import Actor, Draft, Queue
from courier.store.embedded import EmbeddedStore

ACTOR = Actor("somebody", "test")
NOW_MS = 1_700_000_000_000


class Bug(Exception):
    pass


async def fail() -> None:
    raise Bug


@pytest.mark.parametrize("inline_ms_max", [0, 60_000])
async def test_a_call_that_fails_takes_no_other_with_it(tmp_path: Path, inline_ms_max: int) -> None:
    store = await EmbeddedStore.open(tmp_path / "courier.db", commit_inline_ms_max=inline_ms_max)
    queue = Queue(id=ids.new_id(), tenant="t", name="q", created_ms=1, modified_ms=1)
    await store.change(decided(puts=[queue]), actor=ACTOR, now_ms=NOW_MS)

    async def publish(body: bytes) -> None:
        await store.publish([(queue.id, [Draft(body)])], actor=ACTOR, now_ms=NOW_MS)

    bad = store.writer.submit(fail)
    answers = await asyncio.wait_for(
        asyncio.gather(publish(b"a"), bad, publish(b"b"), return_exceptions=True), 10
    )
    assert [type(answer) for answer in answers] == [type(None), Bug, type(None)]
    await asyncio.wait_for(publish(b"c"), 10)
    peeked = await store.messages.peek(queue.id, count=9, now_ms=NOW_MS)
    assert sorted(message.body for message in peeked) == [b"a", b"b", b"c"]
    assert [message.seq for message in peeked] == [1, 2, 3]
    assert (await store.stats([queue.id], now_ms=NOW_MS))[queue.id].count == 3
    await asyncio.wait_for(store.close(), 10)
