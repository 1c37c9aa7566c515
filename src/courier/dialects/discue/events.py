"""Events of the last day, and how many there were of each type."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from courier import ids
from courier.core import journal
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, Listener, Run, Tally
from courier.delivery.requests import delivery_id
from courier.dialects.discue import names
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.site import InvalidQuery, choice, number
from courier.web import Call, Parameter, Request, Route

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
# Events, of all tenants, looked at for one answer; the next request resumes from there.
LOOKED_MAX = 200_000
STEP = 500
STEP_BYTES_MAX = 4 << 20

Family = Literal["api_keys", "listeners", "messages", "queues"]
Type = Literal[
    "api_key_added",
    "api_key_updated",
    "api_key_deleted",
    "queue_added",
    "queue_updated",
    "queue_deleted",
    "listener_added",
    "listener_updated",
    "listener_deleted",
    "message_added",
    "message_published_ok",
    "message_published_not_ok",
]
# Kind in the journal -> what Discue calls it, and which family it belongs to.
TYPES: dict[str, tuple[Type, Family]] = {
    "key_created": ("api_key_added", "api_keys"),
    "key_updated": ("api_key_updated", "api_keys"),
    "key_deleted": ("api_key_deleted", "api_keys"),
    "queue_created": ("queue_added", "queues"),
    "queue_updated": ("queue_updated", "queues"),
    "queue_deleted": ("queue_deleted", "queues"),
    "listener_created": ("listener_added", "listeners"),
    "listener_updated": ("listener_updated", "listeners"),
    "listener_deleted": ("listener_deleted", "listeners"),
    "published": ("message_added", "messages"),
    "pushed": ("message_published_ok", "messages"),
    "push_failed": ("message_published_not_ok", "messages"),
}
_FAMILIES = ("all", "api_keys", "listeners", "messages", "queues")
_ID = re.compile(r"evt([0-9]{18})", re.ASCII)


class Thing(Struct):
    """What an event is about; the name where it is known."""

    id: str
    name: str | UnsetType = UNSET


class Event(Struct):
    id: str
    type: Type
    stored_at: int
    client: Thing
    api_key: Thing | UnsetType = UNSET
    queue: Thing | UnsetType = UNSET
    listener: Thing | UnsetType = UNSET
    message: Thing | UnsetType = UNSET
    delivery_id: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    status: int | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    answer: str | UnsetType = UNSET


class EventsAnswer(Struct):
    events: list[Event]


class StatsAnswer(Struct):
    aggregated_api_usage_events: dict[
        Literal["last_24_hours", "last_1_hours", "today_so_far"], dict[Type, int]
    ]


class EventsAsked(Struct, frozen=True):
    """What a request wants to see: journal kinds, how many events, after which offset."""

    family: str
    kinds: frozenset[str]
    limit: int
    after: int


class EventRoutes(DiscueFamily):
    family = "events"

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/events", self.list_events, "events:read", "listed",
                  "List what happened in the last 24 hours", result=EventsAnswer, query=(
                      Parameter("events", Literal["all", "api_keys", "listeners", "messages",
                                                  "queues"], "Only those about these."),
                      Parameter("limit", int, "How many: 100 unless told, 1,000 at most."),
                      Parameter("startAfter", int, "`stored_at` of the last event seen."),
                      Parameter("startAfterId", str, "`id` of the last event seen."),
                  )),
            Route("GET", "/stats/messages", self.message_stats, "usage:read", "listed",
                  "Count what happened", result=StatsAnswer, family="stats"),
        ]  # fmt: skip

    async def list_events(self, call: Call) -> Success:
        """Oldest first. A link leads on when there is more, or more to look through."""
        asked = _asked(call.request)
        within = call.reach
        day_ago_ms = self._clock.now_ms() - DAY_MS
        after = max(asked.after, await self._reads.journal.offset_at(day_ago_ms))
        end = after + LOOKED_MAX
        found: list[Event] = []
        last: tuple[int, int] | None = None
        while len(found) < asked.limit and after < end:
            runs = await self._reads.journal.read(after=after, limit=STEP, bytes_max=STEP_BYTES_MAX)
            if not runs:
                last = None
                break
            for run, start, stop in journal.cut(runs, after=after, limit=STEP):
                mine = run.tenant == call.tenant and run.kind in asked.kinds
                if mine and run.queue in within:
                    stop = min(stop, start + asked.limit - len(found))
                    found += self._events(run, start, stop)
                after = run.offset + stop - 1
                last = after, run.at_ms
                if len(found) == asked.limit:
                    break
        links = [] if last is None else [("next", "next", _path(asked, *last))]
        return Success({"events": found}, "/events", links)

    def _events(self, run: Run, start: int, stop: int) -> list[Event]:
        events = [
            Event(
                id=_id(run.offset + i),
                type=TYPES[run.kind][0],
                stored_at=run.at_ms,
                client=Thing(names.shown(run.tenant)),
            )
            for i in range(start, stop)
        ]
        if run.queue:
            for event in events:
                event.queue = Thing(names.shown(run.queue), run.queue_name)
        messages: list[str] = []
        if "seq" in run.columns:
            messages = _tell_of_messages(events, run, start, stop)
        details = journal.column(run, "detail")[start:stop]
        for i, (event, detail) in enumerate(zip(events, details, strict=True)):
            if run.kind in ("pushed", "push_failed"):
                self._tell_of_push(event, detail, messages[i])
            elif run.kind.startswith("key_"):
                event.api_key = Thing(names.shown(detail["id"]), detail["name"])
            elif run.kind.startswith("listener_"):
                event.listener = Thing(names.shown(detail["id"]), detail["title"])
                event.queue = event.queue or Thing(names.shown(detail["parent"]))
        return events

    def _tell_of_push(self, event: Event, detail: dict[str, Any], message: str) -> None:
        assert event.attempt is not UNSET
        listener = self._records.get(Listener, detail["listener"])
        name = listener.title if listener else UNSET
        event.listener = Thing(names.shown(detail["listener"]), name)
        made = delivery_id(detail["listener"], message, event.attempt)
        event.delivery_id = names.shown(made)
        event.status = detail["status"]
        event.duration_ms = detail["duration_ms"]
        event.error = detail.get("error") or UNSET
        event.answer = detail.get("answer") or UNSET

    async def message_stats(self, call: Call) -> Success:
        now_ms = self._clock.now_ms()
        within = call.reach
        tallies = [
            tally
            for tally in await self._reads.past.tallies(
                tenant=call.tenant, since_ms=now_ms - DAY_MS, until_ms=now_ms + 1
            )
            if tally.id in within
        ]
        blocks = {
            "last_24_hours": _counts(tallies, now_ms - DAY_MS),
            "last_1_hours": _counts(tallies, now_ms - HOUR_MS),
            "today_so_far": _counts(tallies, now_ms - now_ms % DAY_MS),
        }
        return Success({"aggregated_api_usage_events": blocks}, "/stats/messages")


def _tell_of_messages(events: list[Event], run: Run, start: int, stop: int) -> list[str]:
    """Under their generated ids, which all messages have, whatever their publishers call them."""
    columns = (journal.column(run, name)[start:stop] for name in ("published_ms", "seq"))
    found = ids.message_ids(zip(*columns, strict=True), queue=run.queue)
    headers = journal.column(run, "headers")[start:stop]
    attempts = journal.column(run, "attempt")[start:stop]
    rows = zip(events, found, headers, attempts, strict=True)
    for event, id, given, attempt in rows:
        name = (given or {}).get(NAME_HEADER)
        event.message = Thing(names.shown(id), name if isinstance(name, str) else UNSET)
        if attempt is not None:
            event.attempt = attempt
    return found


def _counts(tallies: Sequence[Tally], since_ms: int) -> dict[Type, int]:
    """To the minute: the whole of that in which it began counts."""
    counts: dict[Type, int] = {type: 0 for type, _ in TYPES.values()}
    for tally in tallies:
        if tally.kind in TYPES and (tally.minute + 1) * MINUTE_MS > since_ms:
            counts[TYPES[tally.kind][0]] += tally.count
    return counts


def _asked(request: Request) -> EventsAsked:
    query = request.query
    family = choice(request, "events", _FAMILIES)
    limit = number(request, "limit", default=LIMIT_DEFAULT, low=1, high=10**18)
    after = 0
    # One without the other means nothing.
    if "startAfter" in query and "startAfterId" in query:
        number(request, "startAfter", default=0, high=10**18)
        id = _ID.fullmatch(query["startAfterId"][-1])
        if id is None:
            raise InvalidQuery("startAfterId", "must be the id of an event")
        after = int(id[1])
    kinds = frozenset(kind for kind, (_, each) in TYPES.items() if family in ("all", each))
    return EventsAsked(family, kinds, min(limit, LIMIT_MAX), after)


def _id(offset: int) -> str:
    """21 characters that sort as the events do."""
    return f"evt{offset:018d}"


def _path(asked: EventsAsked, after: int, at_ms: int) -> str:
    cursor = f"startAfter={at_ms}&startAfterId={_id(after)}"
    return f"/events?events={asked.family}&limit={asked.limit}&{cursor}"
