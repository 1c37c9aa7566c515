"""The store's memory of its own tables: counters per subscription and the group being written.

All of it that lasts can be read back from the tables; `reload` does so after a rollback and at
start.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from courier.core.errors import NotFound
from courier.core.types import MINUTE_MS, Actor, Queue, QueueStats, Run
from courier.store.sqlite.line import LANE, NEVER_MS, Line, PushLine
from courier.store.sqlite.push_lines import PushLines
from courier.store.waiting import Waiters

# Whoever may have more to take than can be counted cheaply wakes no more than so many.
WAKE_MAX = 100

_LINES = """
SELECT no, queue, tail, cursor, count, bytes, leased, delayed, again, held, kept, dropped
FROM subscription WHERE listener = '' ORDER BY no
"""
_SAVE_LINE = """
UPDATE subscription
SET tail = ?, cursor = ?, count = ?, bytes = ?, leased = ?, delayed = ?, again = ?, held = ?,
    kept = ?
WHERE no = ?
"""
_SAVE_JOURNAL = "INSERT INTO journal VALUES (?, ?, ?, ?, ?)"
_SAVE_MINUTE = """
INSERT INTO minute (minute, queue, kind, tenant, count, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes
"""
_SAVE_LEVEL = "INSERT OR IGNORE INTO level VALUES (?, ?, ?, ?, ?)"
_JOURNAL_LAST = "SELECT last, total_bytes, at_ms FROM journal ORDER BY last DESC LIMIT 1"
_JOURNAL_FIRST = """
SELECT last - count + 1, total_bytes - length(data) FROM journal ORDER BY last LIMIT 1
"""
_NEXT_DUE = "SELECT min(due_ms) FROM delivery INDEXED BY delivery_due WHERE state > 0"
_NEXT_PUSH = "SELECT min(due_ms) FROM push INDEXED BY push_due WHERE state > 0"
_NEXT_EXPIRY = "SELECT min(expires_ms) FROM message INDEXED BY message_expires WHERE expires_ms > 0"
_OLDEST = """
SELECT published_ms FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT 1
"""


class Book:
    def __init__(self, db: apsw.Connection, waiters: Waiters) -> None:
        self.db = db.cursor()
        self._waiters = waiters
        self._encode = msgspec.msgpack.Encoder().encode
        self.lines: dict[str, Line] = {}
        self.by_no: dict[int, Line] = {}
        self.dropped: dict[int, Line] = {}
        self.queues: dict[str, Queue] = {}
        self.push_lines = PushLines(self.db)
        self.journal_first = 1
        self.journal_last = 0
        self.journal_start_bytes = 0
        self.journal_bytes = 0
        self.journal_ms = 0
        self.doubt_ms = 0
        self.minute = 0
        self.minute_end_ms = 0
        self._reset()

    def _reset(self) -> None:
        self.offset = self.journal_last
        self._runs_ms = self.journal_ms
        self._runs: list[Run] = []
        self._touched: dict[int, Line] = {}
        self._touched_pushes: dict[int, PushLine] = {}
        self._tallies: dict[tuple[int, str, str, str], list[int]] = {}
        self._wakes: dict[str, int] = {}
        self.changed = False
        self.next_due_ms = 0
        self.next_retention_ms = 0
        self.retention_stale = True

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        return self.db.execute(sql, values).fetchone()

    # --- reading the tables back ---

    def reload(self) -> None:
        """Everything from the tables. Queues and listeners must be known before."""
        full = {line.no for line in self.lines.values() if line.full}
        self.lines, self.by_no, self.dropped = {}, {}, {}
        for row in self.rows(_LINES):
            no, queue_id, *numbers, dropped = row
            if dropped is None:
                line = Line(no, self.queues[queue_id])
                self.lines[queue_id] = line
            else:
                line = Line(no, msgspec.json.decode(dropped, type=Queue))
                self.dropped[no] = line
            self.by_no[no] = line
            line.tail, line.cursor, line.count, line.bytes = numbers[:4]
            line.leased, line.delayed, line.again, line.held, line.kept = numbers[4:]
            line.aging_ms = 0 if line.count or line.kept else NEVER_MS
            line.level = (line.count, line.leased, line.delayed)
            line.full = no in full
        self.push_lines.reload({line.id: line for line in self.by_no.values()})
        self.reload_journal()
        self._reset()

    def reload_journal(self) -> None:
        last = self.row(_JOURNAL_LAST)
        first = self.row(_JOURNAL_FIRST)
        self.journal_last, self.journal_bytes, self.journal_ms = last or (0, 0, 0)
        self.journal_first, self.journal_start_bytes = first or (self.journal_last + 1, 0)

    def next_due(self) -> int:
        found = [self.db.execute(sql).get for sql in (_NEXT_DUE, _NEXT_PUSH, _NEXT_EXPIRY)]
        self.next_due_ms = min([due_ms or NEVER_MS for due_ms in found])
        return self.next_due_ms

    def behind(self, now_ms: int) -> bool:
        """Some of what is due has been left to the sweep."""
        return now_ms >= self.next_due_ms

    def next_retention(self) -> int:
        if self.retention_stale:
            expiries = (line.expiry_ms for line in self.lines.values())
            self.next_retention_ms = min(expiries, default=NEVER_MS)
            self.retention_stale = False
        return self.next_retention_ms

    def line(self, queue: str) -> Line:
        try:
            return self.lines[queue]
        except KeyError:
            raise NotFound("queue", queue) from None

    def push_line(self, listener: str) -> tuple[Line, PushLine]:
        """A listener's line, and that of its queue."""
        record = self.push_lines.listeners.get(listener)
        if record is None:
            raise NotFound("listener", listener)
        return self.line(record.parent), self.push_lines.live[listener]

    def stats(self, line: Line) -> QueueStats:
        if line.count and not line.oldest_known:
            base = line.base
            found = [self.db.execute(_OLDEST, (base, base + LANE)).get]
            if line.held:
                found.append(self.db.execute(_OLDEST, (base + LANE, base + 2 * LANE)).get)
            line.oldest_ms = min(ms for ms in found if ms is not None)
            line.oldest_known = True
        oldest_ms = line.oldest_ms if line.count else 0
        return QueueStats(line.count, line.bytes, oldest_ms, line.leased, line.delayed)

    def backlogs(self, tenant: str | None) -> tuple[int, dict[str, int]]:
        held = [line for line in self.dropped.values() if line.count]
        lines = [*self.lines.values(), *held]
        return self.offset, {
            line.id: line.count for line in lines if tenant in (None, line.queue.tenant)
        }

    # --- the group being written ---

    def turn(self, now_ms: int) -> None:
        """What happens from here on, in the same group or a later one, does so at `now_ms`."""
        if now_ms >= self.minute_end_ms:
            self._keep_levels()
            self.minute = now_ms // MINUTE_MS
            self.minute_end_ms = (self.minute + 1) * MINUTE_MS

    def added(self, line: Line, *, count: int, size: int, now_ms: int, aging: bool) -> None:
        """`count` messages of `size` bytes together were published on this line.

        `aging`: retention will end at least one of them.
        """
        if not line.count:
            line.oldest_ms = now_ms
            line.oldest_known = True
        line.count += count
        line.bytes += size
        if aging and now_ms < line.aging_ms:
            self.ages(line, now_ms)
        self._touched[line.no] = line
        self.changed = True

    def ages(self, line: Line, published_ms: int) -> None:
        """Retention will end a message of this line that was published then."""
        if published_ms < line.aging_ms:
            line.aging_ms = published_ms
            self.next_retention_ms = min(self.next_retention_ms, line.expiry_ms)

    def removed(self, line: Line, *, count: int, size: int, oldest_ms: int) -> None:
        """`count` messages are gone, the oldest of them published at `oldest_ms`."""
        line.count -= count
        line.bytes -= size
        if oldest_ms <= line.oldest_ms:
            line.oldest_known = False
        self._shrunk(line)

    def let_kept_go(self, line: Line, count: int) -> None:
        """`count` messages that were kept for their pushes are gone."""
        line.kept -= count
        self._shrunk(line)

    def _shrunk(self, line: Line) -> None:
        if not line.count and not line.kept:
            line.aging_ms = NEVER_MS
            self.retention_stale = True
        self._touched[line.no] = line
        self.changed = True

    def touch(self, line: Line, *, due_ms: int = NEVER_MS) -> None:
        """The line's counters changed, and something of it is due at `due_ms`."""
        if due_ms < self.next_due_ms:
            self.next_due_ms = due_ms
        self._touched[line.no] = line
        self.changed = True

    def touch_pushes(self, pushes: PushLine, *, due_ms: int = NEVER_MS) -> None:
        """The same of a listener's line."""
        if due_ms < self.next_due_ms:
            self.next_due_ms = due_ms
        self._touched_pushes[pushes.no] = pushes
        self.changed = True

    def let_go(self, line: Line, count: int) -> None:
        """`count` leases of this line have ended."""
        line.leased -= count
        if line.full and count:
            line.full = False
            self.wake(line, WAKE_MAX)

    def wake(self, line: Line | PushLine, count: int) -> None:
        """Once the group is durable, tell `count` of those who wait for this line."""
        self._wakes[line.id] = self._wakes.get(line.id, 0) + count

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
        """Write `count` events down, to be part of the group's journal row."""
        queue_id = queue_name = ""
        if queue:
            queue_id, queue_name, tenant = queue.id, queue.name, queue.tenant
            self.tally(kind, tenant, queue_id, count=count, size=size, now_ms=now_ms)
        elif tenant:
            self.tally(kind, tenant, tenant, count=count, size=size, now_ms=now_ms)
        # Callers may have read the clock before the last event was written.
        if now_ms > self._runs_ms:
            self._runs_ms = now_ms
        self._runs.append(
            Run(
                self.offset + 1,
                count,
                kind,
                self._runs_ms,
                tenant,
                queue_id,
                queue_name,
                actor.id,
                actor.dialect,
                columns,
            )
        )
        self.offset += count
        self.changed = True

    def tally(
        self, kind: str, tenant: str, id: str, *, count: int, size: int = 0, now_ms: int
    ) -> None:
        """Count what happened to `id` in the minute of `now_ms`."""
        key = (now_ms // MINUTE_MS, id, kind, tenant)
        totals = self._tallies.setdefault(key, [0, 0])
        totals[0] += count
        totals[1] += size
        self.changed = True

    def _keep_levels(self) -> None:
        """Of lines that this minute is the first to change, keep what they held before."""
        for line in self._touched.values():
            level = (line.count, line.leased, line.delayed)
            if level == line.level:
                continue
            if line.minute < self.minute and self.lines.get(line.queue.id) is line:
                self.db.execute(_SAVE_LEVEL, (line.queue.id, self.minute - 1, *line.level))
            line.level, line.minute = level, self.minute

    def flush(self) -> bool:
        if not self.changed:
            return False
        self._keep_levels()
        execute = self.db.execute
        for line in self._touched.values():
            execute(
                _SAVE_LINE,
                (
                    line.tail,
                    line.cursor,
                    line.count,
                    line.bytes,
                    line.leased,
                    line.delayed,
                    line.again,
                    line.held,
                    line.kept,
                    line.no,
                ),
            )
        self.push_lines.save(self._touched_pushes.values())
        if self._runs:
            data = self._encode(self._runs)
            self._flushed_bytes = self.journal_bytes + len(data)
            count = self.offset - self.journal_last
            execute(_SAVE_JOURNAL, (self.offset, count, self._runs_ms, self._flushed_bytes, data))
        else:
            self._flushed_bytes = self.journal_bytes
        for key, totals in self._tallies.items():
            execute(_SAVE_MINUTE, (*key, *totals))
        return True

    def committed(self) -> None:
        self.journal_last = self.offset
        self.journal_bytes = self._flushed_bytes
        self.journal_ms = self._runs_ms
        wakes = self._wakes
        self._runs = []
        self._touched = {}
        self._touched_pushes = {}
        self._tallies = {}
        self._wakes = {}
        self.changed = False
        for queue, count in wakes.items():
            self._waiters.wake(queue, count)


def packed(values: Sequence[Any]) -> Any:
    """A journal column: one value when all are the same, else the list."""
    first, count = values[0], len(values)
    return first if count == 1 or values.count(first) == count else list(values)
