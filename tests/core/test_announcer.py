"""What a queue does to an announcement that it is to take."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from courier import ids
from courier.core.records import decided
from courier.core.sealed import body_place
from courier.core.types import EventSubscription, Queue, Receipt, Schema
from tests.core.newsroom import CALLER, TENANT, Newsroom
from tests.oracle.store import Oracle

KV = {"type": "kv"}


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def room(runner: asyncio.Runner) -> Newsroom:
    return Newsroom(runner, Oracle())


def test_an_encrypted_queue_keeps_events_encrypted(room: Newsroom) -> None:
    queue = room.queue("sealed", encrypted=True)
    room.subscription(queue, KV, "namespace.created")
    assert room.send(KV, "namespace.created", b'{"name":"plain"}') == {"delivered": 1}
    [message] = room.messages(queue)
    assert message.sealed
    assert b"plain" not in message.body
    clear = json.loads(room.sealer.open(message.body, message.sealed, body_place(TENANT)))
    assert clear["payload"] == {"name": "plain"}


def test_a_queue_takes_only_events_that_follow_its_schema(room: Newsroom) -> None:
    text, anything = {"type": "string"}, {"type": "object", "props": {}, "strict": False}
    schema = Schema(
        id=ids.new_id(),
        tenant=TENANT,
        created_ms=0,
        fingerprint="",
        properties={
            "type": {**text, "enum": ["cf.kv.namespace.created"]},
            "source": anything,
            "payload": anything,
            "metadata": anything,
        },
    )
    queue, other = room.queue("strict", schema=schema.id), room.queue("other")
    room.change(schema)
    for each in (queue, other):
        room.subscription(each, KV, "namespace.created", "namespace.deleted")
    assert room.send(KV, "namespace.created") == {"delivered": 2}
    assert room.send(KV, "namespace.deleted") == {"delivered": 1, "refused": 1}
    assert room.told_types(queue) == ["cf.kv.namespace.created"]
    assert len(room.told(other)) == 2


def test_a_full_queue_keeps_no_news_from_the_others(runner: asyncio.Runner) -> None:
    room = Newsroom(runner, Oracle(), queue_bytes_max=1_000)
    full, queue = room.queue("full"), room.queue("queue")
    room.publish(full, 900)
    for each in (full, queue):
        room.subscription(each, KV, "namespace.created")
    assert room.send(KV, "namespace.created") == {"delivered": 1, "refused": 1}
    assert len(room.told(queue)) == 1
    assert len(room.messages(full)) == 900


def test_a_fifo_queue_takes_events_in_order(room: Newsroom) -> None:
    queue = room.queue("fifo", fifo=True)
    room.subscription(queue, KV, "namespace.created")
    for number in range(3):
        room.send(KV, "namespace.created", b'{"n":%d}' % number)
    assert [event["payload"]["n"] for event in room.told(queue)] == [0, 1, 2]


class HastyStore(Oracle):
    """In which somebody deletes a queue just before something is published on it."""

    def __init__(self) -> None:
        super().__init__()
        self.doomed: list[Queue] = []

    async def publish(self, *args: Any, **named: Any) -> list[Receipt]:
        for queue in self.doomed:
            hanging = self.records.scan(EventSubscription, parent=queue.id)
            await self.change(
                decided(drops=[queue, *hanging]), actor=CALLER, now_ms=named["now_ms"]
            )
        self.doomed = []
        return await super().publish(*args, **named)


def test_a_queue_deleted_meanwhile_keeps_no_news_from_the_others(runner: asyncio.Runner) -> None:
    store = HastyStore()
    room = Newsroom(runner, store)
    gone, queue = room.queue("gone"), room.queue("queue")
    for each in (gone, queue):
        room.subscription(each, KV, "namespace.created")
    store.doomed = [gone]
    assert room.send(KV, "namespace.created")["delivered"] == 1
    assert len(room.told(queue)) == 1
