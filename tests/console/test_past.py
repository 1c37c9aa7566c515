"""The time machine: a past minute is shown as it was recorded in that minute."""

import asyncio
import json
import random
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from courier import app, ids
from courier.clock import ManualClock
from courier.config import Config
from courier.console.past import Past
from courier.core import keys
from courier.core.records import decided
from courier.core.types import (
    BROKER,
    MINUTE_MS,
    SECOND_MS,
    Ack,
    Actor,
    Draft,
    Extend,
    Key,
    Message,
    Queue,
    QueueStats,
    Retry,
    Tenant,
)
from courier.store.embedded import EmbeddedStore
from courier.web import Head, Response
from courier.words import exact, iso
from tests.console.test_budget import Asked, Waiting
from tests.oracle.store import Oracle

STEPS = 120
# Part of the steps after which the server is another one.
RESTARTS = 0.1
LINK = re.compile(r'href="([^"]*)"(?! data-now)')


class World:
    """A server in this process, whose time stands still until it is moved."""

    def __init__(self, store: Any, directory: Path) -> None:
        self.store = store
        self.clock = ManualClock(1_794_950_040_000)
        clock: Any = self.clock
        self.courier = app.build(store, Config(data=directory), clock, port=1)
        self.tenant = Tenant(
            id=ids.new_id(), tenant="", name="default", created_ms=self.now_ms, organization="o"
        )
        self.secret = ""

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def restart(self, file: Path) -> None:
        """The server ends, and another one begins with what is on the disk."""
        await self.store.close()
        self.store = await EmbeddedStore.open(file)
        clock: Any = self.clock
        self.courier = app.build(self.store, Config(data=file.parent), clock, port=1)

    async def begin(self, *names: str) -> list[Queue]:
        grants = keys.grants(["admin", "journal", "read"])
        key, self.secret = keys.new_key(tenant="", name="first", grants=grants, now_ms=self.now_ms)
        queues = [
            Queue(id=ids.new_id(), tenant=self.tenant.id, name=name, created_ms=self.now_ms,
                  modified_ms=self.now_ms, lease_ms=40 * SECOND_MS)
            for name in names
        ]  # fmt: skip
        puts: list[Any] = [self.tenant, key, *queues]
        await self.store.change(decided(puts=puts), actor=BROKER, now_ms=self.now_ms)
        return queues

    async def get(self, path: str, query: str = "", *, html: bool = False) -> Response:
        accept = b"text/html" if html else b"application/json"
        headers = {b"authorization": f"Bearer {self.secret}".encode(), b"accept": accept}
        asked = Asked(Head("GET", path.encode(), query.encode(), headers), Waiting(), "127.0.0.1")
        answer = await self.courier.app.respond(asked)
        assert answer is not None
        return answer

    async def facts(self, path: str, query: str = "") -> Any:
        answer = await self.get(path, query)
        assert answer.status == 200, answer.body
        return json.loads(bytes(answer.body))


async def _step(world: World, luck: random.Random, queue: Queue, leased: list[Message]) -> None:
    """Something that changes what a queue holds."""
    store, now_ms, actor = world.store, world.now_ms, BROKER
    match luck.randrange(6):
        case 0 | 1:
            delay = luck.choice((None, None, 30_000, 90_000))
            drafts = [Draft(b"x", delay_ms=delay)] * luck.randint(1, 4)
            await store.publish([(queue.id, drafts)], actor=actor, now_ms=now_ms)
        case 2 | 3:
            found = await store.lease(
                queue.id, count=luck.randint(1, 3), lease_ms=40_000, actor=actor, now_ms=now_ms
            )
            leased += found.messages
        case _ if leased:
            message = leased.pop(luck.randrange(len(leased)))
            item = luck.choice(
                (
                    Ack(message.seq, message.attempts),
                    Retry(message.seq, message.attempts, delay_ms=luck.choice((0, 70_000))),
                    Extend(message.seq, message.attempts, lease_ms=100_000),
                )
            )
            await store.settle(queue.id, [item], actor=actor, now_ms=now_ms)


@pytest.mark.parametrize("kind", ["oracle", "sqlite", "restarts"])
@pytest.mark.parametrize("seed", range(6))
def test_a_past_minute_is_what_was_recorded_in_it(tmp_path: Path, kind: str, seed: int) -> None:
    async def history() -> None:
        on_disk = tmp_path / "store.db" if kind == "restarts" else None
        first: Any = Oracle() if kind == "oracle" else await EmbeddedStore.open(on_disk)
        world, luck = World(first, tmp_path), random.Random(seed)
        queues = await world.begin("one", "two")
        seen: dict[int, dict[str, QueueStats]] = {}
        leased: dict[str, list[Message]] = {queue.id: [] for queue in queues}
        for _ in range(STEPS):
            queue = luck.choice(queues)
            await _step(world, luck, queue, leased[queue.id])
            if on_disk and luck.random() < RESTARTS:
                await world.restart(on_disk)
            store = world.store
            ahead_ms = luck.choice((500, 9_000, 25_000, 3 * MINUTE_MS))
            until_ms = world.now_ms + ahead_ms
            # Just before the end of each minute on the way, what is held is written down.
            while (end_ms := (world.now_ms // MINUTE_MS + 1) * MINUTE_MS) <= until_ms:
                world.clock.advance(end_ms - 1 - world.now_ms)
                await store.sweep(limit=1_000, now_ms=world.now_ms)
                seen[end_ms] = await store.stats([each.id for each in queues], now_ms=world.now_ms)
                world.clock.advance(1)
            world.clock.advance(until_ms - world.now_ms)
        past = Past(world.courier.console.services)  # type: ignore[union-attr]
        for at_ms, stats in seen.items():
            held_then = await past.held([each.id for each in queues], at_ms)
            for queue in queues:
                then, held = stats[queue.id], held_then[queue.id]
                assert (held.count, held.leased, held.delayed) == (
                    then.count, then.leased, then.delayed
                ), (at_ms, queue.name)  # fmt: skip
        # The same through the page, of some of them.
        for at_ms in luck.sample(sorted(seen), 5):
            rows = (await world.facts("/console", f"at={iso(at_ms)}"))["rows"]
            shown = {row["id"]: (row["waiting"], row["leased"], row["delayed"]) for row in rows}
            for id, then in seen[at_ms].items():
                waiting = then.count - then.leased - then.delayed
                assert shown[id] == (waiting, then.leased, then.delayed)
        await world.store.close()

    asyncio.run(history())


def test_a_past_minute_is_not_changed_by_what_became_due_since(tmp_path: Path) -> None:
    """Looking passes time: the delay that was over, and not swept yet, ends while it is read."""

    async def history() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        drafts = [Draft(b"x", delay_ms=MINUTE_MS)]
        await world.store.publish([(queue.id, drafts)], actor=BROKER, now_ms=world.now_ms)
        at_ms = (world.now_ms // MINUTE_MS + 1) * MINUTE_MS
        world.clock.advance(3 * MINUTE_MS)
        [row] = (await world.facts("/console", f"at={iso(at_ms)}"))["rows"]
        assert (row["waiting"], row["delayed"]) == (0, 1)
        await world.store.close()

    asyncio.run(history())


def test_who_consumed_then_is_said_of_a_past_minute(tmp_path: Path) -> None:
    async def history() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        [key] = world.store.records.scan(Key)
        at = Actor(key.id, "cloudflare")
        path, before = f"/console/queues/{queue.id}", iso(world.now_ms + MINUTE_MS)
        world.clock.advance(5 * MINUTE_MS)
        drafts = [Draft(b"x")] * 3
        await world.store.publish([(queue.id, drafts)], actor=at, now_ms=world.now_ms)
        leased = {"count": 2, "lease_ms": 40_000, "actor": at, "now_ms": world.now_ms}
        await world.store.lease(queue.id, **leased)
        then = iso(world.now_ms + 2 * MINUTE_MS)
        world.clock.advance(40 * 3_600_000)
        assert (await world.facts(path))["consumers"] == []
        [row] = (await world.facts(path, f"at={then}"))["consumers"]
        assert (row["name"], row["leased"]) == ("first", 2)
        assert (await world.facts(path, f"at={before}"))["consumers"] == []
        text = bytes((await world.get(path, f"at={before}", html=True)).body).decode()
        assert "Nobody had leased from this queue in the 24 hours before." in text
        await world.store.close()

    asyncio.run(history())


def test_a_message_whose_events_are_trimmed_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    async def history() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        store, draft = world.store, Draft(b"x")
        for _ in range(2):
            await store.publish([(queue.id, [draft])], actor=BROKER, now_ms=world.now_ms)
            [done] = (
                await store.lease(
                    queue.id, count=1, lease_ms=9_000, actor=BROKER, now_ms=world.now_ms
                )
            ).messages
            item = Ack(seq=done.seq, attempt=done.attempts)
            await store.settle(queue.id, [item], actor=BROKER, now_ms=world.now_ms)
            world.clock.advance(MINUTE_MS)
        first = ids.message_id(published_ms=world.now_ms - 2 * MINUTE_MS, seq=1, queue=queue.id)
        never = ids.message_id(published_ms=world.now_ms, seq=7, queue=queue.id)
        query = f"queue={queue.id}"
        assert (await world.get(f"/console/messages/{first}", query)).status == 200
        before = await store.journal.offset_at(world.now_ms - MINUTE_MS)
        await store.journal.trim(upto=before)
        assert (await world.get(f"/console/messages/{never}", query)).status == 404
        answer = await world.get(f"/console/messages/{first}", query, html=True)
        began = exact(world.now_ms - MINUTE_MS)[:16]
        text = bytes(answer.body).decode()
        assert answer.status == 410 and "No longer kept" in text
        assert f"the journal begins at {began}." in text
        await store.close()

    asyncio.run(history())


def test_a_bug_of_ours_has_an_id_in_page_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    async def visit() -> Response:
        world = World(await EmbeddedStore.open(None), tmp_path)
        await world.begin("orders")
        monkeypatch.setattr(world.store, "stats", broken)
        answer = await world.get("/console", html=True)
        await world.store.close()
        return answer

    answer = asyncio.run(visit())
    [logged] = [each for each in caplog.records if each.message == "request_failed"]
    id = vars(logged)["request"]
    assert answer.status == 500 and f"as request {id}." in bytes(answer.body).decode()


def test_pages_of_the_past_are_read_only_and_their_links_keep_the_time(tmp_path: Path) -> None:
    async def visit() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        store = world.store
        await store.publish([(queue.id, [Draft(b"{}", "json")] * 3)], actor=BROKER,
                            now_ms=world.now_ms)  # fmt: skip
        message = (
            await store.messages.browse(queue.id, after_seq=0, limit=1, now_ms=world.now_ms)
        )[0].id
        world.clock.advance(5 * MINUTE_MS)
        at = iso(world.now_ms)
        world.clock.advance(5 * MINUTE_MS)
        await world.courier.admin.update_queue(
            world.tenant.id, queue.id, lambda each: _paused(each), reach=keys.Reach("x"),
            actor=BROKER,
        )  # fmt: skip
        await store.publish([(queue.id, [Draft(b"{}")] * 4)], actor=BROKER, now_ms=world.now_ms)
        facts = await world.facts(f"/console/queues/{queue.id}", f"at={at}")
        assert facts["now"]["count"] == 3 and not facts["settings"]["paused"]
        assert facts["messages"]["says"].startswith("The lake is not kept here")
        now = await world.facts(f"/console/queues/{queue.id}")
        assert now["now"]["count"] == 7 and now["settings"]["paused"]
        events = await world.facts("/console/events", f"at={at}")
        assert {row["kind"] for row in events["rows"]} <= {
            "published", "queue_created", "tenant_created", "key_created",
        }  # fmt: skip
        for path, query in (
            ("/console", ""), (f"/console/queues/{queue.id}", "last=24h"),
            (f"/console/messages/{message}", f"queue={queue.id}"), ("/console/events", ""),
            ("/console/settings", ""), ("/console/lake", ""), ("/console/plans", ""),
        ):  # fmt: skip
            answer = await world.get(path, f"{query}&at={at}", html=True)
            text = bytes(answer.body).decode()
            assert answer.status == 200 and "read-only" in text and "data-live" not in text
            assert 'method="post"' not in text
            for link in LINK.findall(text):
                inside = "console" in link and "/static/" not in link
                assert not inside or "at=2026" in unescape(link), link
            assert text.count('method="get"') == text.count('name="at"')
        for wrong, says in (("soon", "not a time"), ("2999-01-01T00:00Z", "future"),
                            ("2001-01-01T00:00Z", "Nothing is known before")):  # fmt: skip
            refused = await world.get("/console", f"at={wrong}")
            assert refused.status == 400 and says in bytes(refused.body).decode()
        await store.close()

    asyncio.run(visit())


def _paused(queue: Queue) -> Queue:
    return replace(queue, paused=True)
