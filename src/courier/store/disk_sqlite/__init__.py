"""The engine's disk on SQLite: one file, one process. See `engine/disk.py` for what it promises.

The writer begins and commits transactions. For reads of the journal and of past numbers see
`past.py`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, TypeVar

import apsw

from courier.core.errors import StoreDamaged
from courier.core.sealed import Sealer
from courier.files import sync_directory
from courier.store.disk_sqlite import statements as sql
from courier.store.disk_sqlite.connection import (
    abandon,
    claim,
    close,
    connect,
    connect_memory,
    disk_errors,
    keep_log,
    refuse_unfinished,
)
from courier.store.disk_sqlite.damage import recover
from courier.store.disk_sqlite.migrate import (
    has_schema_of,
    load_secret,
    migrate,
    refuse_earlier,
)
from courier.store.disk_sqlite.past import SqliteReaders
from courier.store.disk_sqlite.sums import complete, summed
from courier.store.disk_sqlite.volume import Unlimited, Volume, room_to_open
from courier.store.engine.blocks import BlockRow
from courier.store.engine.disk import (
    AfterTrim,
    At,
    Below,
    Between,
    Changes,
    Cutoffs,
    Due,
    Fact,
    GroupHeads,
    InGroup,
    Loose,
    Missed,
    OfClaim,
    Open,
    Opened,
    Ready,
    ReadyGroups,
    Which,
)
from courier.store.engine.layout import SEQ_BITS, SPAN, packed_mask, unpacked_mask
from courier.store.engine.lines import Delivery

T = TypeVar("T")

# Files of the store before this one have lower schema numbers, and are refused.
SCHEMA_BASE = 1_000
_BLOCKS_MAX = 64
_PACKAGE = "courier.store.disk_sqlite"


class SqliteDisk(SqliteReaders):
    """`accepted`: what the start has accepted of damage; empty for none."""

    def __init__(
        self,
        path: Path,
        *,
        sealer: Sealer | None,
        cache_bytes: int,
        free_bytes_min: int,
        check_at_start: str,
        accept_damage: bool,
    ) -> None:
        """Open or create the file. Raises StoreUnavailable when that cannot be done."""
        super().__init__(path)
        with ExitStack() as failing, disk_errors():
            refuse_earlier(path, base=SCHEMA_BASE)
            lock = failing.enter_context(claim(path))
            refuse_unfinished(path)
            failing.enter_context(room_to_open(path))
            db = connect(path, cache_bytes=cache_bytes)
            failing.callback(abandon, db)
            self.accepted = recover(db, path, check=check_at_start, accept=accept_damage)
            volume = Volume(path, db, free_bytes_min=free_bytes_min)
            # A start that failed may have left a log whose name is not durable. It must not go
            # while only some of its pages are copied.
            sync_directory(path.parent)
            volume.empty_log()
            migrate(db, _PACKAGE, base=SCHEMA_BASE)
            _require_schema(db)
            self._begin(db, sealer)
            sync_directory(path.parent)
            volume.look()
            failing.pop_all()
        self.volume = volume
        self._lock: IO[str] = lock

    def _begin(self, db: apsw.Connection, sealer: Sealer | None) -> None:
        complete(db)
        self.db = db
        self._secret = load_secret(db, sealer)
        self._cursor = db.cursor()
        self._execute = self._cursor.execute

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._execute(statement, values).fetchall()

    async def open(self) -> Opened:
        epoch: str = self._execute(sql.EPOCH).get
        newest = self._execute(sql.NEWEST_PACKET).fetchone() or (0, 0, 0)
        oldest = self._execute(sql.OLDEST_PACKET).fetchone() or (newest[0] + 1, newest[1])
        return Opened(
            epoch,
            self._secret,
            [body for (body,) in self._rows(sql.RECORDS)],
            self._rows(sql.LINES),
            [
                (key, until_ms, at_ms, claim, unpacked_mask(count, done))
                for key, until_ms, at_ms, count, claim, done in self._rows(sql.RANGES)
            ],
            self._rows(sql.LEASED_GROUPS, (SEQ_BITS,)),
            (*newest, *oldest),
        )

    # --- reading inside a group ---

    async def blocks(
        self, line: int, seq: int, *, messages: int, bodies: bool, bytes_max: int
    ) -> list[BlockRow]:
        base = line << SEQ_BITS
        key = base | seq
        begin = self._execute(sql.BLOCK_AT, (base, key)).fetchone()
        if begin is not None and begin[0] + begin[1] > key:
            key = begin[0]
        statement = sql.BLOCKS if bodies else sql.BLOCK_METAS
        found: list[BlockRow] = []
        left = messages
        for row in self._execute(statement, (key, base + SPAN, _BLOCKS_MAX)):
            found.append(BlockRow(*row))
            left -= row[4]
            bytes_max -= len(row[9]) if bodies else 0
            if left <= 0 or (bodies and bytes_max <= 0):
                break
        return found

    async def deliveries(
        self, line: int, which: Which, *, pushes: bool, limit: int
    ) -> list[Delivery]:
        base = line << SEQ_BITS
        end = base + SPAN
        table = sql.PUSHES if pushes else sql.DELIVERIES
        if isinstance(which, At):
            if len(which.seqs) == 1:
                rows = self._rows(table.one, (base | which.seqs[0],))
            else:
                rows = self._rows(table.at, (sql.keys_json(base | seq for seq in which.seqs),))
        elif isinstance(which, Ready):
            rows = self._rows(table.ready, (base, end, limit))
        elif isinstance(which, ReadyGroups):
            rows = self._rows(sql.READY_GROUPS, (base, end, limit))
        elif isinstance(which, Between):
            statement = table.between_all if which.over else table.between
            rows = self._rows(statement, (base | which.first, base | which.last, limit))
        elif isinstance(which, InGroup):
            rows = self._rows(sql.GROUP, (which.name, base, end, limit))
        elif isinstance(which, GroupHeads):
            rows = self._rows(sql.HEADS, (base, end, sql.texts_json(which.names)))
        elif isinstance(which, OfClaim):
            rows = self._rows(sql.CLAIMED, (which.claim, limit))
        elif isinstance(which, Open):
            rows = self._rows(sql.OPEN, (base, end, limit))
        else:
            assert isinstance(which, Missed)
            rows = self._rows(sql.MISSED, (base, base + which.before, limit))
        return _stored(rows)

    async def due(self, now_ms: int, *, limit: int) -> Due:
        values = (now_ms, limit)
        return Due(
            _stored(self._rows(sql.DELIVERIES.due, values)),
            _stored(self._rows(sql.PUSHES.due, values)),
            self._rows(sql.EXPIRED, values),
        )

    async def known(self, line: int, kind: str, keys: Sequence[str] | Below) -> dict[str, Fact]:
        if isinstance(keys, Below):
            # What begins with the prefix and a slash sorts before the prefix and what follows: a 0.
            rows = self._rows(sql.FACTS_BELOW, (line, kind, keys.prefix, keys.prefix))
        elif len(keys) == 1:
            rows = self._rows(sql.FACT, (line, kind, keys[0]))
        else:
            rows = self._rows(sql.FACTS, (line, kind, sql.texts_json(keys)))
        return {key: Fact(until_ms, value) for key, until_ms, value in rows}

    # --- writing a group ---

    async def apply(self, changes: Changes, *, last: bool) -> None:
        many = self._cursor.executemany
        for rows, table in ((changes.deliveries, sql.DELIVERIES), (changes.pushes, sql.PUSHES)):
            if rows:
                kept = [row for row in rows.values() if row is not None]
                new = [row for row in kept if not row.stored]
                old = [row for row in kept if row.stored] if new else kept
                if new:
                    many(table.insert, map(_row, new))
                    for row in new:
                        row.stored = True
                if old:
                    many(table.update, map(_changed, old))
                if len(kept) < len(rows):
                    many(table.delete, [(key,) for key, row in rows.items() if row is None])
                rows.clear()
        for key, at_ms in changes.expiries.items():
            if at_ms is None:
                self._execute(sql.DROP_EXPIRY, (key,))
            else:
                self._execute(sql.PUT_EXPIRY, (key, at_ms))
        changes.expiries.clear()
        for fact_key, fact in changes.facts.items():
            if fact is None:
                self._execute(sql.DROP_FACT, fact_key)
            else:
                self._execute(sql.PUT_FACT, (*fact_key, *fact))
        changes.facts.clear()
        if last:
            self._apply_rest(changes)

    def _apply_rest(self, changes: Changes) -> None:
        execute, many = self._execute, self._cursor.executemany
        for (kind, id), body in changes.records.items():
            if body is None:
                execute(sql.DROP_RECORD, (kind, id))
            else:
                execute(sql.PUT_RECORD, summed((kind, id, body)))
        for no in changes.emptied:
            base = no << SEQ_BITS
            for statement in sql.EMPTY:
                execute(statement, (base, base + SPAN))
            execute(sql.DROP_FACTS, (no,))
        for no, line in changes.lines.items():
            if line is None:
                execute(sql.DROP_LINE, (no,))
            else:
                execute(sql.PUT_LINE, summed(line.row()))
        for block in changes.blocks:
            execute(sql.PUT_BLOCK, block)
        for long_block in changes.long_blocks:
            execute(sql.PUT_BLOCK, long_block.row())
        for key, ended in changes.ranges.items():
            if ended.left:
                mask = packed_mask(ended.done) if ended.left < len(ended.done) else None
                count = len(ended.done)
                row = (key, ended.until_ms, ended.at_ms, count, ended.claim, mask)
                execute(sql.PUT_RANGE, summed(row))
            elif ended.stored:
                execute(sql.DROP_RANGE, (key,))
        for key in changes.freed:
            execute(sql.DROP_BLOCK, (key,))
            execute(sql.DROP_EXPIRY, (key,))
        if changes.settled:
            many(sql.DROP_SETTLED, changes.settled)
        if changes.forgotten:
            many(sql.DROP_FACTS_BETWEEN, changes.forgotten)
        if changes.packet:
            execute(sql.PUT_PACKET, changes.packet)
        for minute, totals in changes.minutes.items():
            execute(sql.ADD_MINUTE, (*minute, *totals))
        if changes.levels:
            many(sql.PUT_LEVEL, changes.levels)

    # --- trimming, inside a group ---

    async def trim(
        self, upto: int, *, before_ms: int | None, loose_after: int, limit: int
    ) -> AfterTrim:
        last = self._execute(sql.LAST_OLD, (upto, limit, before_ms)).get
        if last is not None:
            self._execute(sql.TRIM, (last,))
        first, before_bytes = self._execute(sql.OLDEST_PACKET).fetchone() or (1, 0)
        loose = self._rows(sql.LOOSE, (loose_after, first - 1, limit))
        return AfterTrim(first, before_bytes, [Loose(*row) for row in loose])

    async def forget(self, cutoffs: Cutoffs, *, limit: int) -> bool:
        old = (self._execute(sql.ROLLED).get, cutoffs.minute, limit)
        forgotten = [
            self._changes(sql.FORGET_FACTS, (cutoffs.now_ms, limit)),
            self._changes(sql.FORGET_LEVELS, (cutoffs.level, limit)),
            self._changes(sql.FORGET_MINUTES, (cutoffs.hour, limit)),
        ]
        self._execute(sql.SUM_UP, old)
        summed = self._changes(sql.FORGET_SUMMED, old)
        if 0 < summed < limit:
            self._execute(sql.SAVE_ROLLED, (cutoffs.minute,))
        return max(*forgotten, summed) < limit

    def _changes(self, statement: str, values: tuple[int, ...]) -> int:
        self._execute(statement, values)
        return self.db.changes()

    async def close(self) -> None:
        self._readers.shutdown()
        self.volume.close()
        close(self.db)
        self.volume.closed()
        self._lock.close()

    async def abandon(self) -> None:
        """Close what could not be read, and leave it as it is."""
        keep_log(self.db)
        await self.close()


class MemoryDisk(SqliteDisk):
    """The same tables in memory, gone with the process. Nothing waits for it: reads run between
    two groups, on the same connection."""

    def __init__(self) -> None:
        self.accepted = {}
        db = connect_memory()
        migrate(db, _PACKAGE, base=SCHEMA_BASE)
        self._begin(db, None)
        self.volume = Unlimited(self.db)

    def _reader(self) -> apsw.Connection:
        return self.db

    async def _read(self, verb: Callable[..., T], *values: Any) -> T:
        return verb(*values)

    async def close(self) -> None:
        close(self.db)


def _require_schema(db: apsw.Connection) -> None:
    """Raises StoreDamaged when the file's own words for its tables are not ours."""
    with closing(connect_memory()) as right:
        migrate(right, _PACKAGE, base=SCHEMA_BASE)
        if not has_schema_of(db, right):
            raise StoreDamaged("schema")


def _stored(rows: Sequence[Sequence[Any]]) -> list[Delivery]:
    make: Callable[..., Delivery] = Delivery
    return [make(*row, None, True) for row in rows]


_row = attrgetter(*Delivery.__struct_fields__[:-2])
# Of a message that has a row, only these columns change; so do their indexes alone.
_changed = attrgetter(
    *("state", "attempt", "due_ms", "first_ms", "last_ms", "follows", "claim", "report", "key")
)
