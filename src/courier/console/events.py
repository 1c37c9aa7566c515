"""The journal as a page: newest first, filtered, and followed as it grows."""

import base64
import time
from typing import Any

import msgspec
from msgspec import Struct

from courier.console import Page, Services, operates
from courier.console.reading import PAGE_EVENTS, pages
from courier.console.spans import moment_ms
from courier.core import journal
from courier.core.slices import Slices
from courier.core.store import StoreReads
from courier.core.types import MINUTE_MS, OPERATOR, Key, Listener, Run
from courier.web import Call, Handler
from courier.words import preview

ROWS = 100
# Where most events are wanted, this many are enough for a page.
FIRST_EVENTS = 150
# One answer looks at this many events, or for this long, and says how far it has come.
LOOKED_MAX = 50_000
LOOKED_S_MAX = 0.5
TEXT_CHARACTERS_MAX = 200
# Settings that the form of a queue has.
SETTABLE = frozenset(
    ("lease_ms", "attempts_max", "retry_delay_ms", "dead_letter", "delay_ms", "retention_ms")
)
_encode = msgspec.json.Encoder(order="deterministic").encode


class Filter(Struct, frozen=True):
    """Which events: of one tenant ("": of all), and what they are about. "" is any, and so is None
    of `actors`: ids of keys and listeners.
    """

    tenant: str = ""
    queue: str = ""
    kind: str = ""
    actors: frozenset[str] | None = None
    dialect: str = ""
    q: str = ""
    since_ms: int = 0
    until_ms: int = 1 << 62

    def takes_run(self, run: Run) -> bool:
        return (
            (not self.tenant or run.tenant == self.tenant)
            and (not self.queue or self.queue in (run.queue, run.queue_name))
            and (not self.kind or run.kind == self.kind)
            and (self.actors is None or run.actor in self.actors)
            and (not self.dialect or run.dialect == self.dialect)
            and self.since_ms <= run.at_ms < self.until_ms
        )


class EventRow(Struct):
    """`back`: it changed settings that can be set back."""

    offset: int
    at_ms: int
    kind: str
    queue: str
    queue_name: str
    message: str
    actor: str
    actor_name: str
    dialect: str
    says: str
    json: str
    back: bool = False


class EventsFacts(Struct):
    """`before` is where older ones go on, 0 at the end of what is kept; `upto` the newest seen."""

    rows: list[EventRow]
    before: int
    first: int
    last: int
    upto: int
    looked: int
    kinds: list[str]
    queue: str = ""
    kind: str = ""
    actor: str = ""
    dialect: str = ""
    q: str = ""
    since: str = ""
    until: str = ""


class EventsPage:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    def handlers(self) -> dict[str, Handler]:
        return {"show_events": self.show_events}

    async def show_events(self, call: Call) -> Page:
        query = {name: values[-1] for name, values in call.request.query.items()}
        wanted = asked(call, self._store)
        head = await self._store.journal.head()
        text = query.get("before", "")
        before = (
            int(text) if text.isascii() and text.isdigit() and len(text) < 19 else head.last + 1
        )
        before = min(before, head.last + 1)
        if wanted.until_ms < 1 << 62:
            before = min(before, await self._store.journal.offset_at(wanted.until_ms) + 1)
        rows, older, looked = await self._read(wanted, before, head.first)
        given = {name: query.get(name, "")[:TEXT_CHARACTERS_MAX] for name in
                 ("queue", "kind", "actor", "dialect", "q", "since", "until")}  # fmt: skip
        kinds = sorted(journal.KINDS)
        facts = EventsFacts(rows, older, head.first, head.last, before - 1, looked, kinds, **given)
        return Page("events.html", facts)

    async def _read(
        self, wanted: Filter, before: int, first: int
    ) -> tuple[list[EventRow], int, int]:
        """Rows from before an offset, where older ones go on (0: nowhere), how many were read."""
        rows: list[EventRow] = []
        looked = 0
        until_s = time.perf_counter() + LOOKED_S_MAX
        width = FIRST_EVENTS
        while before > first:
            low = max(first - 1, before - 1 - width)
            width = min(PAGE_EVENTS, 4 * width)
            found = await read_between(self._store, wanted, low, before)
            for row in found[::-1]:
                rows.append(row)
                if len(rows) == ROWS:
                    return rows, row.offset, looked + before - row.offset
            looked += before - 1 - low
            before = low + 1
            if rows and wanted.since_ms and rows[-1].at_ms < wanted.since_ms:
                break
            if looked >= LOOKED_MAX or time.perf_counter() > until_s:
                return rows, before, looked
        return rows, 0, looked


async def read_between(
    store: StoreReads, wanted: Filter, low: int, high: int, most: int = PAGE_EVENTS
) -> list[EventRow]:
    """The events with offsets between two that are wanted, oldest first."""
    rows: list[EventRow] = []
    slices = Slices()
    async for page in pages(store, low, high - 1):
        for run, start, stop in page:
            if wanted.takes_run(run):
                begin = run.offset + start - 1
                for event in journal.events([run], after=begin, limit=stop - start):
                    await slices.turn()
                    row = _row(store, event)
                    if not wanted.q or wanted.q in row.json:
                        rows.append(row)
        if len(rows) >= most:
            break
    return rows


def asked(call: Call, store: StoreReads) -> Filter:
    """The filter that the address names. Raises InvalidRequest."""
    query = {name: values[-1] for name, values in call.request.query.items()}
    assert call.key is not None
    everything = call.key.tenant == OPERATOR and "tenant" not in query
    tenant = "" if everything else call.tenant
    if not operates(call.key) and call.key.tenant != OPERATOR:
        tenant = call.key.tenant
    return Filter(
        tenant,
        query.get("queue", ""),
        query.get("kind", ""),
        _actors(store, query["actor"]) if query.get("actor") else None,
        query.get("dialect", ""),
        query.get("q", "")[:TEXT_CHARACTERS_MAX],
        moment_ms(query["since"], "since") if query.get("since") else 0,
        min(
            moment_ms(query["until"], "until") if query.get("until") else 1 << 62,
            moment_ms(query["at"], "at") // MINUTE_MS * MINUTE_MS if query.get("at") else 1 << 62,
        ),
    )


def _actors(store: StoreReads, given: str) -> frozenset[str]:
    """Ids of the keys and listeners that are called so, and what was given itself."""
    keys = [each.id for each in store.records.scan(Key) if each.name == given]
    listeners = [each.id for each in store.records.scan(Listener) if each.title == given]
    return frozenset((given, *keys, *listeners))


def name_of(store: StoreReads, actor: str) -> str:
    """Of the key or listener that did something, "" if it is gone."""
    key = store.records.get(Key, actor) if actor else None
    if key is not None:
        return key.name
    listener = store.records.get(Listener, actor) if actor else None
    return listener.title if listener else ""


def _row(store: StoreReads, event: dict[str, Any]) -> EventRow:
    body = event.pop("body", None)
    if body is not None:
        plain = event.get("content_type") != "bytes" and "sealed" not in event
        event["body"] = preview(body) if plain else base64.b64encode(body[:90]).decode()
    return EventRow(
        event["offset"],
        event["at_ms"],
        event["kind"],
        event["queue"],
        event["queue_name"],
        str(event.get("message_id", "")),
        event["actor"],
        name_of(store, event["actor"]),
        event["dialect"],
        says(event),
        _encode(event).decode(),
        event["kind"] == "queue_updated" and not SETTABLE.isdisjoint(_changed(event)),
    )


def _changed(event: dict[str, Any]) -> list[str]:
    found: list[str] = (event.get("detail") or {}).get("changed", [])
    return found


def says(event: dict[str, Any]) -> str:
    """The rest of an event in a few words."""
    detail = event.get("detail") or {}
    parts = []
    if event.get("attempt"):
        parts.append(f"attempt {event['attempt']}")
    if "changed" in detail:
        changed = [str(each) for each in detail["changed"] if each != "modified_ms"]
        words = [each.removesuffix("_ms").replace("_", " ") for each in changed]
        parts.append("changed " + ", ".join(words))
    elif not event.get("message_id") and (detail.get("title") or detail.get("name")):
        parts.append(str(detail.get("title") or detail["name"]))
    for name in ("status", "error", "reason", "count"):
        if detail.get(name):
            parts.append(f"{name} {detail[name]}")
    return ", ".join(parts)
