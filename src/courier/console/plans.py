"""Plans on disk: what is to be done to which messages, how far it has come, what it did.

`plans/{id}.json` is the plan and `plans/{id}.arrow` are the messages that it chose, in pages. A
plan is written down after each of its pages, so that a restart finds it where it was.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from courier import files
from courier.core.errors import StoreUnavailable
from courier.core.types import (
    DAY_MS,
    Consumer,
    ContentType,
    Draft,
    Message,
    MessageState,
    Origin,
    Queue,
    Rule,
)

log = logging.getLogger("courier.console")

# Messages that are chosen, written and acted on together.
PAGE = 500
# How long a page of a replay with a rate takes.
SLOW_PAGE_S = 5
KEPT_MS = 30 * DAY_MS
PLANS_MAX = 1_000
# Queues that a plan names as touched; one that touches more is for keys without limits.
TOUCHED_MAX = 1_000
# Where a message that is put back comes from.
REPLAY_ID, REPLAY_QUEUE = "courier-replay-id", "courier-replay-queue"
REPLAY_MESSAGE = "courier-replay-message"
_CHECK = "check"
_SCHEMA = pa.schema(
    [
        ("queue", pa.string()), ("seq", pa.int64()), ("id", pa.string()),
        ("published_ms", pa.int64()), ("size", pa.int64()), ("content_type", pa.string()),
        ("body", pa.binary()), ("sealed", pa.string()), ("headers", pa.binary()),
        ("group", pa.string()), ("into", pa.string()), ("origin", pa.binary()),
        (_CHECK, pa.binary()),
    ]
)  # fmt: skip
_decode_headers: "msgspec.json.Decoder[dict[str, Any]]" = msgspec.json.Decoder(dict[str, Any])
_decode_origin = msgspec.json.Decoder(Origin)

Action = Literal[
    "delete", "purge", "redrive", "retry_pushes", "backfill", "delete_queue", "delete_key",
    "delete_tenant", "put_back", "take_back", "create_again", "replay",
]  # fmt: skip
# `running` on disk, and not in this process, is interrupted.
State = Literal["choosing", "planned", "running", "stopped", "done"]
Ranges = list[tuple[int, int]]


class Selection(Struct):
    """Which messages, as they were asked for; those up to `upto_seq` of each queue.

    `origin`: only dead letters of the queue with that id.
    """

    since_ms: int = 0
    until_ms: int = 1 << 62
    text: str = ""
    path: str = ""
    seqs: tuple[int, ...] = ()
    sql: str = ""
    upto_seq: dict[str, int] = {}
    state: MessageState | Literal[""] = ""
    origin: str = ""


class Before(Struct):
    """A queue as it was, with what can be made again of what hung on it.

    `buriers` are the queues whose dead letters it got, with how often they attempted.
    """

    queue: Queue
    schema: dict[str, Any] | None = None
    consumer: Consumer | None = None
    bindings: list[tuple[str, Rule | None]] = []
    buriers: list[tuple[str, str, int | None]] = []
    listeners: list[str] = []
    subscriptions: list[str] = []


class Plan(Struct, kw_only=True):
    """One plan. `queues` are ids and names; `target` is a listener, a key, a tenant or a queue.

    `after` is the journal's last offset before the page that runs, `place` that page. `left` are
    sequences, by queue, of chosen messages that it left alone; `offsets` those of its events.
    `touched` are the ids of every queue that it reads, changes or publishes to besides `queues`;
    None: unknown, or more than TOUCHED_MAX. `view` is the page that it was made on. At most
    `per_second` messages are published in a second by a replay, 0 for no limit.
    """

    id: str
    action: Action
    tenant: str
    made_ms: int
    made_by: str
    queues: list[tuple[str, str]] = []
    target: str = ""
    target_name: str = ""
    selection: Selection = msgspec.field(default_factory=Selection)
    state: State = "choosing"
    count: int = 0
    bytes: int = 0
    apart: int = 0
    kept: bool = True
    pages: int = 0
    place: int = 0
    after: int = 0
    actors: list[str] = []
    started_ms: int = 0
    ended_ms: int = 0
    done: int = 0
    left: dict[str, Ranges] = {}
    offsets: Ranges = []
    problem: str = ""
    undo_of: str = ""
    undone_by: str = ""
    before: Before | None = None
    touched: list[str] | None = None
    view: str = ""
    per_second: int = 0

    def touch(self, *queues: str) -> None:
        """Note queues (ids) as touched; "" is none."""
        if self.touched is None:
            return
        known = {"", *self.touched, *(queue for queue, _ in self.queues)}
        self.touched += [queue for queue in dict.fromkeys(queues) if queue not in known]
        if len(self.touched) > TOUCHED_MAX:
            self.touched = None

    @property
    def file(self) -> str:
        """Whose messages it is about; what puts messages back has those of the plan it undoes."""
        return self.undo_of if self.action in ("put_back", "create_again") else self.id

    @property
    def page_messages_max(self) -> int:
        """A page of a slow replay is over soon, because it is stopped between two pages."""
        return min(PAGE, self.per_second * SLOW_PAGE_S) if self.per_second else PAGE

    @property
    def skipped(self) -> int:
        return sum(last - first + 1 for each in self.left.values() for first, last in each)

    @property
    def over(self) -> bool:
        return self.state in ("planned", "stopped", "done")


class PlannedMessage(Struct, frozen=True):
    """A message that a plan chose. `body` None: there was no room to keep it.

    `into`: where to put it back, if not where it was. `origin`: whose dead letter it is.
    """

    queue: str
    seq: int
    id: str
    published_ms: int
    size: int
    content_type: ContentType
    body: bytes | None = None
    sealed: str | None = None
    headers: bytes | None = None
    group: str | None = None
    into: str = ""
    origin: bytes | None = None

    @classmethod
    def of(
        cls, queue: str, message: Message, origin: Origin | None, *, kept: bool, into: str = ""
    ) -> "PlannedMessage":
        headers = msgspec.json.encode(message.headers) if message.headers and kept else None
        return cls(
            queue,
            message.seq,
            message.id,
            message.published_ms,
            message.size,
            message.content_type,
            message.body if kept else None,
            message.sealed,
            headers,
            message.group,
            into,
            msgspec.json.encode(origin) if origin and origin.reason != "redrive" else None,
        )

    @property
    def message(self) -> Message:
        """As far as its body can be opened and shown."""
        return Message(
            self.seq,
            self.id,
            self.published_ms,
            self.body or b"",
            self.content_type,
            sealed=self.sealed,
        )

    def draft(self, body: bytes, sealed: str | None, *, plan: str, queue: str) -> Draft:
        """The same message once more, with where it comes from."""
        headers = _decode_headers.decode(self.headers) if self.headers else {}
        headers |= {REPLAY_ID: plan, REPLAY_QUEUE: queue, REPLAY_MESSAGE: self.id}
        origin = _decode_origin.decode(self.origin) if self.origin else None
        return Draft(
            body, self.content_type, headers, group=self.group, sealed=sealed, origin=origin
        )


def _check(message: PlannedMessage) -> bytes:
    """What is written beside a message, to see that it is what was written."""
    return blake2b(msgspec.msgpack.encode(message), digest_size=16).digest()


def _checked(row: dict[str, Any]) -> PlannedMessage:
    """Raises ValueError or TypeError if it is not what was written."""
    check = row.pop(_CHECK, None)  # files of an earlier release have none
    found = PlannedMessage(**row)
    if check is not None and check != _check(found):
        raise ValueError(found.id)
    return found


class Writer:
    """Writes the chosen messages of one plan, a page at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = files.open_new(path)
        self._stream = pa.ipc.new_file(self._file, _SCHEMA)
        self.pages = 0

    def write(self, page: Sequence[PlannedMessage]) -> int:
        """Bytes of the file so far."""
        columns: dict[str, list[Any]] = {_CHECK: [_check(each) for each in page]}
        for name in PlannedMessage.__struct_fields__:
            columns[name] = [getattr(each, name) for each in page]
        self._stream.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self.pages += 1
        return self._file.tell()

    def close(self) -> None:
        self._stream.close()
        files.sync_open(self._file)
        self._file.close()
        files.sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Remove it, as far as the disk lets us; it may not have taken what was written."""
        for end in (self._file.close, partial(files.remove, self._path)):
            with suppress(OSError):
                end()


class PlanFiles:
    """All plans that are kept, newest last; their files change on threads."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self.bytes_max = bytes_max
        self._plans: dict[str, Plan] | None = None
        self._loading = asyncio.Lock()

    async def all(self) -> dict[str, Plan]:
        async with self._loading:
            if self._plans is None:
                self._plans = await asyncio.to_thread(self._load)
        return self._plans

    def _load(self) -> dict[str, Plan]:
        found = []
        for path in self._directory.glob("*.json"):
            try:
                plan = msgspec.json.decode(path.read_bytes(), type=Plan)
            except (msgspec.DecodeError, OSError) as error:
                log.warning("plan_unreadable", extra={"file": path.name, "reason": str(error)})
                continue
            # It was being made when the server ended.
            if plan.state == "choosing":
                self._remove(plan.id)
            else:
                found.append(plan)
        plans = {plan.id: plan for plan in sorted(found, key=lambda plan: plan.made_ms)}
        for plan in found:  # the server may have ended before this was written down
            if plan.undo_of in plans:
                plans[plan.undo_of].undone_by = plan.id
        return plans

    def _path(self, id: str, suffix: str) -> Path:
        return self._directory / f"{id}.{suffix}"

    def _remove(self, id: str) -> None:
        for suffix in ("json", "arrow"):
            files.remove(self._path(id, suffix))

    async def save(self, plan: Plan, **changes: Any) -> None:
        """Write it down, with changes. Raises StoreUnavailable: nothing has changed then, and a new
        plan is not there."""
        plans = await self.all()
        content = msgspec.json.encode(replace(plan, **changes))

        def write() -> None:
            files.make_directory(self._directory)
            files.write(self._path(plan.id, "json"), content)

        await on_disk(write)
        for name, value in changes.items():
            setattr(plan, name, value)
        plans[plan.id] = plan

    async def forget(self, plan: Plan) -> None:
        (await self.all()).pop(plan.id, None)
        await on_disk(self._remove, plan.id)

    async def make_room(self, now_ms: int) -> bool:
        """Forget what is too old, and the oldest of too much; whether the rest is not too much."""
        plans = await self.all()
        needed = {plan.undo_of for plan in plans.values() if not plan.over}
        idle = [plan for plan in plans.values() if plan.over and plan.id not in needed]
        held = await on_disk(self._bytes)
        for plan in idle:
            old = plan.made_ms <= now_ms - KEPT_MS
            if old or len(plans) >= PLANS_MAX or held > self.bytes_max:
                await self.forget(plan)
                held = await on_disk(self._bytes)
        return bool(held <= self.bytes_max)

    def _bytes(self) -> int:
        held = 0
        for path in self._directory.glob("*"):
            with suppress(FileNotFoundError):  # another plan's, replaced meanwhile
                held += path.stat().st_size
        return held

    async def writer(self, plan: Plan) -> Writer:
        files_path = self._path(plan.id, "arrow")
        await on_disk(files.remove, files_path)
        made: Writer = await on_disk(Writer, files_path)
        return made

    async def page(self, plan: Plan, number: int) -> list[PlannedMessage]:
        """Raises StoreUnavailable, also if it is not what was written."""
        found: list[PlannedMessage] = await on_disk(self._page, plan.file, number)
        return found

    def _page(self, id: str, number: int) -> list[PlannedMessage]:
        # Not mapped into memory: a disk that fails would end the process.
        with pa.OSFile(str(self._path(id, "arrow"))) as file:
            try:
                batch = pa.ipc.open_file(file).get_batch(number)
                batch.validate(full=True)
                return [_checked(row) for row in batch.to_pylist()]
            except (pa.ArrowException, ValueError, TypeError) as error:
                raise StoreUnavailable(
                    f"the messages that plan {id} chose are damaged on disk"
                ) from error


async def on_disk(work: Any, *args: Any) -> Any:
    """Run on a thread; what the disk refuses is StoreUnavailable."""
    try:
        return await asyncio.to_thread(work, *args)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error  # and not where the files are
        raise StoreUnavailable(f"plans cannot be kept: {reason}") from error


def add_ranges(ranges: Ranges, numbers: Sequence[int]) -> None:
    """Add sorted numbers, each greater than those there are, as ranges."""
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))


def extend_ranges(ranges: Ranges, others: Ranges) -> None:
    """Add ranges, in order; those that overlap or follow each other become one."""
    for first, last in others:
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))


def within(ranges: Ranges, number: int) -> bool:
    place = bisect_right(ranges, (number, 1 << 62))
    return place > 0 and ranges[place - 1][1] >= number
