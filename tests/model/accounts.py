"""The books of an engine's store, audited by brute force: nothing here shares code with it.

Every body that something needs is there, nothing is kept that nothing needs, and every counter is
what counting says.
"""

from collections import Counter
from typing import Any

import apsw
import msgspec

from courier.store.embedded import EmbeddedStore
from courier.store.engine.disk import Below, Changes, Due, Which
from courier.store.engine.lines import QueueLine

SEQ_BITS = 42
SEQ_MASK = (1 << SEQ_BITS) - 1
READY, LEASED, DELAYED, WAITING, EXHAUSTED = range(5)
GONE = -1
HELD, ROWS = 1, 2
SHELF = "shelf"


class Audit:
    """Everything that the tables say, line by line."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.db: apsw.Connection = store.disk.db
        self.head = store.book.journal_first
        self.blocks: dict[int, Any] = {
            row[0]: row
            for row in self.db.execute("SELECT id, count, flags, only, last, meta, data FROM block")
        }
        self.bodies = {key: msgspec.msgpack.decode(row[6]) for key, row in self.blocks.items()}
        self.sizes: dict[int, int] = {}
        for key, row in self.blocks.items():
            sizes = msgspec.msgpack.decode(row[5], strict=False)[0]
            for place in range(row[1]):
                self.sizes[key + place] = sizes[place] if isinstance(sizes, list) else sizes
        self.lines: list[Any] = self.db.execute("SELECT * FROM line").fetchall()

    def block_of(self, key: int) -> int:
        """The block that holds a message."""
        found = max(block for block in self.blocks if block <= key)
        assert key < found + self.blocks[found][1], "a message without its block"
        return found

    def run(self) -> None:
        needed = {key for key, row in self.blocks.items() if row[4] >= self.head}
        queues = {row[1]: row for row in self.lines if not row[2] and row[18] is None}
        for row in self.lines:
            if row[2]:
                queue = queues.get(row[1])
                if queue is not None:
                    tail = min(row[3], queue[3])
                    needed |= self.audit(row, queue[0] << SEQ_BITS, tail, "push")
            elif row[18] is None:
                needed |= self.audit(row, row[0] << SEQ_BITS, row[3], "delivery")
        live = {row[0] for row in self.lines if row[18] is not None}
        for key in self.blocks.keys() - needed:
            assert key >> SEQ_BITS in live, f"nothing needs block {key}"
        assert needed <= self.blocks.keys()

    def audit_groups(self, leased: dict[int, dict[str, int]]) -> None:
        """How many messages of each group are leased, by line."""
        found: dict[int, Counter[str]] = {}
        rows = self.db.execute("SELECT id, grp FROM delivery WHERE state = 1 AND grp IS NOT NULL")
        for id, group in rows:
            found.setdefault(id >> SEQ_BITS, Counter())[group] += 1
        assert {no: dict(groups) for no, groups in found.items()} == leased

    def audit(self, row: Any, base: int, tail: int, table: str) -> set[int]:
        """Count one line's messages; the blocks that hold them."""
        no, cursor = row[0], row[4]
        mine = no << SEQ_BITS
        states: Counter[int] = Counter()
        alive: set[int] = set()
        over: set[int] = set()
        rows = self.db.execute(
            f"SELECT id, state FROM {table} WHERE id > ? AND id < ?", (mine, mine + SEQ_MASK)
        )
        for id, state in rows:
            seq = id & SEQ_MASK
            (alive if state >= 0 else over).add(seq)
            states[state] += 1
            assert state != GONE or seq > cursor, "the cursor has passed what is gone"
        leased = 0
        ranges = self.db.execute(
            "SELECT id, count, done FROM range WHERE id > ? AND id < ?", (mine, mine + SEQ_MASK)
        )
        for id, count, done in ranges:
            bits = f"{int.from_bytes(done or b'', 'big'):0{count}b}"
            seqs = {(id & SEQ_MASK) + place for place in range(count) if bits[place] == "0"}
            assert seqs and not seqs & alive, "a range that is done, or beside a row"
            assert max(seqs) <= cursor
            alive |= seqs
            leased += len(seqs)
        fresh = self.fresh(no, base, cursor, tail, table) - over - alive
        alive |= fresh
        count, bytes, *counters = row[5:13]
        told = [len(fresh), states[READY], leased + states[LEASED], states[DELAYED]]
        assert counters == [*told, states[EXHAUSTED], states[GONE]], (counters, told, states)
        if table == "delivery":
            assert count == len(alive), (count, alive)
        if table == "delivery" or row[2] == SHELF:
            assert bytes == sum(self.sizes[base | seq] for seq in alive)
        for seq in alive:
            block = self.block_of(base | seq)
            assert self.bodies[block][(base | seq) - block] is not None, "a body is gone"
        return {self.block_of(base | seq) for seq in alive}

    def fresh(self, no: int, base: int, cursor: int, tail: int, table: str) -> set[int]:
        found: set[int] = set()
        for key, count, flags, only, *_ in self.blocks.values():
            if key >> SEQ_BITS != base >> SEQ_BITS:
                continue
            passes = flags & HELD or only not in (0, no)
            if table == "delivery":
                passes = flags or only
            if not passes:
                first = key & SEQ_MASK
                found |= {seq for seq in range(first, first + count) if cursor < seq <= tail}
        return found


def audit(store: EmbeddedStore) -> None:
    Audit(store).run()
    lines = store.book.by_no.values()
    groups = {line.no: line.leased_groups for line in lines if isinstance(line, QueueLine)}
    Audit(store).audit_groups({no: leased for no, leased in groups.items() if leased})


class CheckedDisk:
    """A disk that refuses to read a table while the group has changes of it that are not spilled.

    Rows that are asked for by key are looked for among the changes first, so that is allowed for
    keys that are not changed.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self._disk = store.book.disk
        self._book = store.book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    @property
    def _changes(self) -> Changes:
        return self._book.changes

    async def deliveries(self, line: int, which: Which, *, pushes: bool, limit: int) -> Any:
        changed = self._changes.pushes if pushes else self._changes.deliveries
        seqs = getattr(which, "seqs", None)
        if seqs is None:
            assert not changed, f"{which} is read beside changes that are not spilled"
        else:
            assert not changed.keys() & {line << SEQ_BITS | seq for seq in seqs}
        return await self._disk.deliveries(line, which, pushes=pushes, limit=limit)

    async def due(self, now_ms: int, *, limit: int) -> Due:
        assert not self._changes.spillable
        return await self._disk.due(now_ms, limit=limit)

    async def known(self, line: int, kind: str, keys: Any) -> Any:
        if isinstance(keys, Below):
            assert not self._changes.facts
        else:
            assert not self._changes.facts.keys() & {(line, kind, key) for key in keys}
        return await self._disk.known(line, kind, keys)


def checked(store: EmbeddedStore) -> EmbeddedStore:
    disk: Any = CheckedDisk(store)
    store.book.disk = disk
    return store
