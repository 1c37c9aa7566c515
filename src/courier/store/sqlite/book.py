"""The store's memory of its own tables: counters per subscription and the group being written.

Everything here can be read back from the tables; `reload` does so after a rollback and at start.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from courier.core.errors import NotFound
from courier.core.types import MINUTE_MS, Actor, Queue, QueueStats, Run

SEQ_BITS = 42
LANE = 1 << SEQ_BITS
LINE_BITS = SEQ_BITS + 1
SEQ_MASK = LANE - 1
NEVER_MS = 1 << 62

READY, LEASED, DELAYED = 0, 1, 2

_LINES = """
SELECT no, queue, tail, cursor, count, bytes, leased, delayed, again, held, dropped
FROM subscription ORDER BY no
"""
_SAVE_LINE = """
UPDATE subscription
SET tail = ?, cursor = ?, count = ?, bytes = ?, leased = ?, delayed = ?, again = ?, held = ?
WHERE no = ?
"""
_SAVE_JOURNAL = "INSERT INTO journal VALUES (?, ?, ?, ?, ?)"
_SAVE_MINUTE = """
INSERT INTO minute VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes
"""
_JOURNAL_LAST = "SELECT last, total_bytes FROM journal ORDER BY last DESC LIMIT 1"
_JOURNAL_FIRST = """
SELECT last - count + 1, total_bytes - length(data) FROM journal ORDER BY last LIMIT 1
"""
_NEXT_DUE = "SELECT min(due_ms) FROM delivery INDEXED BY delivery_due WHERE state > 0"
_NEXT_EXPIRY = "SELECT min(expires_ms) FROM message INDEXED BY message_expires WHERE expires_ms > 0"
_OLDEST = """
SELECT published_ms FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT 1
"""


class Line:
    """One subscription: where it stands and what it holds.

    `again` deliveries are ready after having been handed out or delayed, `held` messages lie in
    lane 1. `oldest_ms` is never later than the oldest message's time; `oldest_known` says that
    it is exactly that.
    """

    __slots__ = (
        "again",
        "base",
        "bytes",
        "count",
        "cursor",
        "delayed",
        "held",
        "leased",
        "no",
        "oldest_known",
        "oldest_ms",
        "queue",
        "tail",
    )

    def __init__(self, no: int, queue: Queue) -> None:
        self.no = no
        self.base = no << LINE_BITS
        self.queue = queue
        self.tail = self.cursor = self.count = self.bytes = 0
        self.leased = self.delayed = self.again = self.held = 0
        self.oldest_ms = 0
        self.oldest_known = False

    def message_key(self, seq: int, lane: int) -> int:
        return self.base | lane << SEQ_BITS | seq

    @property
    def expiry_ms(self) -> int:
        """Nothing of this line reaches its retention before this."""
        return self.oldest_ms + self.queue.retention_ms if self.count else NEVER_MS


class Book:
    def __init__(self, db: apsw.Connection) -> None:
        self.db = db.cursor()
        self._encode = msgspec.msgpack.Encoder().encode
        self.lines: dict[str, Line] = {}
        self.by_no: dict[int, Line] = {}
        self.dropped: dict[int, Line] = {}
        self.queues: dict[str, Queue] = {}
        self.journal_first = 1
        self.journal_last = 0
        self.journal_start_bytes = 0
        self.journal_bytes = 0
        self._reset()

    def _reset(self) -> None:
        self.offset = self.journal_last
        self._runs: list[Run] = []
        self._touched: dict[int, Line] = {}
        self._minutes: dict[tuple[int, str, str], list[int]] = {}
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
        """Everything from the tables. Queues must be known (`queues`) before."""
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
            line.leased, line.delayed, line.again, line.held = numbers[4:]
        self.reload_journal()
        self._reset()

    def reload_journal(self) -> None:
        last = self.row(_JOURNAL_LAST)
        first = self.row(_JOURNAL_FIRST)
        self.journal_last, self.journal_bytes = last or (0, 0)
        self.journal_first, self.journal_start_bytes = first or (self.journal_last + 1, 0)

    def next_due(self) -> int:
        due_ms = self.db.execute(_NEXT_DUE).get
        expiry_ms = self.db.execute(_NEXT_EXPIRY).get
        self.next_due_ms = min(due_ms or NEVER_MS, expiry_ms or NEVER_MS)
        return self.next_due_ms

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

    def stats(self, line: Line) -> QueueStats:
        return QueueStats(line.count, line.bytes, self.oldest_ms(line), line.leased, line.delayed)

    def oldest_ms(self, line: Line) -> int:
        if not line.count:
            return 0
        if not line.oldest_known:
            base = line.base
            found = [self.db.execute(_OLDEST, (base, base + LANE)).get]
            if line.held:
                found.append(self.db.execute(_OLDEST, (base + LANE, base + 2 * LANE)).get)
            line.oldest_ms = min(ms for ms in found if ms is not None)
            line.oldest_known = True
            self.retention_stale = True
        return line.oldest_ms

    # --- the group being written ---

    def added(self, line: Line, *, count: int, size: int, now_ms: int) -> None:
        """`count` messages of `size` bytes together were published on this line."""
        if not line.count:
            line.oldest_ms = now_ms
            line.oldest_known = True
            expiry_ms = now_ms + line.queue.retention_ms
            self.next_retention_ms = min(self.next_retention_ms, expiry_ms)
        line.count += count
        line.bytes += size
        self._touched[line.no] = line
        self.changed = True

    def removed(self, line: Line, *, count: int, size: int, oldest_ms: int) -> None:
        """`count` messages are gone, the oldest of them published at `oldest_ms`."""
        line.count -= count
        line.bytes -= size
        if oldest_ms <= line.oldest_ms:
            line.oldest_known = False
            self.retention_stale = True
        self._touched[line.no] = line
        self.changed = True

    def touch(self, line: Line, *, due_ms: int = NEVER_MS) -> None:
        """The line's counters changed, and something of it is due at `due_ms`."""
        if due_ms < self.next_due_ms:
            self.next_due_ms = due_ms
        self._touched[line.no] = line
        self.changed = True

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
        queue_id, queue_name = (queue.id, queue.name) if queue else ("", "")
        self._runs.append(
            Run(
                self.offset + 1,
                count,
                kind,
                now_ms,
                queue.tenant if queue else tenant,
                queue_id,
                queue_name,
                actor.id,
                actor.dialect,
                columns,
            )
        )
        self.offset += count
        self.changed = True
        totals = self._minutes.setdefault((now_ms // MINUTE_MS, queue_id, kind), [0, 0])
        totals[0] += count
        totals[1] += size

    def flush(self) -> bool:
        if not self.changed:
            return False
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
                    line.no,
                ),
            )
        if self._runs:
            data = self._encode(self._runs)
            self._flushed_bytes = self.journal_bytes + len(data)
            count = self.offset - self.journal_last
            execute(
                _SAVE_JOURNAL,
                (self.offset, count, self._runs[-1].at_ms, self._flushed_bytes, data),
            )
        else:
            self._flushed_bytes = self.journal_bytes
        for key, totals in self._minutes.items():
            execute(_SAVE_MINUTE, (*key, *totals))
        return True

    def committed(self) -> None:
        self.journal_last = self.offset
        self.journal_bytes = self._flushed_bytes
        self._runs = []
        self._touched = {}
        self._minutes = {}
        self.changed = False


def packed(values: Sequence[Any]) -> Any:
    """A journal column: one value when all are the same, else the list."""
    first = values[0]
    return first if values.count(first) == len(values) else list(values)
