"""What one can do to one queue at once: pause, freeze, publish to it, change its settings."""

import base64
import binascii
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from courier.console import Page, Redirect, Services, forms
from courier.console.facts import BEYOND
from courier.console.guard import page_after
from courier.console.past import Past
from courier.console.queue import Problem, QueuePage
from courier.console.spans import duration_ms, duration_text
from courier.core.errors import (
    Frozen,
    InvalidRequest,
    OverLimit,
    RateLimited,
    SchemaBroken,
)
from courier.core.keys import Reach
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Draft, Queue
from courier.web import Call, Handler
from courier.words import duration

# What each of these buttons sets; the opposite one undoes it.
SWITCHES: dict[str, dict[str, Any]] = {
    "pause": {"paused": True}, "resume": {"paused": False},
    "freeze": {"frozen": True}, "unfreeze": {"frozen": False},
}  # fmt: skip
LEASE_MS = (SECOND_MS, 12 * HOUR_MS)
DELAY_MS = (0, 12 * HOUR_MS)
RETENTION_MS = (MINUTE_MS, 14 * DAY_MS)
ATTEMPTS = (1, 1_000)
HEADERS_BYTES_MAX = 64 << 10
GROUP_CHARACTERS_MAX = 128
# Setting -> its words, and what a change of it does to what is there.
WORDS = {
    "lease_ms": ("lease", "running leases keep theirs"),
    "attempts_max": ("attempts", "counts for every message from its next failure on"),
    "retry_delay_ms": ("delay before the next attempt", "counts from the next failure on"),
    "dead_letter": ("dead letters go to", "those that are there stay there"),
    "delay_ms": ("delay of new messages", "messages that are delayed already keep theirs, except "
                 "on FIFO queues"),
    "retention_ms": ("messages are kept for", "holds at once, for messages that are there too"),
}  # fmt: skip


class ShownChange(Struct):
    setting: str
    words: str
    before: str
    after: str
    effect: str


class Difference(Struct):
    """What saving a form would change, and the page to go back to; `meanwhile` if somebody else
    saved first.
    """

    id: str
    name: str
    changes: list[ShownChange]
    filled: dict[str, Any]
    modified_ms: int
    back: str
    meanwhile: bool = False


class Actions:
    def __init__(self, services: Services, page: QueuePage) -> None:
        self._services = services
        self._page = page
        self._past = Past(services)

    def handlers(self) -> dict[str, Handler]:
        return {
            **{f"{verb}_queue": partial(self._switch, verb) for verb in SWITCHES},
            "publish": self.publish,
            "change_settings": self.change_settings,
            "set_back": self.set_back,
        }

    async def _switch(self, verb: str, call: Call) -> Redirect:
        asked: forms.Switch = call.body
        return await self._edit(call, lambda queue: replace(queue, **SWITCHES[verb]), asked.view)

    async def _edit(self, call: Call, edit: Callable[[Queue], Queue], view: str = "") -> Redirect:
        await self._services.admin.update_queue(
            call.tenant, call.queue.id, edit, reach=call.reach, actor=call.actor
        )
        return Redirect(page_after(view, f"/console/queues/{call.queue.id}"))

    # --- publishing ---

    async def publish(self, call: Call) -> Page | Redirect:
        asked: forms.Publish = call.body
        try:
            draft = _draft(asked)
            receipt = await self._services.broker.publish(call.queue, [draft], actor=call.actor)
        except (InvalidRequest, SchemaBroken, Frozen, OverLimit, RateLimited) as error:
            field = error.field if isinstance(error, InvalidRequest) else "body"
            says = error.reason if isinstance(error, InvalidRequest) else str(error)
            problem = Problem("publish", field, says, asdict(asked))
            return await self._page.shown_again(call, problem)
        return Redirect(f"/console/messages/{receipt.ids[0]}?queue={call.queue.id}")

    # --- settings ---

    async def change_settings(self, call: Call) -> Page | Redirect:
        """First the difference; with `confirm` it is saved, unless somebody was faster."""
        asked: forms.Settings = call.body
        queue: Queue = call.queue
        try:
            wanted = self._wanted(call, queue, asked)
        except InvalidRequest as error:
            problem = Problem("settings", error.field, error.reason, _texts(asked))
            return await self._page.shown_again(call, problem)
        meanwhile = asked.modified != queue.modified_ms
        if not asked.confirm or meanwhile:
            changes = self._changes(queue, wanted, call.reach)
            back = page_after(asked.view, f"/console/queues/{queue.id}")
            facts = Difference(
                queue.id, queue.name, changes, _texts(asked), queue.modified_ms, back, meanwhile
            )
            return Page("difference.html", facts, 409 if asked.confirm else 200)
        fields = {name: getattr(wanted, name) for name in WORDS}
        return await self._edit(call, lambda current: replace(current, **fields), asked.view)

    async def set_back(self, call: Call) -> Page:
        """What would undo the change of settings that the event named in the query was."""
        text, queue = call.request.query.get("event", [""])[-1], call.queue
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise InvalidRequest("event", f"'{text[:40]}' is not the offset of an event")
        before = await self._past.settings_before(queue, int(text))
        dead = before.dead_letter and self._services.store.records.get(Queue, before.dead_letter)
        buries_in = (dead.name if dead.id in call.reach else BEYOND) if dead else ""
        asked = forms.Settings(
            duration_text(before.lease_ms),
            "" if before.attempts_max is None else str(before.attempts_max),
            duration_text(before.retry_delay_ms),
            buries_in,
            duration_text(before.delay_ms),
            duration_text(before.retention_ms),
        )
        wanted = self._wanted(call, queue, asked)
        changes = self._changes(queue, wanted, call.reach)
        back = f"/console/queues/{queue.id}"
        facts = Difference(queue.id, queue.name, changes, _texts(asked), queue.modified_ms, back)
        return Page("difference.html", facts)

    def _wanted(self, call: Call, queue: Queue, asked: forms.Settings) -> Queue:
        target = self._target(call, queue, asked.dead_letter.strip())
        return replace(
            queue,
            lease_ms=_within(asked.lease, "lease", *LEASE_MS),
            delay_ms=_within(asked.delay, "delay", *DELAY_MS),
            retry_delay_ms=_within(asked.retry, "retry", *DELAY_MS),
            retention_ms=_within(asked.retention, "retention", *RETENTION_MS),
            attempts_max=_attempts(asked.attempts.strip()),
            dead_letter=target,
        )

    def _target(self, call: Call, queue: Queue, name: str) -> str | None:
        if not name:
            return None
        if name == BEYOND and queue.dead_letter and queue.dead_letter not in call.reach:
            return queue.dead_letter
        found = self._services.store.records.named(Queue, tenant=queue.tenant, name=name)
        if found is None or found.id not in call.reach:
            raise InvalidRequest("dead_letter", f"There is no queue '{name[:80]}'.")
        if found.id == queue.id:
            raise InvalidRequest("dead_letter", "A queue cannot be its own dead-letter queue.")
        if found.fifo != queue.fifo:
            kind = "FIFO" if queue.fifo else "standard"
            raise InvalidRequest("dead_letter", f"'{name[:80]}' must be a {kind} queue too.")
        return found.id

    def _changes(self, queue: Queue, wanted: Queue, reach: Reach) -> list[ShownChange]:
        found = []
        for field, (words, effect) in WORDS.items():
            before, after = getattr(queue, field), getattr(wanted, field)
            if before != after:
                was, will = (self._shown(field, each, reach) for each in (before, after))
                found.append(ShownChange(field, words, was, will, effect))
        return found

    def _shown(self, field: str, value: Any, reach: Reach) -> str:
        if field == "dead_letter":
            queue = self._services.store.records.get(Queue, value) if value else None
            seen = queue.name if queue and queue.id in reach else BEYOND
            return seen if queue else "nowhere: they are dropped"
        if field == "attempts_max":
            return "no limit" if value is None else str(value)
        return duration(value)


def _texts(asked: forms.Settings) -> dict[str, Any]:
    filled = asdict(asked)
    return {name: filled[name] for name in filled if name not in ("confirm", "modified")}


def _within(text: str, field: str, low: int, high: int) -> int:
    """Raises InvalidRequest."""
    found = duration_ms(text, field)
    if not low <= found <= high:
        raise InvalidRequest(
            field, f"'{text[:40]}' is not from {duration(low)} to {duration(high)}."
        )
    return found


def _attempts(text: str) -> int | None:
    if not text:
        return None
    low, high = ATTEMPTS
    if not (text.isascii() and text.isdigit() and len(text) < 6 and low <= int(text) <= high):
        raise InvalidRequest("attempts", f"'{text[:40]}' is not a number from {low} to {high:,}.")
    return int(text)


def _draft(asked: forms.Publish) -> Draft:
    """Raises InvalidRequest that names the field."""
    delay = duration_ms(asked.delay, "delay") if asked.delay.strip() else None
    if delay is not None and delay > DELAY_MS[1]:
        raise InvalidRequest("delay", f"must be at most {duration(DELAY_MS[1])}")
    if len(asked.group) > GROUP_CHARACTERS_MAX:
        raise InvalidRequest("group", f"must have at most {GROUP_CHARACTERS_MAX} characters")
    body = _body(asked)
    kind: Any = asked.kind if asked.kind in ("json", "text", "bytes") else "text"
    return Draft(body, kind, _headers(asked.headers), delay_ms=delay, group=asked.group or None)


def _body(asked: forms.Publish) -> bytes:
    if asked.kind == "bytes":
        try:
            return base64.b64decode(asked.body.encode(), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest("body", "is not base64") from error
    body = asked.body.encode("utf-8", "replace")
    if asked.kind == "json":
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest("body", f"This is not JSON: {error}.") from error
    return body


def _headers(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    if len(text) > HEADERS_BYTES_MAX:
        raise InvalidRequest("headers", f"must have at most {HEADERS_BYTES_MAX} bytes")
    try:
        headers = msgspec.json.decode(text.encode("utf-8", "replace"), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest("headers", f"This is not a JSON object: {error}.") from error
    return headers or None
