"""A standby that stops confirming: nobody waits without end, and nothing is lost or done twice."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from courier.core.errors import OutcomeUnknown, StoreUnavailable, Unavailable
from courier.core.records import Change, Records
from courier.core.types import Draft, Queue
from courier.store.disk_postgres import writer
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER
from tests.store.test_postgres import refusal

pytestmark = pytest.mark.slow

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
ANSWER_SECONDS_MAX = 15.0


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


async def publish(store: SharedStore, body: str) -> None:
    await store.publish([(QUEUE.id, [Draft(body.encode())])], actor=CALLER, now_ms=1)


async def stored(store: SharedStore) -> Counter[str]:
    leased = await store.lease(QUEUE.id, count=999, lease_ms=1_000, actor=CALLER, now_ms=1)
    return Counter(message.body.decode() for message in leased.messages)


@pytest.fixture
def pair() -> Iterator[postgres.Pair]:
    pair = postgres.Pair()
    yield pair
    pair.remove()


def stop_sender(pair: postgres.Pair) -> list[int]:
    senders = pair.senders()
    assert senders
    for pid in senders:
        os.kill(pid, signal.SIGSTOP)
    return senders


def go_on(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


async def waiting(pair: postgres.Pair) -> int:
    """The connection of a server whose commit waits for the standby."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while not (found := (await asyncio.to_thread(pair.primary.sql, postgres.WAITING)).split()):
            await asyncio.sleep(0.02)
    return int(found[0])


def test_callers_do_not_wait_without_end_for_a_standby_that_hangs(pair: postgres.Pair) -> None:
    """Of the calls that hang, those in the group that waits are in doubt, others are refused."""

    async def story() -> tuple[dict[str, BaseException | None], Counter[str]]:
        nodes = [await SharedStore.open(pair.url("courier"), sealer=SEALER) for _ in range(2)]
        await nodes[0].change(_put, actor=CALLER, now_ms=1)
        fates: dict[str, BaseException | None] = {}

        async def publish_until_refused(number: int) -> None:
            for turn in range(10_000):
                body = f"{number}-{turn}"
                try:
                    async with asyncio.timeout(ANSWER_SECONDS_MAX):
                        await publish(nodes[number % 2], body)
                except (Unavailable, TimeoutError) as error:
                    fates[body] = error
                    return
                fates[body] = None

        callers = [asyncio.create_task(publish_until_refused(number)) for number in range(8)]
        await asyncio.sleep(0.3)
        senders = await asyncio.to_thread(stop_sender, pair)
        await asyncio.gather(*callers)
        with pytest.raises(StoreUnavailable):
            await nodes[1].health.check()
        go_on(senders)
        for node in nodes:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while True:
                    try:
                        await publish(node, "after")
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(0.1)
        found: Counter[str] = Counter()
        while batch := await stored(nodes[0]):
            found += batch
        for node in nodes:
            await node.close()
        return fates, found

    # By itself it is no database to open.
    said = refusal(pair.standby.url("courier"))
    assert "is a standby, or read-only: it cannot write" in said and "\n" not in said
    fates, found = asyncio.run(story())
    errors = Counter(type(error) for error in fates.values() if error)
    assert set(errors) <= {OutcomeUnknown, StoreUnavailable}, errors
    assert errors[OutcomeUnknown], "no commit was waiting"
    assert found.pop("after") == 2
    assert set(found.values()) == {1}, "something was done twice"
    for body, error in fates.items():
        if error is None:
            assert body in found, f"answered, and lost: {body}"
        elif isinstance(error, StoreUnavailable):
            assert body not in found, f"refused, and done: {body}"


@pytest.mark.parametrize(
    ("end", "failing_over"), [("pg_cancel_backend", False), ("pg_terminate_backend", True)]
)
def test_a_commit_that_only_the_primary_has_is_decided_by_who_has_it_later(
    pair: postgres.Pair, end: str, failing_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is ended, or its wait, while the standby has not confirmed it. With the old
    primary it happened; with the standby in its place it did not, and is done again."""
    # Callers wait for as long as it takes to make another standby.
    monkeypatch.setattr(writer, "DOUBT_S_MAX", 3 * ANSWER_SECONDS_MAX)
    monkeypatch.setattr(writer, "AWAY_S_MAX", 3 * ANSWER_SECONDS_MAX)

    async def story() -> tuple[Counter[str], int]:
        store = await SharedStore.open(pair.url("courier"), sealer=SEALER)
        await store.change(_put, actor=CALLER, now_ms=1)
        await publish(store, "before")
        senders = await asyncio.to_thread(stop_sender, pair)
        publishing = asyncio.create_task(publish(store, "doubtful"))
        pid = await waiting(pair)
        await asyncio.to_thread(pair.primary.sql, f"SELECT {end}({pid})")
        await asyncio.sleep(0.2)
        assert not publishing.done(), "answered although the standby does not have it"
        if failing_over:
            await asyncio.to_thread(pair.fail_over)
        else:
            go_on(senders)
        async with asyncio.timeout(3 * ANSWER_SECONDS_MAX):
            await publishing
        found = await stored(store)
        doubts = store.writer.doubts
        await store.close()
        return found, doubts

    found, doubts = asyncio.run(story())
    assert found == {"before": 1, "doubtful": 1}
    assert doubts >= 1


@pytest.mark.parametrize("crash", [False, True], ids=["backend ended", "primary restarted"])
def test_no_offset_is_told_before_a_standby_has_it(
    pair: postgres.Pair, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose wait was ended shows on the primary; should that be lost, it is gone."""
    monkeypatch.setattr(writer, "DOUBT_S_MAX", 3 * ANSWER_SECONDS_MAX)
    monkeypatch.setattr(writer, "AWAY_S_MAX", 3 * ANSWER_SECONDS_MAX)

    async def told(node: SharedStore) -> tuple[int, int]:
        runs = await node.journal.read(after=0, limit=1_000)
        return (await node.journal.head()).last, max(run.offset + run.count - 1 for run in runs)

    def shown(offset: int) -> str:
        with suppress(subprocess.CalledProcessError):  # it restarts
            return pair.primary.sql(f"SELECT last FROM courier.packet WHERE last > {offset}")
        return ""

    async def story() -> tuple[tuple[int, int], list[object], tuple[int, int]]:
        one, two = [await SharedStore.open(pair.url("courier"), sealer=SEALER) for _ in range(2)]
        await one.change(_put, actor=CALLER, now_ms=1)
        await publish(one, "before")
        before = await told(two)
        receivers = await asyncio.to_thread(pair.receivers)
        for pid in receivers:
            os.kill(pid, signal.SIGSTOP)
        publishing = asyncio.create_task(publish(one, "doubtful"))
        pid = await waiting(pair)
        if crash:  # PostgreSQL restarts itself then
            os.kill(pid, signal.SIGKILL)
        else:
            await asyncio.to_thread(pair.primary.sql, f"SELECT pg_terminate_backend({pid})")
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while not await asyncio.to_thread(shown, before[0]):
                await asyncio.sleep(0.02)
        asked = [
            asyncio.wait_for(two.journal.head(), 2),
            asyncio.wait_for(two.journal.read(after=before[0], limit=9), 2),
            asyncio.wait_for(two.journal.offset_at(2), 2),
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        go_on(receivers)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await publishing
            after = await told(two)
        for node in (one, two):
            await node.close()
        return before, answers, after

    before, answers, after = asyncio.run(story())
    assert {type(each) for each in answers} <= {TimeoutError, StoreUnavailable}, answers
    assert before == (before[0], before[0]) and after == (before[0] + 1, before[0] + 1)
