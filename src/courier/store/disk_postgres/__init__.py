"""The engine's disk on PostgreSQL: many nodes. See `engine/disk.py` for what it promises.

All nodes change one state, one group after the other: a group begins by locking the row `head`,
then learns what other nodes have changed since its own last one. So everything that the engine
keeps in memory is as true as on one node, and offsets are dense as they are given.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import asyncpg

from courier import ids
from courier.core.duties import Fence
from courier.core.types import Level, Tally
from courier.store.disk_postgres import statements as sql
from courier.store.disk_postgres.connection import (
    ERRORS,
    LOST,
    Address,
    InDoubt,
    Overtaken,
    Unconfirmed,
    confirmed,
    disk_errors,
)
from courier.store.engine.blocks import BlockRow
from courier.store.engine.disk import (
    SEARCHED_BLOCKS,
    SEARCHED_BYTES,
    AfterTrim,
    At,
    Below,
    Between,
    Changed,
    Changes,
    Cutoffs,
    Due,
    Fact,
    GroupHeads,
    InGroup,
    Loose,
    Missed,
    Needles,
    OfClaim,
    Open,
    Opened,
    Packet,
    Ready,
    ReadyGroups,
    Since,
    Which,
    searched,
)
from courier.store.engine.journal import packet_bytes
from courier.store.engine.layout import (
    SEQ_BITS,
    SEQ_MASK,
    SPAN,
    packed_mask,
    unpacked_mask,
)
from courier.store.engine.lines import Delivery

Connection = Any

_BLOCKS_MAX = 64
_PACKETS_MAX = 64
# How many groups are remembered for nodes that were away; who was away for longer reads everything.
GROUPS_KEPT = 5_000
_FORGET_EVERY = 500
# As much of what others have published is read with the note of it.
PUBLISHED_BYTES_MAX = 256 << 10
# How long readers wait for a standby.
CONFIRM_S_MAX = 5.0


class _Head(NamedTuple):
    grp: int
    journal_last: int
    journal_bytes: int
    journal_ms: int
    journal_first: int
    journal_start_bytes: int
    next_due_ms: int


_HEAD_COLUMNS = len(_Head._fields) + 1  # and whose group was the last that this node has seen


class _Unlocked:
    """In place of the connection of a group that has not locked the head: the first statement does,
    unless it is the only one."""

    def __init__(self, connection: Connection, head_grp: int) -> None:
        self.connection = connection
        self.after = head_grp
        self.locked = False

    async def _lock(self) -> Connection:
        if not self.locked:
            await self.connection.execute("BEGIN")
            self.locked = True
            if await self.connection.fetchval(sql.LOCK_GROUP) != self.after:
                raise Overtaken
        return self.connection

    async def fetch(self, *args: Any) -> Any:
        return await (await self._lock()).fetch(*args)

    async def fetchrow(self, *args: Any) -> Any:
        return await (await self._lock()).fetchrow(*args)

    async def fetchval(self, *args: Any) -> Any:
        return await (await self._lock()).fetchval(*args)

    async def execute(self, *args: Any) -> Any:
        return await (await self._lock()).execute(*args)

    async def executemany(self, *args: Any) -> Any:
        return await (await self._lock()).executemany(*args)

    async def require_last(self) -> None:
        """Raises Overtaken when another node has written."""
        if not self.locked and await self.connection.fetchval(sql.GROUP_NO) != self.after:
            raise Overtaken

    async def commit(self, args: Sequence[Any]) -> None:
        """The group is one statement. Raises Overtaken, or InDoubt."""
        try:
            await _apply(self.connection, args)
        except LOST as error:
            raise InDoubt(str(error)) from error


async def _apply(connection: Connection, values: Sequence[Any]) -> None:
    """Raises Overtaken when another group has come since."""
    if await connection.execute(sql.APPLY, *values) != "SELECT 1":
        raise Overtaken


class PostgresDisk:
    """`token` names this node among those that write groups."""

    def __init__(
        self,
        address: Address,
        readers: "asyncpg.Pool[Any]",
        *,
        epoch: str,
        secret: bytes,
        token: int,
    ) -> None:
        self._address = address
        self._epoch = epoch
        self._secret = secret
        self._token = token
        self._readers = readers
        self._connection: Connection = None
        self._head = _Head(0, 0, 0, 0, 1, 0, 0)
        # Up to which group this node knows what is in the database, and whose that group was.
        self.seen = 0
        self._seen_token: int | None = None
        # Up to which offset the journal stays as it is, whatever happens to the primary.
        self._confirmed_last = 0
        # Groups that this node has seen are not in the database any more: a standby took over that
        # did not have them, or a backup was restored.
        self.went_back = False
        # The group is in the database already: it was one statement.
        self.is_committed = False

    # --- a group, for the writer ---

    async def lock(self, connection: Connection) -> bool:
        """Begin a group in the open transaction; False: other nodes have written since."""
        return await self._read_head(connection, sql.LOCK_HEAD)

    async def look(self, connection: Connection) -> bool:
        """The same without a lock, in a transaction that only reads."""
        return await self._read_head(connection, sql.HEAD)

    def begin_unlocked(self, connection: Connection) -> None:
        """Begin a group that locks the head when it first asks the database for something. If it
        asks nothing, all of it is one statement, which does nothing if another node has written."""
        self._connection = _Unlocked(connection, self.seen)
        self.is_committed = False

    @property
    def may_commit_at_once(self) -> bool:
        return isinstance(self._connection, _Unlocked) and not self._connection.locked

    async def end_unchanged(self) -> None:
        """The group has nothing to write. Raises Overtaken when what it saw is no longer true."""
        if isinstance(self._connection, _Unlocked):
            await self._connection.require_last()

    async def _read_head(self, connection: Connection, statement: str) -> bool:
        self._connection = connection
        self.is_committed = False
        return self._put_head(await connection.fetchrow(statement, self.seen))

    def _put_head(self, row: Sequence[Any]) -> bool:
        *head, token = row
        self._head = _Head(*head)
        known = token is None or self._seen_token is None or token == self._seen_token
        self.went_back = self._head.grp < self.seen or not known
        if self.went_back:
            self._confirmed_last = 0
        return self._head.grp == self.seen

    async def happened(self, connection: Connection) -> bool:
        """Whether the group that was in doubt is in the database. Waits for the connection that it
        was sent on; what is then committed says that all before it is durable, too."""
        await self._read_head(connection, sql.LOCK_HEAD)
        token = await connection.fetchval(sql.TOKEN, self.seen + 1)
        await connection.execute(sql.BARRIER)
        return bool(token == self._token)

    async def begin_epoch(self) -> None:
        """Offsets that were given before the loss are given again, to other events: so the journal
        is another one, and every node reads everything. One node of several does it."""
        status = await self._connection.execute(sql.NEW_EPOCH, ids.new_id(), self._epoch)
        if status == "UPDATE 1":
            await self._connection.execute(sql.SKIP_GROUPS, GROUPS_KEPT + 1)

    def committed(self) -> None:
        """The group is in the database."""
        self.seen += 1
        self._seen_token = self._token
        self._confirmed_last = self._head.journal_last

    async def kept(self, last: int) -> None:
        """Until the journal stays as it is up to that offset, whatever happens to the primary.
        Raises StoreUnavailable.

        What others have written shows before a standby has it, when their wait for that was ended
        or the primary has started again.
        """
        if last > self._confirmed_last:
            with disk_errors(self._address):
                async with self._readers.acquire() as db:
                    await self._confirm(db, last)

    async def _confirm(self, connection: Connection, last: int) -> None:
        """A commit that is durable says so of all that the connection has shown before."""
        if last > self._confirmed_last:
            async with asyncio.timeout(CONFIRM_S_MAX):
                shown = await connection.fetchval(sql.LAST_OFFSET) or 0
                with confirmed(connection):
                    await connection.execute(sql.CONFIRM)
            if shown < last:
                raise Unconfirmed
            self._confirmed_last = max(self._confirmed_last, shown)

    async def changed(self, is_fifo: Callable[[int], bool], *, bodies: bool) -> Changed | None:
        """What other nodes have changed since the last look; None: it is not known any more.
        `bodies`: with some of what they have published."""
        bytes_max = PUBLISHED_BYTES_MAX if bodies else 0
        row = await self._connection.fetchrow(sql.CHANGED, self.seen, bytes_max)
        return await self._changed(row, is_fifo)

    async def look_in_turn(
        self, connection: Connection, is_fifo: Callable[[int], bool]
    ) -> tuple[bool, Changed | None]:
        """`begin_unlocked`, and what others have changed if they have: (False, None) if it is not
        known."""
        row = await connection.fetchrow(sql.HEAD_CHANGED, self.seen, PUBLISHED_BYTES_MAX)
        same = self._put_head(row[:_HEAD_COLUMNS])
        self._connection = _Unlocked(connection, self._head.grp)
        self.is_committed = False
        if same or self.went_back:
            return same and not self.went_back, None
        return False, await self._changed(row[_HEAD_COLUMNS:], is_fifo)

    async def _changed(self, row: Sequence[Any], is_fifo: Callable[[int], bool]) -> Changed | None:
        groups, found, held, published = row
        if len(groups) != self._head.grp - self.seen:
            return None
        lines = {no for group in groups for no in group["lines"]}
        ranges = {key for group in groups for key in group["ranges"]}
        records: dict[tuple[str, str], bytes | None] = {}
        for name in {name for group in groups for name in group["records"]}:
            kind, _, id = name.partition(":")
            records[kind, id] = await self._connection.fetchval(sql.RECORD, kind, id)
        groups_of: dict[int, dict[str, int]] = {}
        for no in filter(is_fifo, lines):
            base = no << SEQ_BITS
            leased = await self._rows(sql.LEASED_GROUPS_OF, base, base + SPAN)
            groups_of[no] = {name.decode(): count for name, count in leased}
        head = self._head
        self.seen, self._seen_token = head.grp, groups[-1]["token"]
        return Changed(
            dict.fromkeys(lines) | {row[0]: tuple(row) for row in found},
            groups_of,
            dict.fromkeys(ranges) | _ranges(held),
            [key for group in groups for key in group["blocks"]],
            [BlockRow(*block) for block in published],
            records,
            (*head[1:6],),
            head.next_due_ms,
        )

    # --- reading inside a group ---

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        found: list[Any] = await self._connection.fetch(statement, *values)
        return found

    async def open(self) -> Opened:
        self.seen = self._head.grp
        self._seen_token = await self._connection.fetchval(sql.TOKEN, self.seen)
        self._epoch = await self._connection.fetchval(sql.EPOCH)
        groups = await self._rows(sql.LEASED_GROUPS)
        return Opened(
            self._epoch,
            self._secret,
            [row[0] for row in await self._rows(sql.RECORDS)],
            [tuple(row) for row in await self._rows(sql.LINES)],
            list(_ranges(await self._rows(sql.RANGES)).values()),
            [(no, name.decode(), count) for no, name, count in groups],
            (*self._head[1:6],),
        )

    async def blocks(
        self, line: int, seq: int, *, messages: int, bodies: bool, bytes_max: int
    ) -> list[BlockRow]:
        base = line << SEQ_BITS
        key = base | seq
        begin = await self._connection.fetchrow(sql.BLOCK_AT, base, key)
        if begin is not None and begin[0] + begin[1] > key:
            key = begin[0]
        count = 1
        if messages > 1:
            sizes = await self._rows(sql.BLOCK_SIZES, key, base + SPAN, _BLOCKS_MAX)
            count = _enough(sizes, messages, bytes_max if bodies else None)
        statement = sql.BLOCKS if bodies else sql.BLOCK_METAS
        return [BlockRow(*row) for row in await self._rows(statement, key, base + SPAN, count)]

    async def deliveries(
        self, line: int, which: Which, *, pushes: bool, limit: int
    ) -> list[Delivery]:
        base = line << SEQ_BITS
        end = base + SPAN
        table = sql.PUSHES if pushes else sql.DELIVERIES
        if isinstance(which, At):
            rows = await self._rows(table.at, [base | seq for seq in which.seqs])
        elif isinstance(which, Ready):
            rows = await self._rows(table.ready, base, end, limit)
        elif isinstance(which, ReadyGroups):
            rows = await self._rows(sql.READY_GROUPS, base, end, limit)
        elif isinstance(which, Between):
            statement = table.between_all if which.over else table.between
            rows = await self._rows(statement, base | which.first, base | which.last, limit)
        elif isinstance(which, InGroup):
            rows = await self._rows(sql.GROUP, which.name.encode(), base, end, limit)
        elif isinstance(which, GroupHeads):
            names = [name.encode() for name in which.names]
            rows = await self._rows(sql.HEADS, base, end, names)
        elif isinstance(which, OfClaim):
            rows = await self._rows(sql.CLAIMED, which.claim, limit)
        elif isinstance(which, Open):
            rows = await self._rows(sql.OPEN, base, end, limit)
        else:
            assert isinstance(which, Missed)
            rows = await self._rows(sql.MISSED, base, base + which.before, limit)
        return [_stored(row) for row in rows]

    async def due(self, now_ms: int, *, limit: int) -> Due:
        return Due(
            [_stored(row) for row in await self._rows(sql.DELIVERIES.due, now_ms, limit)],
            [_stored(row) for row in await self._rows(sql.PUSHES.due, now_ms, limit)],
            [(row[0], row[1]) for row in await self._rows(sql.EXPIRED, now_ms, limit)],
        )

    async def known(self, line: int, kind: str, keys: Sequence[str] | Below) -> dict[str, Fact]:
        if isinstance(keys, Below):
            # What begins with the prefix and a slash sorts before the prefix and what follows: a 0.
            prefix = keys.prefix.encode()
            rows = await self._rows(sql.FACTS_BELOW, line, kind, prefix + b"/", prefix + b"0")
        else:
            rows = await self._rows(sql.FACTS, line, kind, [key.encode() for key in keys])
        return {key.decode(): Fact(until_ms, value) for key, until_ms, value in rows}

    # --- writing a group ---

    async def apply(self, changes: Changes, *, last: bool) -> None:
        execute = self._connection.execute
        for rows, table in ((changes.deliveries, sql.DELIVERIES), (changes.pushes, sql.PUSHES)):
            if rows:
                kept = [row for row in rows.values() if row is not None]
                if new := [_row(row) for row in kept if not row.stored]:
                    await execute(table.insert, new)
                if changed := [_row(row) for row in kept if row.stored]:
                    await execute(table.update, changed)
                if len(kept) < len(rows):
                    await execute(table.delete, [key for key, row in rows.items() if row is None])
                for row in kept:
                    row.stored = True
                rows.clear()
        if changes.expiries:
            expiries = [
                (key, at_ms) for key, at_ms in changes.expiries.items() if at_ms is not None
            ]
            await self._connection.executemany(sql.PUT_EXPIRY, expiries)
            over = [key for key, at_ms in changes.expiries.items() if at_ms is None]
            await execute(sql.DROP_EXPIRIES, over)
            changes.expiries.clear()
        if changes.facts:
            await self._apply_facts(changes)
        if last:
            await self._apply_rest(changes)

    async def _apply_facts(self, changes: Changes) -> None:
        many = self._connection.executemany
        kept = [
            (line, kind, key.encode(), *fact)
            for (line, kind, key), fact in changes.facts.items()
            if fact is not None
        ]
        gone = [
            (line, kind, key.encode())
            for (line, kind, key), fact in changes.facts.items()
            if fact is None
        ]
        if kept:
            await many(sql.PUT_FACT, kept)
        if gone:
            await many(sql.DROP_FACT, gone)
        changes.facts.clear()

    async def _apply_rest(self, changes: Changes) -> None:
        execute, many = self._connection.execute, self._connection.executemany
        for (kind, id), body in changes.records.items():
            if body is None:
                await execute(sql.DROP_RECORD, kind, id)
            else:
                await execute(sql.PUT_RECORD, kind, id, body)
        for no in changes.emptied:
            base = no << SEQ_BITS
            for statement in sql.EMPTY:
                await execute(statement, base, base + SPAN)
            await execute(sql.DROP_FACTS, no)
        if gone := [no for no, line in changes.lines.items() if line is None]:
            await execute("DELETE FROM lines WHERE no = ANY($1)", gone)
        await self._apply_rows(changes)
        for block in changes.long_blocks:
            await execute(sql.PUT_BLOCK, *block.row())
        if changes.freed:
            await execute(sql.DROP_BLOCKS, changes.freed)
            await execute(sql.DROP_EXPIRIES, changes.freed)
        if changes.settled:
            await many(sql.DROP_SETTLED, changes.settled)
        for line, kind, first, end in changes.forgotten:
            await execute(sql.DROP_FACTS_BETWEEN, line, kind, first.encode(), end.encode())
        if changes.levels:
            await many(sql.PUT_LEVEL, changes.levels)
        if self._head.grp % _FORGET_EVERY == 0:
            await execute(sql.FORGET_GROUPS, self._head.grp - GROUPS_KEPT)

    async def _apply_rows(self, changes: Changes) -> None:
        """What nearly every group writes, and the note of what it changed."""
        ranges = []
        ended = []
        for key, found in changes.ranges.items():
            if found.left:
                mask = packed_mask(found.done) if found.left < len(found.done) else None
                count = len(found.done)
                ranges.append((key, found.until_ms, found.at_ms, count, found.claim, mask))
            elif found.stored:
                ended.append(key)
        head = self._head._replace(next_due_ms=changes.next_due_ms)
        packets = [] if changes.packet is None else [changes.packet]
        if changes.packet is not None:
            packet = changes.packet
            head = head._replace(
                journal_last=packet.last,
                journal_bytes=packet.total_bytes,
                journal_ms=packet.at_ms,
            )
        grp = head.grp + 1
        note = (
            grp,
            self._token,
            list(changes.lines),
            list(changes.ranges),
            [*changes.freed, *(block.key for block in changes.blocks)],
            [f"{kind}:{id}" for kind, id in changes.records],
        )
        self._head = head._replace(grp=grp)
        values = (
            [line.row() for line in changes.lines.values() if line is not None],
            changes.blocks,
            ranges,
            ended,
            packets,
            [(*minute, *totals) for minute, totals in changes.minutes.items()],
            [note],
            *self._head,
            head.grp,
        )
        connection = self._connection
        if isinstance(connection, _Unlocked) and not connection.locked and _is_all(changes, grp):
            await connection.commit(values)
            self.is_committed = True
        else:
            await _apply(connection, values)

    # --- trimming, inside a group ---

    async def trim(
        self, upto: int, *, before_ms: int | None, loose_after: int, limit: int
    ) -> AfterTrim:
        last = await self._connection.fetchval(sql.LAST_OLD, upto, limit, before_ms)
        if last is not None:
            await self._connection.execute(sql.TRIM, last)
            first, before_bytes = await self._connection.fetchrow(sql.OLDEST_PACKET)
            self._head = self._head._replace(journal_first=first, journal_start_bytes=before_bytes)
        first = self._head.journal_first
        loose = await self._rows(sql.LOOSE, loose_after, first - 1, limit)
        return AfterTrim(first, self._head.journal_start_bytes, [Loose(*row) for row in loose])

    async def forget(self, cutoffs: Cutoffs, *, limit: int) -> bool:
        forgotten = [
            await self._deleted(sql.FORGET_FACTS, cutoffs.now_ms, limit),
            await self._deleted(sql.FORGET_LEVELS, cutoffs.level, limit),
            await self._deleted(sql.FORGET_MINUTES, cutoffs.hour, limit),
        ]
        rolled = await self._connection.fetchval(sql.ROLLED)
        summed = await self._connection.fetchval(sql.SUM_UP, rolled, cutoffs.minute, limit)
        if 0 < summed < limit:
            await self._connection.execute(sql.SAVE_ROLLED, cutoffs.minute)
        return bool(max(*forgotten, summed) < limit)

    async def _deleted(self, statement: str, *values: int) -> int:
        status: str = await self._connection.execute(statement, *values)
        return int(status.rpartition(" ")[2])

    # --- the past, beside the group ---

    @asynccontextmanager
    async def _reading(self, told: Callable[[], int] = lambda: 0) -> AsyncIterator[Connection]:
        """A connection that sees one moment. `told`: the last offset of what it has shown."""
        with disk_errors(self._address):
            async with self._readers.acquire() as db:
                async with db.transaction(isolation="repeatable_read", readonly=True):
                    yield db
                await self._confirm(db, told())

    async def packets(
        self, after: int | Since, *, limit: int, bytes_max: int | None
    ) -> list[tuple[Packet, list[BlockRow]]]:
        found: list[tuple[Packet, list[BlockRow]]] = []
        count = size = 0
        # Packets and blocks must be of one moment: a trim may come between.
        async with self._reading(lambda: found[-1][0].last if found else 0) as db:
            if isinstance(after, Since):
                after = await _last_before(db, after.at_ms)
            while rows := await db.fetch(sql.PACKETS, after, _PACKETS_MAX if limit > 1 else 1):
                for row in rows:
                    packet = Packet(*row)
                    blocks = [BlockRow(*b) for b in await db.fetch(sql.BLOCKS_OF, packet.last)]
                    found.append((packet, blocks))
                    count += min(packet.length, packet.last - after)
                    size += packet_bytes(packet, blocks)
                    if count >= limit or (bytes_max is not None and size >= bytes_max):
                        return found
                after = packet.last
        return found

    async def holding(
        self, line: int, needles: Needles, *, first: int, last: int, newest: bool, limit: int
    ) -> tuple[list[BlockRow], int]:
        base = line << SEQ_BITS
        search = sql.SEARCH_BACKWARDS if newest else sql.SEARCH
        async with self._reading() as db:
            begin = await db.fetchrow(sql.BLOCK_AT, base, base | first)
            low, high = base | first, base | last
            if begin is not None and begin[0] + begin[1] > low:
                low = begin[0]
            part = (low, high, SEARCHED_BLOCKS, SEARCHED_BYTES)
            low, high = await db.fetchrow(search.part, *part)
            if low is None:
                return [], 0
            rest = (base | needles.seq, needles.name, line, SEQ_MASK, limit)
            values = (low, high, *needles.bodies, *needles.rest, *rest)
            found = [BlockRow(*row) for row in await db.fetch(search.holding, *values)]
        return found, searched(found, (low, high), (first, last), newest=newest, limit=limit)

    async def tallies(
        self, tenant: str, id: str | None, since_minute: int, until_minute: int
    ) -> list[Tally]:
        minutes = (since_minute, until_minute)
        async with self._reading() as db:
            if id is None:
                rows = await db.fetch(sql.TALLIES, tenant, *minutes)
            else:
                rows = await db.fetch(sql.TALLIES_OF, id, tenant, *minutes)
        return [Tally(*row) for row in rows]

    async def levels(self, queues: Sequence[str], since_minute: int) -> list[list[Level]]:
        async with self._reading() as db:
            return [
                [Level(*row) for row in await db.fetch(sql.LEVELS, queue, since_minute)]
                for queue in queues
            ]

    async def hold(self, duties: Sequence[str], *, evenly: bool) -> dict[str, int]:
        """By the database's clock: who does not ask for five seconds has lost it."""
        with disk_errors(self._address):
            async with self._readers.acquire() as db:
                if not evenly:
                    return dict(await db.fetch(sql.HOLD, duties, self._token))
                await db.execute(sql.NAME_DUTIES, duties)
                return dict(await db.fetch(sql.HOLD_EVENLY, duties, self._token))

    async def held(self, duties: Sequence[str]) -> set[Fence]:
        """Of these duties those that this node has, until the group is over."""
        return {Fence(*row) for row in await self._rows(sql.HELD, self._token, list(duties))}

    async def close(self) -> None:
        """Let others have this node's duties at once."""
        with suppress(*ERRORS):
            await self._readers.execute(sql.LET_GO, self._token)
        self._readers.terminate()


async def _last_before(db: Connection, at_ms: int) -> int:
    """The last offset of the packets before that time: they lie in the order of their times."""
    before, upto = 0, await db.fetchval(sql.LAST_OFFSET) or 0
    while before < upto:
        middle = (before + upto) // 2
        last, then_ms = await db.fetchrow(sql.PACKET_TIME, middle)
        if then_ms < at_ms:
            before = last
        else:
            upto = middle
    return int(before)


def _ranges(rows: Iterable[Any]) -> dict[int, Any]:
    return {
        key: (key, until_ms, at_ms, claim, unpacked_mask(count, done))
        for key, until_ms, at_ms, count, claim, done in rows
    }


def _is_all(changes: Changes, grp: int) -> bool:
    """Whether nothing is written but what nearly every group writes."""
    more = (changes.long_blocks, changes.freed, changes.settled, changes.forgotten, changes.levels)
    return not any(more) and grp % _FORGET_EVERY != 0


def _enough(sizes: Sequence[Any], messages: int, bytes_max: int | None) -> int:
    """How many blocks it takes to reach that many messages, or bytes."""
    count = size = held = 0
    for length, nbytes in sizes:
        count, held, size = count + 1, held + length, size + nbytes
        if held >= messages or (bytes_max is not None and size >= bytes_max):
            break
    return max(1, count)


def _stored(row: Any) -> Delivery:
    values = list(row)
    values[8] = None if values[8] is None else values[8].decode()
    values[10] = None if values[10] is None else values[10].decode()
    found = Delivery(*values)
    found.stored = True
    return found


def _row(d: Delivery) -> tuple[Any, ...]:
    return (
        d.key,
        d.state,
        d.attempt,
        d.due_ms,
        d.published_ms,
        d.first_ms,
        d.last_ms,
        d.size,
        None if d.own_id is None else d.own_id.encode(),
        d.expires_ms,
        None if d.group is None else d.group.encode(),
        int(d.follows),
        d.claim,
        d.report,
    )
