"""The engine's memory: every line, and the group of calls that is being written.

All of it that lasts can be read back from the disk; `load` does so at start and after a rollback.
"""

import heapq
from typing import Any

import msgspec

from courier.core.errors import NotFound, OverLimit, StoreDamaged
from courier.core.types import MINUTE_MS, Actor, AnyRecord, Consumer, Listener, Queue
from courier.core.waiters import Waiters
from courier.store.engine.blocks import Blocks, block_of, checksum
from courier.store.engine.disk import Changed, Changes, Disk, Opened, Packet
from courier.store.engine.journal import EventColumns, PackedRun, encode_runs
from courier.store.engine.layout import LEASED, NEVER_MS, SEQ_BITS, SEQ_MASK, LineNumbers
from courier.store.engine.lines import SHELF, Delivery, PushLine, QueueLine, Range, Shelf

# Upper bound on waiters woken when the number of ready messages is unknown.
WAKE_MAX = 100
WAKE_ALL = 1 << 62
_HEAP_MIN = 1_000
# Rows of longer blocks are made one at a time: a message may be copied to hundreds of queues.
LONG_BLOCK_BYTES = 1 << 20
# Rows of leased messages that are kept in memory: they are asked for when the lease is settled.
_LEASED_ROWS_MAX = 10_000

_decode_record: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
Heap = list[tuple[int, int, int]]  # when a range ends, its line, its first sequence

# Kinds of records that lines depend on.
_OF_LINES = ("Queue", "Listener", "Consumer")


class Book:
    """`by_no` has every line, `lines` and `pushes` those of what exists, by id. `dropped` queues
    and listeners are being emptied by the sweep; of `spent` queues only the journal knows."""

    def __init__(self, disk: Disk, waiters: Waiters, *, cache_bytes: int) -> None:
        self.disk = disk
        self.waiters = waiters
        self.blocks = Blocks(disk, bytes_max=cache_bytes)
        self.lines: dict[str, QueueLine] = {}
        self.listeners: dict[str, Listener] = {}
        # Queues that have a consumer.
        self.consumed: set[str] = set()
        self.pushes: dict[str, PushLine] = {}
        self.by_no: dict[int, QueueLine | PushLine] = {}
        self.dropped: dict[int, QueueLine] = {}
        self.dropped_pushes: dict[int, PushLine] = {}
        self.spent: dict[int, QueueLine] = {}
        self.numbers = LineNumbers(())
        self.records: list[AnyRecord] = []
        self.epoch = ""
        self.secret = b""
        self.minute = self.minute_end_ms = 0
        self.doubt_ms = 0
        # Lines on which something cannot be read. Time does not pass for them, and others go on.
        self.damaged: set[int] = set()
        self._heap_max = _HEAP_MIN
        self.next_due_ms = self.next_retention_ms = 0
        self.leased_rows: dict[int, Delivery] = {}
        self._reset()

    # --- reading everything back ---

    async def load(self) -> None:
        opened = await self.disk.open()
        self.epoch, self.secret = opened.epoch, opened.secret
        self.records = [record_of(body) for body in opened.records]
        full = {line.no for line in self.lines.values() if line.full}
        self.lines, self.pushes, self.by_no = {}, {}, {}
        self.dropped, self.dropped_pushes, self.spent = {}, {}, {}
        self._load_lines(opened)
        records = self.records
        self.listeners = {each.id: each for each in records if isinstance(each, Listener)}
        self.consumed = {each.parent for each in records if isinstance(each, Consumer)}
        for no in full & self.by_no.keys():
            line = self.by_no[no]
            if isinstance(line, QueueLine):
                line.full = True
        self.numbers = LineNumbers(self.by_no)
        self.due: Heap = []
        self.due_pushes: Heap = []
        for key, until_ms, at_ms, claim, done in opened.ranges:
            if key >> SEQ_BITS not in self.by_no:
                raise StoreDamaged("line of range", key)
            line = self.by_no[key >> SEQ_BITS]
            found = Range(key & SEQ_MASK, done, until_ms, at_ms, claim, None)
            line.ranges.append(found)
            line.firsts.append(found.first)
            line.ranged += found.left
            self.heap_of(line).append((until_ms, line.no, found.first))
        for no, group, count in opened.groups:
            grouped = self.by_no.get(no)
            if not isinstance(grouped, QueueLine):
                raise StoreDamaged("line of group", no)
            grouped.leased_groups[group] = count
        self.due.sort()
        self.due_pushes.sort()
        journal = opened.journal
        self.journal_last, self.journal_bytes, self.journal_ms = journal[:3]
        self.journal_first, self.journal_start_bytes = journal[3:]
        self.blocks.reset()
        self.leased_rows = {}
        self._reset()

    def is_fifo(self, no: int) -> bool:
        line = self.by_no.get(no)
        return isinstance(line, QueueLine) and line.queue.fifo

    def catch_up(self, changed: Changed) -> bool:
        """Take in what other nodes have changed of these lines; False: there are others by now, or
        queues and listeners have changed, so that all has to be read."""
        if any(kind in _OF_LINES for kind, _ in changed.records):
            return False
        if not all(_same(self.by_no.get(no), row) for no, row in changed.lines.items()):
            return False
        # Nothing that others published since the last look is older than that.
        new_ms = self.journal_ms
        for no, row in changed.lines.items():
            assert row is not None, "looked at above"
            self._follow_line(self.by_no[no], row, changed.groups.get(no, {}), new_ms)
        for key, found in changed.ranges.items():
            self._follow_range(self.by_no[key >> SEQ_BITS], key & SEQ_MASK, found)
        for key in changed.blocks:
            self.blocks.forget(key)
        for block in changed.published:
            self.blocks.keep(block_of(block))
        stale = [key for key in self.leased_rows if key >> SEQ_BITS in changed.lines]
        for key in stale:
            del self.leased_rows[key]
        self.journal_last, self.journal_bytes, self.journal_ms = changed.journal[:3]
        self.journal_first, self.journal_start_bytes = changed.journal[3:]
        self.offset, self._runs_ms = self.journal_last, self.journal_ms
        self.next_due_ms = min(self.next_due_ms, changed.next_due_ms)
        self.retention_stale = True
        return True

    def _follow_line(
        self,
        line: QueueLine | PushLine,
        row: tuple[Any, ...],
        groups: dict[str, int],
        new_ms: int,
    ) -> None:
        aging_ms = min(line.aging_ms, new_ms)
        line.load(row)
        if isinstance(line, QueueLine):
            if line.count:
                line.aging_ms = aging_ms
            line.near = None
            line.oldest_known = line.full = False
            line.oldest_ms = 0
            line.leased_groups = groups
        owner = line if isinstance(line, QueueLine) else line.line
        if owner is not None:
            self.next_retention_ms = min(self.next_retention_ms, owner.expiry_ms)
        self.waiters.wake(line.id, min(line.fresh + line.again, WAKE_MAX))

    def _follow_range(
        self, line: QueueLine | PushLine, first: int, found: tuple[Any, ...] | None
    ) -> None:
        old = line.range_from(first)
        if old is not None:
            line.ranged -= old.left
            line.drop_range(old)
        if found is not None:
            _, until_ms, at_ms, claim, done = found
            new = Range(first, done, until_ms, at_ms, claim, None)
            line.add_range(new)
            line.ranged += new.left
            self.range_ends(line, new)

    def wake_all(self) -> None:
        """Anything may have changed for anybody who waits."""
        for line in self.by_no.values():
            self.waiters.wake(line.id, WAKE_ALL)

    def _load_lines(self, opened: Opened) -> None:
        records = {(type(record), record.id): record for record in self.records}
        listening: list[PushLine] = []
        for row in opened.lines:
            no, queue_id, listener_id, dropped = row[0], row[1], row[2], row[18]
            if listener_id == SHELF:
                shelf = Shelf(no, queue_id)
                shelf.load(row)
                listening.append(shelf)
                self.by_no[no] = shelf
                continue
            kind, id = (Listener, listener_id) if listener_id else (Queue, queue_id)
            record = records.get((kind, id)) if dropped is None else record_of(dropped)
            if record is None:
                raise StoreDamaged("record of line", no)
            if isinstance(record, Listener):
                pushes = PushLine(no, record)
                pushes.load(row)
                listening.append(pushes)
                self.by_no[no] = pushes
                if pushes.dropped:
                    self.dropped_pushes[no] = pushes
                else:
                    self.pushes[pushes.id] = pushes
                continue
            assert isinstance(record, Queue)
            line = QueueLine(no, record)
            line.load(row)
            self.by_no[no] = line
            if line.spent:
                self.spent[no] = line
            elif line.dropped:
                self.dropped[no] = line
            else:
                self.lines[line.id] = line
        owners = {line.id: line for line in (*self.dropped.values(), *self.lines.values())}
        for pushes in listening:
            self.attach(pushes, owners.get(pushes.listener.parent))

    def attach(self, pushes: PushLine, line: QueueLine | None) -> None:
        """It is a line of this queue."""
        if line is not None:
            pushes.line = line
            line.pushes.append(pushes)
            if isinstance(pushes, Shelf):
                line.shelf = pushes
            arrange(line)

    def detach(self, pushes: PushLine) -> None:
        """Its queue is gone and the listener is not: it waits for another queue of that id."""
        if pushes.line is not None:
            pushes.line.pushes.remove(pushes)
        pushes.line = None
        pushes.cursor = pushes.gone = pushes.passed = 0
        pushes.aging_ms = NEVER_MS
        self.changes.emptied.append(pushes.no)
        self.touch(pushes)

    def heap_of(self, line: QueueLine | PushLine) -> Heap:
        return self.due_pushes if isinstance(line, PushLine) else self.due

    def range_ends(self, line: QueueLine | PushLine, ended: Range) -> None:
        """Remember when a range ends. Ranges that went leave their entries behind: now and then
        those are taken out."""
        heap = self.heap_of(line)
        heapq.heappush(heap, (ended.until_ms, line.no, ended.first))
        if len(heap) > self._heap_max:
            heap[:] = [entry for entry in heap if self.range_of(entry) is not None]
            heapq.heapify(heap)
            self._heap_max = max(_HEAP_MIN, 2 * len(heap))

    def range_of(self, entry: tuple[int, int, int]) -> Range | None:
        """The range that an entry of a heap is about, unless that has changed since."""
        until_ms, no, first = entry
        line = self.by_no.get(no)
        if line is None or line.dropped:
            return None
        found = line.range_from(first)
        return found if found is not None and found.until_ms == until_ms else None

    def line(self, queue: str) -> QueueLine:
        try:
            return self.lines[queue]
        except KeyError:
            raise NotFound("queue", queue) from None

    def push_line(self, listener: str) -> tuple[QueueLine, PushLine]:
        """A listener's line, and that of its queue."""
        record = self.listeners.get(listener)
        if record is None:
            raise NotFound("listener", listener)
        return self.line(record.parent), self.pushes[listener]

    def push_only(self, line: QueueLine) -> bool:
        """Listeners are all that the queue has: no puller has ever asked, nor is one expected."""
        if line.pulled or line.id in self.consumed:
            return False
        return any([not pushes.dropped for pushes in line.pushes])

    def new_shelf(self, line: QueueLine) -> Shelf | None:
        """None: there is no line number left for one."""
        try:
            shelf = Shelf(self.numbers.take(), line.id)
        except OverLimit:
            return None
        self.by_no[shelf.no] = shelf
        self.attach(shelf, line)
        return shelf

    def backlogs(self, tenant: str | None) -> tuple[int, dict[str, int]]:
        held = [line for line in self.dropped.values() if line.count]
        lines = [*self.lines.values(), *held]
        return self.offset, {
            line.id: line.count for line in lines if tenant in (None, line.queue.tenant)
        }

    # --- the group that is being written ---

    def _reset(self) -> None:
        self.changes = Changes()
        self.offset = getattr(self, "journal_last", 0)
        self._runs_ms = getattr(self, "journal_ms", 0)
        self._runs: list[PackedRun] = []
        self._wakes: dict[str, int] = {}
        # Lines of ordered listeners on which something happened.
        self.ordered: dict[int, PushLine] = {}
        # Line numbers are used again in later groups: rows of this one may still be written.
        self.freed_numbers: list[int] = []
        self.changed = False
        self.next_due_ms = 0
        self.next_retention_ms = 0
        self.retention_stale = True

    def turn(self, now_ms: int) -> None:
        """What happens from here on, in this group or a later one, does so at `now_ms`."""
        if now_ms >= self.minute_end_ms:
            self._keep_levels()
            self.minute = now_ms // MINUTE_MS
            self.minute_end_ms = (self.minute + 1) * MINUTE_MS

    def touch(self, line: QueueLine | PushLine, *, due_ms: int = NEVER_MS) -> None:
        """The line has changed, and something of it is due at `due_ms`."""
        if due_ms < self.next_due_ms:
            self.next_due_ms = due_ms
        self.changes.lines[line.no] = line
        self.changed = True

    def added(self, line: QueueLine, *, count: int, size: int, now_ms: int, aging: bool) -> None:
        """`count` messages of `size` bytes together were published on this line.

        `aging`: retention will end at least one of them.
        """
        if not line.count:
            line.oldest_ms = now_ms
            line.oldest_known = True
        line.count += count
        line.bytes += size
        if aging:
            self.age(line, now_ms, line)
        self.touch(line)

    def age(self, line: QueueLine | PushLine, published_ms: int, of: QueueLine) -> None:
        """Retention will end a message of this line that was published then."""
        if published_ms < line.aging_ms:
            line.aging_ms = published_ms
            self.next_retention_ms = min(self.next_retention_ms, of.expiry_ms)

    def removed(self, line: QueueLine, gone: EventColumns) -> None:
        """These messages are gone."""
        line.count -= len(gone.seqs)
        line.bytes -= sum(gone.sizes)
        if min(gone.times) <= line.oldest_ms:
            line.oldest_known = False
        if not line.count:
            line.aging_ms = NEVER_MS
            self.retention_stale = True
        self.touch(line)

    def next_retention(self) -> int:
        if self.retention_stale:
            expiries = [line.expiry_ms for line in self.lines.values()]
            self.next_retention_ms = min(expiries, default=NEVER_MS)
            self.retention_stale = False
        return self.next_retention_ms

    def behind(self, now_ms: int) -> bool:
        """Some of what is due has been left to the sweep."""
        heaps = (self.due, self.due_pushes)
        return now_ms >= self.next_due_ms or any(h and h[0][0] <= now_ms for h in heaps)

    def empty(self, line: QueueLine) -> None:
        """Of a deleted queue only its blocks are left, which the journal may still need."""
        line.spent = True
        line.ranges, line.firsts, line.near = [], [], None
        del self.dropped[line.no]
        self.spent[line.no] = line
        self.changes.emptied.append(line.no)
        self.touch(line)

    def forget_line(self, line: QueueLine) -> None:
        """Not even a block is left, and its number is free."""
        del self.spent[line.no]
        del self.by_no[line.no]
        self.changes.lines[line.no] = None
        self.freed_numbers.append(line.no)
        self.changed = True

    def let_go(self, line: QueueLine | PushLine) -> None:
        """Leases of this line have ended: waiting callers may get one now."""
        if isinstance(line, QueueLine) and line.full:
            line.full = False
            self.wake(line, WAKE_MAX)

    def wake(self, line: QueueLine | PushLine, count: int) -> None:
        """Once the group is durable, wake `count` of those who wait for this line."""
        self._wakes[line.id] = self._wakes.get(line.id, 0) + count

    def wake_pushes(self, pushes: PushLine, count: int) -> None:
        """The same for pushes. Whether an ordered listener has one to make is looked at last."""
        if pushes.listener.ordered:
            self.ordered[pushes.no] = pushes
        else:
            self.wake(pushes, count)

    def note(
        self,
        kind: str,
        queue: Queue | None,
        *,
        count: int = 1,
        size: int = 0,
        tenant: str = "",
        actor: Actor,
        now_ms: int,
        columns: dict[str, Any],
    ) -> None:
        """Write `count` events down, to be part of the group's packet."""
        queue_id = queue_name = ""
        if queue:
            queue_id, queue_name, tenant = queue.id, queue.name, queue.tenant
            self.tally(kind, tenant, queue_id, count=count, size=size, now_ms=now_ms)
        elif tenant:
            self.tally(kind, tenant, tenant, count=count, size=size, now_ms=now_ms)
        # Callers may have read the clock before the last event was written.
        if now_ms > self._runs_ms:
            self._runs_ms = now_ms
        where = [tenant, queue_id, queue_name, actor.id, actor.dialect]
        self._runs.append([count, kind, self._runs_ms, *where, columns])
        self.offset += count
        self.changed = True

    def note_messages(
        self,
        kind: str,
        queue: Queue,
        about: EventColumns,
        *,
        actor: Actor,
        now_ms: int,
        **extra: Any,
    ) -> None:
        """One event for each of these messages; `extra` are further columns."""
        self.note(
            kind,
            queue,
            count=len(about.seqs),
            size=sum(about.sizes),
            actor=actor,
            now_ms=now_ms,
            columns=about.packed() | extra,
        )

    def tally(
        self, kind: str, tenant: str, id: str, *, count: int, size: int = 0, now_ms: int
    ) -> None:
        """Count what happened to `id` in the minute of `now_ms`."""
        key = (now_ms // MINUTE_MS, id, kind, tenant)
        totals = self.changes.minutes.setdefault(key, [0, 0])
        totals[0] += count
        totals[1] += size
        self.changed = True

    def _keep_levels(self) -> None:
        """Of lines that this minute is the first to change, keep what they held before."""
        for line in self.changes.lines.values():
            if not isinstance(line, QueueLine):
                continue
            level = (line.count, line.leased, line.delayed)
            if level == line.level:
                continue
            if line.minute < self.minute and self.lines.get(line.id) is line:
                self.changes.levels.append((line.id, self.minute - 1, *line.level))
            line.level, line.minute = level, self.minute

    async def spill(self) -> None:
        """Before the disk is asked for rows that the group may have changed."""
        if self.changes.spillable:
            self._remember_leased()
            await self.disk.apply(self.changes, last=False)

    def _remember_leased(self) -> None:
        """Before the group's rows are written, and leave `changes`."""
        known = self.leased_rows
        for rows in (self.changes.deliveries, self.changes.pushes):
            for key, row in rows.items():
                if row is not None and row.state == LEASED:
                    known[key] = row
                elif row is None or row.stored:
                    known.pop(key, None)
        while len(known) > _LEASED_ROWS_MAX:
            del known[next(iter(known))]
        if self.changes.emptied:
            emptied = set(self.changes.emptied)
            self.leased_rows = {k: row for k, row in known.items() if k >> SEQ_BITS not in emptied}

    async def flush(self) -> bool:
        """Write the group; False: nothing was changed."""
        if not self.changed:
            self.blocks.shrink()
            return False
        self._keep_levels()
        changes = self.changes
        size = 0
        for block in self.blocks.new:
            block.last = self.offset
            if block.nbytes >= LONG_BLOCK_BYTES:
                size += block.row_bytes()
                changes.long_blocks.append(block)
                continue
            row = block.row()
            size += len(row.meta) + len(row.data or b"")
            changes.blocks.append(row)
        self._flushed_bytes = self.journal_bytes
        if self._runs:
            data = encode_runs(self._runs)
            self._flushed_bytes += size + len(data)
            changes.packet = Packet(
                self.offset,
                self.offset - self.journal_last,
                self._runs_ms,
                self.journal_bytes,
                self._flushed_bytes,
                checksum(self.offset, data),
                data,
            )
        changes.next_due_ms = self.next_due_ms
        self._remember_leased()
        await self.disk.apply(changes, last=True)
        return True

    @property
    def told(self) -> bool:
        """The group has something for those who wait, or for everybody's settings."""
        return bool(self._wakes or self.changes.records)

    def committed(self) -> None:
        self.journal_last = self.offset
        self.journal_bytes = self._flushed_bytes
        self.journal_ms = self._runs_ms
        for ended in self.changes.ranges.values():
            ended.stored = ended.left > 0
        for block in self.blocks.new:
            line = self.by_no.get(block.key >> SEQ_BITS)
            if isinstance(line, QueueLine):
                line.open = None
        for no in self.freed_numbers:
            self.numbers.free(no)
        self.freed_numbers = []
        self.blocks.committed()
        self.blocks.shrink()
        wakes = self._wakes
        self._runs = []
        self._wakes = {}
        self.changes = Changes()
        self.changed = False
        for id, count in wakes.items():
            self.waiters.wake(id, count)


def record_of(body: bytes) -> AnyRecord:
    try:
        return _decode_record.decode(body)
    except msgspec.DecodeError as error:
        raise StoreDamaged("record", 0) from error


def _same(line: QueueLine | PushLine | None, row: tuple[Any, ...] | None) -> bool:
    """The row is of a line that is known, and says no more of it than where it stands."""
    if line is None or row is None:
        return False
    if isinstance(line, PushLine):
        return (row[1], row[2]) == (line.listener.parent, line.id) and (
            isinstance(line, Shelf) or (row[18] is not None) == line.dropped
        )
    return (row[1], row[2], row[18] is not None, bool(row[19])) == (
        *(line.id, ""),
        *(line.dropped, line.spent),
    )


def arrange(line: QueueLine) -> None:
    """Listeners' lines in the order of their creation, deleted ones last."""
    line.pushes.sort(key=_place)


def _place(pushes: PushLine) -> tuple[bool, int, str, str]:
    listener = pushes.listener
    return pushes.dropped, listener.created_ms, listener.name, listener.id
