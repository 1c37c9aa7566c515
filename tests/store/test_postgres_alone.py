"""Servers that take themselves for the only one that writes, and are wrong."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from courier.core.records import Change, Records
from courier.core.types import Ack, Draft, Queue
from courier.store.disk_postgres.turns import Turns
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
CALLERS, TURNS = 12, 20


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


def test_those_who_are_overtaken_do_nothing_and_do_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is published, leased and acknowledged once, and offsets are dense."""
    url = postgres.url_of(tmp_path / "alone")

    async def story() -> tuple[Counter[str], int, int, list[int]]:
        nodes = [await SharedStore.open(url, sealer=SEALER) for _ in range(2)]
        await nodes[0].change(_put, actor=CALLER, now_ms=1)
        leased: Counter[str] = Counter()
        overtaken = 0
        as_it_was = Turns.overtaken

        def count(turns: Turns) -> None:
            nonlocal overtaken
            overtaken += 1
            as_it_was(turns)

        monkeypatch.setattr(Turns, "overtaken", count)

        async def cycle(number: int) -> None:
            for turn in range(TURNS):
                node = nodes[(number + turn) % 2]
                how = {"actor": CALLER, "now_ms": 1}
                postgres.believe_alone(node)
                body = f"{number}-{turn}".encode()
                await node.publish([(QUEUE.id, [Draft(body)])], **how)  # type: ignore[arg-type]
                postgres.believe_alone(node)
                found = await node.lease(QUEUE.id, count=1, lease_ms=1_000, **how)  # type: ignore[arg-type]
                leased.update(message.body.decode() for message in found.messages)
                acks = [Ack(message.seq, message.attempts) for message in found.messages]
                postgres.believe_alone(nodes[turn % 2])
                await nodes[turn % 2].settle(QUEUE.id, acks, **how)  # type: ignore[arg-type]

        await asyncio.gather(*(cycle(number) for number in range(CALLERS)))
        left = (await nodes[0].stats([QUEUE.id], now_ms=1))[QUEUE.id].count
        runs = await nodes[1].journal.read(after=0, limit=10_000)
        offsets = [run.offset + n for run in runs for n in range(run.count)]
        for node in nodes:
            await node.close()
        return leased, left, overtaken, offsets

    leased, left, overtaken, offsets = asyncio.run(story())
    assert overtaken, "nobody was wrong"
    assert set(leased.values()) == {1}
    assert len(leased) + left == CALLERS * TURNS
    assert offsets == list(range(1, len(offsets) + 1))
