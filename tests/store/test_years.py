"""Numbers that a store comes to after a year at speed go on, and are refused where they end."""

import asyncio
from pathlib import Path

import pytest

from courier.core.errors import OverLimit
from courier.core.records import Change, Records
from courier.core.types import Ack, Draft, Queue, Retry
from courier.store.engine.publishing import NUMBERS_MAX
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER

pytestmark = pytest.mark.slow

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
YEAR_S = 365 * 86_400
# A million messages a second with four events each, 400 groups a second, 280 bytes a message.
EVENTS, GROUPS, BYTES = 4 * 10**6 * YEAR_S, 400 * YEAR_S, 280 * 10**6 * YEAR_S
# As if all of it had been acknowledged, and the journal trimmed.
AGE = (
    f"UPDATE {{schema}}.head SET grp = grp + {GROUPS}, journal_last = journal_last + {EVENTS}, "
    f"journal_first = journal_last + {EVENTS} + 1, journal_bytes = journal_bytes + {BYTES}, "
    f"journal_start_bytes = journal_bytes + {BYTES}",
    "UPDATE {schema}.lines SET tail = {tail}, cursor = {tail}",
    *(f"DELETE FROM {{schema}}.{table}" for table in ("packet", "block", "grp")),
)
HOW = {"actor": CALLER, "now_ms": 1}


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


async def opened(url: str) -> postgres.InTurn:
    """Two servers, each verb goes to the other one."""
    return postgres.InTurn([await SharedStore.open(url, sealer=SEALER) for _ in range(2)])


async def cycle(store: postgres.InTurn, *bodies: str) -> list[str]:
    """Published, found by their ids, and acknowledged, one of them at the second attempt."""
    drafts = [Draft(body.encode()) for body in bodies]
    [receipt] = await store.publish([(QUEUE.id, drafts)], **HOW)
    got = []
    for count in (len(bodies), 1):
        leased = await store.lease(QUEUE.id, count=count, lease_ms=1_000, **HOW)
        *firsts, last = leased.messages
        items = [Ack(each.seq, each.attempts) for each in firsts]
        again = Retry(last.seq, last.attempts, 0) if firsts else Ack(last.seq, last.attempts)
        await store.settle(QUEUE.id, [*items, again], **HOW)
        got += [each.id for each in leased.messages]
    assert got == [*receipt.ids, receipt.ids[-1]]
    return [bytes(each.body).decode() for each in leased.messages]


def test_after_a_year_at_a_million_a_second_everything_goes_on(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "year")
    schema = url.rpartition("=")[2]

    async def story() -> None:
        store = await opened(url)
        await store.change(_put, **HOW)
        await cycle(store, "before", "and then")
        began = (await store.journal.head()).last
        await store.close()
        tail = NUMBERS_MAX - 6
        aged = [each.format(schema=schema, tail=tail) for each in AGE]
        await asyncio.to_thread(postgres.server().sql, *aged)
        store = await opened(url)
        for _ in range(2):
            assert await cycle(store, "a", "b", "c") == ["c"]
        head = await store.journal.head()
        assert head.first == began + EVENTS + 1
        read = await store.journal.read(after=head.first - 1, limit=1_000)
        after = head.first
        for run in read:
            assert run.offset == after
            after += run.count
        assert after == head.last + 1
        with pytest.raises(OverLimit) as caught:
            await store.publish([(QUEUE.id, [Draft(b"x")])], **HOW)
        assert "messages that the queue has had" in str(caught.value)
        assert (await store.stats([QUEUE.id], now_ms=1))[QUEUE.id].count == 0
        await store.close()

    asyncio.run(story())
