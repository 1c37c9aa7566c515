"""One message: its life, why it is late, what is in it. Also how to find one."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from courier import ids
from courier.console import Page, Redirect, Services, life, wants_json
from courier.console.consumers import Consumers
from courier.console.facts import BEYOND, Facts, Known, answered
from courier.console.guard import HEADERS, NOT_KEPT
from courier.console.lake import LakePages
from courier.console.life import Step, folded
from courier.console.past import Past
from courier.console.queue import may
from courier.console.shell import message_lines
from courier.console.troubles import LifeTrimmed, nearest
from courier.console.why import (
    BEFORE_MAX,
    Owed,
    UsualWork,
    Waiting,
    is_over,
    note_work,
    where_it_went,
    why_late,
)
from courier.core.errors import NotFound, Rejected
from courier.core.types import MINUTE_MS, SECOND_MS, Consumer, Message, Queue
from courier.web import Call, Handler, Response
from courier.words import clock, duration

# What of a body a page shows; all of it can be downloaded.
SHOWN_BYTES_MAX = 64 << 10
HEX_BYTES_MAX = 4 << 10
FIND_CHARACTERS_MAX = 300
FOUND_MAX = 50
# Queues in which a publisher's own id is looked for.
ASKED_QUEUES_MAX = 500
STREAM = b"application/octet-stream"
# Why a message is copied to another queue as a dead letter.
BURIALS = ("attempts", "push")
FORMS = ("pretty", "raw", "hex")


class Body(Struct):
    """What is shown of it; `cut` if there is more. `form` is how: pretty, raw or hex."""

    text: str
    form: str
    cut: bool
    content_type: str
    size: int
    sealed: bool


class MessageFacts(Struct):
    id: str
    queue: str
    queue_name: str
    found: bool
    published_ms: int | None
    expires_ms: int | None
    attempts: int
    size: int
    group: str
    why: str
    earlier: str
    over: bool
    took: str
    life: life.Life
    body: Body | None
    headers: dict[str, Any]
    readable: bool
    own_id: bool
    seq: int = 0
    buried: bool = False
    shell: list[tuple[str, str]] = []

    @property
    def steps(self) -> list[list[Step]]:
        return folded(self.life.steps)

    @property
    def first(self) -> Step | None:
        """Its own publication: a copy has that of its origin in its life as well."""
        for step in self.life.steps:
            if step.kind == "published" and (step.queue, step.message) == (self.queue, self.id):
                return step
        return None


class Found(Struct):
    """What was found, as (words, path); and what was looked through."""

    q: str
    hits: list[tuple[str, str]]
    looked: str
    near: list[tuple[str, str]] = []


class MessagePage:
    def __init__(self, services: Services, facts: Facts, lake: LakePages) -> None:
        self._services = services
        self._lake = lake
        self._store = services.store
        self._records = services.store.records
        self._facts = facts
        self._past = Past(services)
        self._consumers = Consumers(services.store, lake)

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_message": self.show_message,
            "send_body": self.send_body,
            "find": self.find,
        }

    async def show_message(self, call: Call) -> Page:
        now_ms = self._services.clock.now_ms()
        at_ms = self._past.at(call)
        queue: Queue = call.queue
        id = call.params["message"]
        message = await self._store.messages.find(queue.id, id, now_ms=now_ms)
        readable = may(call.key, "messages:read", queue.id)
        lived = await self._life(call, queue, id, message)
        if at_ms:
            lived.steps = [step for step in lived.steps if step.at_ms < at_ms]
        if message is None and not lived.steps:
            raise await self._missing(queue, id, now_ms)
        over = message is None and is_over(lived.steps)
        usual = await self._usual(lived.steps)
        note_work(lived.steps, usual)
        why = earlier = ""
        if message is not None and not at_ms:
            waiting = await self._waiting(call, queue, message, now_ms)
            why, earlier = why_late(waiting, lived.steps, now_ms, usual), waiting.group_before
        form = call.request.query.get("body", ["pretty"])[-1]
        body = self._body(queue, message, form if form in FORMS else "pretty") if readable else None
        published = message.published_ms if message else ids.message_ms(id)
        shown = Page(
            "message.html",
            MessageFacts(
                id=id,
                queue=queue.id,
                queue_name=queue.name,
                found=message is not None,
                published_ms=published,
                expires_ms=_expires(queue, message),
                attempts=message.attempts if message else 0,
                size=message.size if message else 0,
                group=(message.group or "") if message else "",
                why=why,
                over=over,
                earlier=earlier,
                took=where_it_went(lived.steps, lived.switches, usual) if over else "",
                life=lived,
                body=body,
                headers=(message.headers or {}) if message and readable else {},
                readable=readable,
                own_id=ids.message_seq(id, queue=queue.id) is None,
                seq=message.seq if message else 0,
                buried=bool(message and self._buried(call, message)),
                shell=message_lines(
                    self._services.url,
                    id,
                    queue.id,
                    queue.name,
                    self._services.other_tenant(queue.tenant),
                ),
            ),
        )
        return shown

    async def _life(self, call: Call, queue: Queue, id: str, message: Message | None) -> life.Life:
        """Its events on queues within reach: from the journal, else from the lake."""
        at_ms = message.published_ms if message else None
        begun = await life.begin(self._store, queue.id, id, at_ms)
        within = self._within(call)
        lived = life.Life([], 0, 0, True)
        if begun is not None:
            lived = await life.read(self._store, *begun, tenant=queue.tenant, within=within)
        if not lived.steps:
            rows = await self._lake.lived(queue.id, id, life.STEPS_MAX)
            if rows:
                return life.of_lake(self._store, rows, queue.id, id, within=within)
        return lived

    async def _missing(self, queue: Queue, id: str, now_ms: int) -> Rejected:
        """Why nothing is known of it: it never was, or its events are no longer kept."""
        seq, published_ms = ids.message_seq(id, queue=queue.id), ids.message_ms(id)
        if seq is None or published_ms is None:
            return NotFound("message", id)
        head = await self._store.journal.head()
        first = await self._store.journal.read(after=head.first - 1, limit=1)
        began_ms = first[0].at_ms if first else now_ms
        if published_ms >= began_ms or seq > await self._store.messages.tail(queue.id):
            return NotFound("message", id)
        return LifeTrimmed(id, began_ms)

    async def _usual(self, steps: list[Step]) -> UsualWork:
        """How long work takes, where a lease ended unanswered or still runs."""
        asked = [step for step in steps if step.kind == "lease_expired"]
        asked = asked or [step for step in steps[-1:] if step.kind in ("leased", "extended")]
        if not asked:
            return UsualWork()
        step = asked[-1]
        usual_ms = await self._consumers.usual_work_ms(step.queue, step.offset)
        queue = self._records.get(Queue, step.queue)
        if usual_ms is None or queue is None or usual_ms <= queue.lease_ms:
            return UsualWork(usual_ms)
        changed = (await self._past.changes(queue)).get("lease_ms")
        if changed is None or changed.at_ms > step.at_ms:
            return UsualWork(usual_ms)
        before = await self._past.settings_before(queue, changed.offset)
        since, now_ms = changed.at_ms, self._services.clock.now_ms()
        lease, was = duration(queue.lease_ms), duration(before.lease_ms)
        return UsualWork(usual_ms, f"{lease} since {clock(since, now_ms)}; before, {was}")

    def _within(self, call: Call) -> Callable[[str], bool]:
        reach = call.reach
        return lambda queue: queue in reach

    async def _waiting(self, call: Call, queue: Queue, message: Message, now_ms: int) -> Waiting:
        known = await self._facts.of_queue(queue, call.reach, now_ms)
        history, second = known.history, now_ms % MINUTE_MS // SECOND_MS
        earlier = await self._store.messages.browse(
            queue.id, after_seq=0, limit=BEFORE_MAX, now_ms=now_ms, bodies=False
        )
        before = [each for each in earlier if each.seq < message.seq]
        of_group = [each.id for each in before if each.group == message.group]
        leased_lately = any(sums.leased for sums in history.minutes)
        told = may(call.key, "listeners:read", queue.id)
        owed = await self._owed(queue, message, known, now_ms) if told else ()
        return Waiting(
            paused=queue.paused,
            before=len(before),
            group_before=of_group[0] if queue.fifo and of_group else "",
            out_rate=history.rate("acked", second),
            leased_lately=leased_lately,
            expires_ms=_expires(queue, message),
            owed=owed,
            consumed=leased_lately or bool(self._records.scan(Consumer, parent=queue.id)),
            buried=self._buried(call, message),
        )

    def _buried(self, call: Call, message: Message) -> str:
        """The name of the queue whose dead letter it is, "" if it is none."""
        origin = message.origin
        if origin is None or origin.reason not in BURIALS:
            return ""
        queue = self._records.get(Queue, origin.queue)
        return queue.name if queue and queue.id in call.reach else BEYOND

    async def _owed(
        self, queue: Queue, message: Message, known: Known, now_ms: int
    ) -> tuple[Owed, ...]:
        """Listeners that have not taken the message."""
        listeners = {each.id: each for each in known.listeners}
        pushes = await self._store.pushes.of_message(queue.id, message.seq, now_ms=now_ms)
        return tuple(
            Owed(
                to.title,
                push.attempts,
                answered(push.report) if push.report else to.last_failure,
                push.due_ms or 0,
                push.status == "exhausted",
                "disabled" if to.disabled_by else "inactive" if to.state == "inactive" else "",
            )
            for push in pushes
            if push.status in ("pending", "retrying", "exhausted")
            and (to := listeners.get(push.listener))
        )

    def _body(self, queue: Queue, message: Message | None, form: str) -> Body | None:
        if message is None:
            return None
        raw = self._services.broker.opened(queue, message).body
        text = shown_body(raw, form, message.content_type)
        most = HEX_BYTES_MAX if form == "hex" else SHOWN_BYTES_MAX
        return Body(
            text, form, len(raw) > most, message.content_type, len(raw), message.sealed is not None
        )

    async def send_body(self, call: Call) -> Response:
        """All of the body, as a download that no browser shows."""
        now_ms = self._services.clock.now_ms()
        message = await self._store.messages.find(
            call.queue.id, call.params["message"], now_ms=now_ms
        )
        if message is None:
            raise NotFound("message", call.params["message"])
        call.admit(message.size)
        body = self._services.broker.opened(call.queue, message).body
        made = ids.message_id(
            published_ms=message.published_ms, seq=message.seq, queue=call.queue.id
        )
        name = (b"content-disposition", b'attachment; filename="message-%s"' % made.encode())
        return Response(body, content_type=STREAM, headers=(*HEADERS, NOT_KEPT, name))

    # --- finding ---

    async def find(self, call: Call) -> Page | Redirect:
        q = call.request.query.get("q", [""])[-1].strip()[:FIND_CHARACTERS_MAX]
        reach = call.reach
        queues = [
            each for each in self._records.scan(Queue, tenant=call.tenant) if each.id in reach
        ]
        if q.startswith("#"):
            return await self._offset(call, q)
        hits = await self._messages(q, queues) if q else []
        paths = [(each.name, f"/console/queues/{each.id}") for each in queues]
        if not hits and q:
            hits = [(name, path) for name, path in paths
                    if q.lower() in name.lower() or path.endswith(f"/{q}")]  # fmt: skip
        exact = [path for words, path in hits if words == q]
        if not wants_json(call.request) and (len(hits) == 1 or len(exact) == 1):
            return Redirect((exact or [path for _, path in hits])[0])
        asked = min(len(queues), ASKED_QUEUES_MAX)
        looked = (
            f"Looked through the names of {len(queues):,} queues and, for a message of this id, "
            f"through {asked:,} queues. A message that is done has left its queue: open it by "
            "its generated id."
        )
        near = nearest(q, paths) if q and not hits else []
        return Page("found.html", Found(q, hits[:FOUND_MAX], looked, near))

    async def _offset(self, call: Call, q: str) -> Page | Redirect:
        """The journal from the event with that offset on, older ones below it."""
        text = q[1:].replace(",", "").strip()
        if not may(call.key, "journal", ""):
            return Page("found.html", Found(q, [], "Offsets need the scope journal."))
        head = await self._store.journal.head()
        looked = f"The journal has the offsets #{head.first:,} to #{head.last:,}."
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            return Page("found.html", Found(q, [], looked))
        offset = int(text)
        if not head.first <= offset <= head.last:
            return Page("found.html", Found(q, [], looked))
        tenant = call.request.query.get("tenant", [""])[-1]
        query = urlencode({"before": offset + 1, **({"tenant": tenant} if tenant else {})})
        return Redirect(f"/console/events?{query}")

    async def _messages(self, q: str, queues: list[Queue]) -> list[tuple[str, str]]:
        """Messages of that id, in any of its spellings."""
        now_ms = self._services.clock.now_ms()
        hits = []
        for id in {q, self._services.spelled(q)} - {""}:
            mark = ids.message_mark(id)
            for queue in queues if mark is not None else ():
                if ids.mark(queue.id) == mark:
                    hits.append((id, f"/console/messages/{id}?queue={queue.id}"))
        if hits:
            return hits
        for queue in queues[:ASKED_QUEUES_MAX]:
            found = await self._store.messages.find(queue.id, q, now_ms=now_ms)
            if found is not None:
                made = ids.message_id(
                    published_ms=found.published_ms, seq=found.seq, queue=queue.id
                )
                hits.append((f"{q} on {queue.name}", f"/console/messages/{made}?queue={queue.id}"))
        return hits


def _expires(queue: Queue, message: Message | None) -> int | None:
    if message is None:
        return None
    return message.expires_ms or message.published_ms + queue.retention_ms


def shown_body(raw: bytes, form: str, content_type: str) -> str:
    """The beginning of a body as text: nothing in it is markup, or moves what is around it."""
    if form == "hex":
        return "\n".join(_hex_line(raw[:HEX_BYTES_MAX], place)
                         for place in range(0, min(len(raw), HEX_BYTES_MAX), 16))  # fmt: skip
    if form == "pretty" and len(raw) <= SHOWN_BYTES_MAX:
        try:
            return json.dumps(json.loads(raw), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return raw[:SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")


def _hex_line(raw: bytes, place: int) -> str:
    part = raw[place : place + 16]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{place:08x}  {part.hex(' '):47}  {text}"
