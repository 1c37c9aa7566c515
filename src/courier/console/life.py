"""A message's life, read from the journal: across burial, redrive and replay."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.console import reading
from courier.console.events import name_of
from courier.console.facts import BEYOND
from courier.core import journal
from courier.core.store import StoreReads
from courier.core.types import Listener, Queue, Run

# How much of the journal is looked through for one message, and how long.
EVENTS_MAX = 2_000_000
LOOKED_S_MAX = 1.5
# Events of one moment among which a message's publication is looked for.
ORIGIN_EVENTS_MAX = 20_000
STEPS_MAX = 500
# Pauses and their ends during one life.
SWITCHES_MAX = 500
# Copies of copies, both ways.
COPIES_MAX = 20
_ENDS = ("acked", "buried", "expired", "purged", "deleted")


class Step(Struct):
    """One event. `wait_ms` is the time since the one before on the same message; of a lease,
    `before` counts those that were made of other messages of the queue meanwhile. `hint` is what
    else is known that explains it. `moved`: the one before is on another message."""

    offset: int
    at_ms: int
    kind: str
    queue: str
    queue_name: str
    message: str
    actor: str = ""
    actor_name: str = ""
    dialect: str = ""
    attempt: int = 0
    lease_ms: int = 0
    delay_ms: int = 0
    wait_ms: int = 0
    before: int = 0
    listener: str = ""
    status: int = 0
    duration_ms: int = 0
    error: str = ""
    answer: str = ""
    into: str = ""
    reason: str = ""
    hint: str = ""
    moved: bool = False


class Life(Struct):
    """`upto` is the last offset that was looked at; `whole` unless a limit ended the search.

    `hidden` counts events on queues that the key does not reach. `archived`: the events come from
    the lake, and are those of one message without its copies. `switches` are the times at which the
    queue that it began on was paused (True) and resumed.
    """

    steps: list[Step]
    first: int
    upto: int
    whole: bool
    hidden: int = 0
    archived: bool = False
    switches: list[tuple[int, bool]] = []


class _Watched:
    """The messages that belong together, and which of them are over."""

    def __init__(self, queue: str, message: str) -> None:
        self.messages: set[tuple[str, str]] = set()
        self.open: set[tuple[str, str]] = set()
        self._seqs: dict[tuple[str, int], str] = {}
        self._queues: set[str] = set()
        # Leases made on each queue, and how many there were at the last event of each message.
        self._leased: dict[str, int] = {}
        self._passed: dict[tuple[str, str], int] = {}
        self._home = queue
        self.switches: list[tuple[int, bool]] = []
        self._add(queue, message, ids.message_seq(message, queue=queue))

    def _add(self, queue: str, message: str, seq: int | None) -> None:
        self.messages.add((queue, message))
        self.open.add((queue, message))
        self._queues.add(queue)
        if seq is not None:
            self._seqs[queue, seq] = message

    def take(self, run: Run, start: int, stop: int) -> list[Step]:
        """The steps of one run that are about one of them."""
        if run.kind == "queue_updated" and run.queue == self._home:
            self._look_for_pauses(run, start, stop)
        if run.kind not in journal.MESSAGE_KINDS:
            return []
        if run.kind == "published":
            self._look_for_copies(run, start, stop)
        if run.queue not in self._queues:
            return []
        steps = []
        leased = self._leased.get(run.queue, 0)
        seqs = journal.column(run, "seq")
        for place in range(start, stop):
            id = self._seqs.get((run.queue, seqs[place]), "")
            if id:
                steps.append(step := _step(run, place, id))
                key = run.queue, id
                made = leased + (place - start if run.kind == "leased" else 0)
                if run.kind == "leased":
                    step.before = made - self._passed.get(key, made)
                    made += 1
                self._passed[key] = made
                if run.kind in _ENDS:
                    self.open.discard(key)
        if run.kind == "leased":
            self._leased[run.queue] = leased + stop - start
        return steps

    def _look_for_pauses(self, run: Run, start: int, stop: int) -> None:
        for detail in journal.column(run, "detail")[start:stop]:
            told = isinstance(detail, dict) and "paused" in detail.get("changed", ())
            if told and len(self.switches) < SWITCHES_MAX:
                self.switches.append((run.at_ms, bool(detail.get("paused"))))

    def _look_for_copies(self, run: Run, start: int, stop: int) -> None:
        """Watch what is a copy of one of them, or has the id that a publisher chose for it."""
        own, details = run.columns.get("own_id"), run.columns.get("detail")
        if own is None and details is None:
            return
        names = journal.column(run, "own_id")
        copied = journal.column(run, "detail")
        seqs = journal.column(run, "seq")
        for place in range(start, stop):
            known = (run.queue, names[place]) in self.messages
            if known or (self._copied(copied[place]) and len(self.messages) < COPIES_MAX):
                self._add(run.queue, names[place] or _made_id(run, place), seqs[place])

    def _copied(self, detail: Any) -> bool:
        return (
            isinstance(detail, dict)
            and (detail.get("queue", ""), detail.get("message", "")) in self.messages
        )


def _made_id(run: Run, place: int) -> str:
    published_ms = journal.column(run, "published_ms")[place]
    seq = journal.column(run, "seq")[place]
    return ids.message_id(published_ms=published_ms, seq=seq, queue=run.queue)


def _step(run: Run, place: int, message: str) -> Step:
    def value(name: str) -> Any:
        found = run.columns.get(name)
        return found[place] if isinstance(found, list) else found

    made = Step(
        run.offset + place, run.at_ms, run.kind, run.queue, run.queue_name, message, run.actor,
        dialect=run.dialect, attempt=value("attempt") or 0, lease_ms=value("lease_ms") or 0,
        delay_ms=value("delay_ms") or 0,
    )  # fmt: skip
    return _with_detail(made, value("detail") or {})


def _with_detail(step: Step, detail: dict[str, Any]) -> Step:
    return replace(
        step,
        listener=str(detail.get("listener", "")),
        status=detail.get("status", 0) or 0,
        duration_ms=detail.get("duration_ms", 0) or 0,
        error=str(detail.get("error", "")),
        answer=str(detail.get("answer", "")),
        into=str(detail.get("into") or ""),
        reason=str(detail.get("reason", "")),
    )


def of_lake(
    store: StoreReads,
    rows: Sequence[dict[str, Any]],
    queue: str,
    message: str,
    *,
    within: Callable[[str], bool],
) -> Life:
    """The life that rows of the lake's events tell."""
    steps = []
    for row in rows:
        made = Step(
            row["offset"], row["at_ms"], row["kind"], queue, row["queue"] or "", message,
            row["actor"] or "", dialect=row["dialect"] or "", attempt=row["attempt"] or 0,
            lease_ms=row["lease_ms"] or 0, delay_ms=row["delay_ms"] or 0,
        )  # fmt: skip
        detail = msgspec.json.decode(row["detail"]) if row["detail"] else None
        steps.append(_with_detail(made, detail if isinstance(detail, dict) else {}))
    _note_waits(steps)
    _name(store, steps, within)
    ends = steps[0].offset, steps[-1].offset
    return Life(steps, *ends, len(steps) < STEPS_MAX, archived=True)


async def begin(
    store: StoreReads, queue: str, message: str, published_ms: int | None
) -> tuple[str, str, int] | None:
    """Where the life began: the first message of the chain, and when it was published."""
    for _ in range(COPIES_MAX):
        at_ms = ids.message_ms(message) if published_ms is None else published_ms
        if at_ms is None:
            return None
        origin = await _origin(store, queue, message, at_ms)
        if origin is None:
            return queue, message, at_ms
        before = ids.message_ms(origin[1])
        if before is None or before > at_ms:
            return queue, message, at_ms
        queue, message, published_ms = *origin, before
    return queue, message, published_ms or 0


async def _origin(
    store: StoreReads, queue: str, message: str, at_ms: int
) -> tuple[str, str] | None:
    """The message that this one is a copy of, by its `published`."""
    head = await store.journal.head()
    after = max(await store.journal.offset_at(at_ms), head.first - 1)
    upto = min(head.last, after + ORIGIN_EVENTS_MAX)
    async for run, start, stop in reading.read(store, after, upto):
        if run.at_ms > at_ms:
            return None
        if run.kind != "published" or run.queue != queue:
            continue
        named = journal.column(run, "message_id")
        for place in range(start, stop):
            if named[place] == message:
                detail = journal.column(run, "detail")[place]
                if isinstance(detail, dict) and "message" in detail:
                    return str(detail.get("queue", "")), str(detail["message"])
                return None
    return None


async def read(
    store: StoreReads,
    queue: str,
    message: str,
    published_ms: int,
    *,
    tenant: str,
    within: Callable[[str], bool],
) -> Life:
    """The life from its publication on, to the end of all its copies or to a limit."""
    watched = _Watched(queue, message)
    head = await store.journal.head()
    first = after = max(await store.journal.offset_at(published_ms), head.first - 1)
    steps: list[Step] = []
    until_s = time.perf_counter() + LOOKED_S_MAX
    hidden = 0
    async for page in reading.pages(store, first, min(head.last, first + EVENTS_MAX)):
        after += sum(stop - start for _, start, stop in page)
        found = await asyncio.to_thread(_steps, watched, page, tenant)
        steps += [each for each in found if within(each.queue)]
        hidden += sum(not within(each.queue) for each in found)
        over = not watched.open or len(steps) >= STEPS_MAX
        if over or time.perf_counter() > until_s:
            break
    whole = after >= head.last or not watched.open
    _note_waits(steps)
    _name(store, steps, within)
    switches = watched.switches
    return Life(steps[:STEPS_MAX], first + 1, after, whole, hidden, switches=switches)


def _steps(watched: _Watched, cut: Sequence[tuple[Run, int, int]], tenant: str) -> list[Step]:
    return [
        step
        for run, start, stop in cut
        if run.tenant == tenant
        for step in watched.take(run, start, stop)
    ]


def folded(steps: Sequence[Step]) -> list[list[Step]]:
    """One by one, but together where several attempts went like the one before them."""
    found: list[list[Step]] = []
    place = 0
    while place < len(steps):
        stop = place
        while _goes_like_the_one_before(steps, stop):
            stop += 2
        if stop - place <= 2:
            stop = place + 1
        found.append([*steps[place:stop]])
        place = stop
    return found


def _goes_like_the_one_before(steps: Sequence[Step], place: int) -> bool:
    """Whether an attempt begins here: a lease, and how it ended."""
    if place < 2 or place + 2 > len(steps) or steps[place].kind != "leased":
        return False
    before, here = ([_look(each) for each in steps[at : at + 2]] for at in (place - 2, place))
    return before == here


def _look(step: Step) -> tuple[str, str, str, str, int]:
    return step.kind, step.queue, step.message, step.actor, step.lease_ms


def _note_waits(steps: list[Step]) -> None:
    last: dict[tuple[str, str], int] = {}
    before = 0
    place = ("", "")
    for step in steps:
        step.moved = place != (step.queue, step.message)
        place = step.queue, step.message
        lane = (step.message, step.listener)
        since = last.get(lane, before)
        step.wait_ms = max(0, step.at_ms - since) if since else 0
        last[lane] = step.at_ms
        if not step.listener:
            before = step.at_ms


def _name(store: StoreReads, steps: list[Step], within: Callable[[str], bool]) -> None:
    """Names in place of ids, as far as what they name still exists."""
    for step in steps:
        if step.actor:
            step.actor_name = name_of(store, step.actor)
        if step.listener:
            listener = store.records.get(Listener, step.listener)
            step.listener = listener.title if listener else step.listener
        if step.into:
            queue = store.records.get(Queue, step.into)
            seen = within(step.into)
            step.into = (queue.name if queue else step.into) if seen else BEYOND
