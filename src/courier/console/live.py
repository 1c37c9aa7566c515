"""Live values: one task serves all open pages, and ends with the last of them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from courier.console import Services
from courier.console.events import Filter, asked, read_between
from courier.console.facts import Facts
from courier.console.guard import HEADERS, NOT_KEPT
from courier.console.queues import QueuesPage, Row
from courier.console.recent import QUIET, History
from courier.core import keys
from courier.core.errors import BrokerError, Forbidden, RateLimited, Unavailable
from courier.core.types import MINUTE_MS, SECOND_MS, Key, Queue, QueueStats
from courier.web import Call, Handler, Response
from courier.words import duration, number, rate, size

EVERY_S = 1.0
STREAM_S_MAX = 600.0
STREAMS_MAX = 200
# Of one key: others have pages open, too.
STREAMS_PER_KEY_MAX = 100
# A stream that nobody has begun to read by then is not counted any more.
UNREAD_S_MAX = 10.0
# Rows of the journal that one page gets in a second; of more it gets the number only.
ROWS_MAX = 50
EVENTS_MAX = 500
STREAM = b"text/event-stream"

log = logging.getLogger("courier.console")
_encode = msgspec.json.encode
# By what a page showed (kept, so that its identity is not used again) and what it shows now.
_Differences = dict[tuple[int, int], tuple[dict[str, str], dict[str, str]]]


class _Watcher:
    """One open page: what it shows, what it was last sent, and what it is still to be sent."""

    def __init__(self, key: Key, tenant: str, queues: tuple[str, ...], *, single: bool) -> None:
        self.key = key
        self.tenant = tenant
        self.queues = queues
        self.single = single
        self.empty = False
        self.filter: Filter | None = None
        self.offset = 0
        self.shown: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.rows: list[Any] = []
        self.more = 0
        self.reload = False
        self.ended = False
        self.read = False
        self.made_s = asyncio.get_running_loop().time()
        self.ready = asyncio.Event()

    def set(self, values: dict[str, str], known: "_Differences") -> None:
        """Keep the newest value of each element for a page that falls behind.

        `known` are differences that were found for other pages: most open pages are alike.
        """
        pair = id(self.shown), id(values)
        if pair not in known:
            shown = self.shown
            new = {each: text for each, text in values.items() if shown.get(each) != text}
            known[pair] = shown, new
        changed = known[pair][1]
        self.shown = values
        if changed:
            self.values |= changed
            self.ready.set()

    def taken(self) -> list[bytes]:
        """What is to be sent now."""
        self.ready.clear()
        parts = []
        if self.values:
            parts.append(b"event: values\ndata: %s\n\n" % _encode(self.values))
            self.values = {}
        if self.rows or self.more or self.reload:
            new = {"rows": self.rows, "more": self.more, "reload": self.reload}
            parts.append(b"event: rows\nid: %d\ndata: %s\n\n" % (self.offset, _encode(new)))
            self.rows, self.more, self.reload = [], 0, False
        return parts


class Live:
    def __init__(self, services: Services, facts: Facts, queues: QueuesPage) -> None:
        self._services = services
        self._store = services.store
        self._records = services.store.records
        self._facts = facts
        self._page = queues
        self._watchers: set[_Watcher] = set()
        self._task: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Handler]:
        return {"follow": self.follow}

    def drain(self) -> None:
        for watcher in self._watchers:
            watcher.ended = True
            watcher.ready.set()

    async def follow(self, call: Call) -> Any:
        """A stream of what changes on a page; or, unless a stream is asked for, its values now."""
        watcher = await self._watcher(call)
        if "text/event-stream" not in call.request.header(b"accept"):
            watcher.set(await self._values(watcher, {}), {})
            return watcher.values
        own = sum(each.key.id == watcher.key.id for each in self._watchers)
        if len(self._watchers) >= STREAMS_MAX or own >= STREAMS_PER_KEY_MAX:
            raise RateLimited("following pages", retry_after_ms=10 * SECOND_MS)
        # Counted from here on: many that are asked for together begin together.
        self._watch(watcher)
        return Response(b"", content_type=STREAM, headers=(*HEADERS, NOT_KEPT),
                        stream=self._stream(watcher))  # fmt: skip

    async def _watcher(self, call: Call) -> _Watcher:
        page = call.request.query.get("page", ["queues"])[-1]
        assert call.key is not None
        reach = call.reach
        if page == "events":
            if call.key.tenant:
                keys.require(call.key, "journal")
            watcher = _Watcher(call.key, call.tenant, (), single=False)
            watcher.filter = asked(call, self._store)
            last = (await self._store.journal.head()).last
            # What the page has, or what it got before its connection was lost.
            query = call.request.query.get("upto", [""])[-1]
            upto = call.request.header(b"last-event-id") or query
            known = upto.isascii() and upto.isdigit() and len(upto) < 19
            watcher.offset = min(last, int(upto)) if known else last
            return watcher
        if page == "queue":
            id = call.request.query.get("queue", [""])[-1]
            queue = self._records.get(Queue, id)
            if queue is None or id not in reach:
                raise Forbidden("queues:read", limited=True)
            if call.key.tenant and queue.tenant != call.key.tenant:
                raise Forbidden("queues:read", limited=True)
            return _Watcher(call.key, queue.tenant, (id,), single=True)
        ids, empty = await self._page.shown(call)
        watcher = _Watcher(call.key, call.tenant, ids, single=False)
        watcher.empty = empty
        return watcher

    async def _stream(self, watcher: _Watcher) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STREAM_S_MAX
        watcher.read = True
        self._watch(watcher)
        try:
            yield b"retry: 2000\n\n"
            while not watcher.ended and loop.time() < until_s:
                try:
                    async with asyncio.timeout(min(15.0, until_s - loop.time())):
                        await watcher.ready.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                for part in watcher.taken():
                    yield part
            yield b"event: gone\ndata: {}\n\n"
        finally:
            self._watchers.discard(watcher)

    def _watch(self, watcher: _Watcher) -> None:
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Until nobody looks any more."""
        while self._watchers:
            try:
                await self._tick()
            except Unavailable as error:  # pages keep what they have
                log.debug("live_values_late", extra={"reason": str(error)})
            except BrokerError as error:
                log.warning("live_values_failed", extra={"reason": str(error)})
            await asyncio.sleep(EVERY_S)

    async def _tick(self) -> None:
        now_ms = self._services.clock.now_ms()
        watchers = [*self._watchers]
        ids = {id for watcher in watchers for id in watcher.queues}
        stats = await self._store.stats([*ids], now_ms=now_ms) if ids else {}
        # Pages of the same queues show the same.
        alike: dict[tuple[str, tuple[str, ...], bool], dict[str, str]] = {}
        known: _Differences = {}
        unread_s = asyncio.get_running_loop().time() - UNREAD_S_MAX
        for watcher in watchers:
            if not watcher.read and watcher.made_s < unread_s:
                self._watchers.discard(watcher)
                continue
            key = self._records.get(Key, watcher.key.id)
            if key is None or not key.enabled:
                watcher.ended = True
                watcher.ready.set()
            elif watcher.filter is not None:
                await self._rows(watcher, watcher.filter)
            else:
                shows = (watcher.tenant, watcher.queues, watcher.single)
                if shows not in alike:
                    alike[shows] = await self._values(watcher, stats)
                watcher.set(alike[shows], known)
            if watcher.empty and self._records.scan(Queue, tenant=watcher.tenant):
                watcher.empty, watcher.reload = False, True
                watcher.ready.set()

    async def _values(self, watcher: _Watcher, stats: dict[str, QueueStats]) -> dict[str, str]:
        now_ms = self._services.clock.now_ms()
        if not stats and watcher.queues:
            stats = await self._store.stats(watcher.queues, now_ms=now_ms)
        values: dict[str, str] = {}
        if not watcher.queues:
            return values
        histories = await self._facts.recent.latest(watcher.tenant, watcher.queues, now_ms)
        for id in watcher.queues:
            held = stats.get(id)
            history = histories.get(id, QUIET)
            if held is not None:
                values |= _texts(held, history, now_ms, "" if watcher.single else f"-{id}")
        return values

    async def _rows(self, watcher: _Watcher, wanted: Filter) -> None:
        """What the journal has since; of very much only how much."""
        last = (await self._store.journal.head()).last
        if last <= watcher.offset:
            return
        low = max(watcher.offset, last - EVENTS_MAX)
        skipped = low - watcher.offset
        found = await read_between(self._store, wanted, low, last + 1, most=EVENTS_MAX)
        watcher.offset = last
        room = max(0, ROWS_MAX - len(watcher.rows))
        watcher.rows += [msgspec.to_builtins(row) for row in found[len(found) - room :] if room]
        watcher.more += len(found) - min(room, len(found)) + skipped
        if watcher.rows or watcher.more:
            watcher.ready.set()


def _texts(held: QueueStats, history: History, now_ms: int, suffix: str) -> dict[str, str]:
    """Element ids of a page, and what stands in them."""
    second = now_ms % MINUTE_MS // SECOND_MS
    row = Row(
        "", "", "queue", held.count - held.leased - held.delayed, held.leased, held.delayed,
        now_ms - held.oldest_ms if held.count and held.oldest_ms else 0,
    )  # fmt: skip
    texts = {
        "waiting": number(row.waiting),
        "leased": number(row.leased),
        "delayed": number(row.delayed),
        "oldest": duration(row.oldest_age_ms) if row.oldest_age_ms else "",
        "in": rate(history.rate("published", second)),
        "out": rate(history.rate("acked", second)),
    }
    if not suffix:
        texts["bytes"] = size(held.bytes)
    return {f"{name}{suffix}": text for name, text in texts.items()}
