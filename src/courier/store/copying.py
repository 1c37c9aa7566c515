"""A whole store copied from one disk to another, row by row, offsets and leases and all.

Rows are copied in the order of their keys, a few at a time, each time in a transaction. So a copy
that was broken off goes on after the last row that arrived. A target that is not complete is
opened by no server. At the end both sides are read once more and compared.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from courier.core.errors import StoreUnavailable
from courier.store.copy_tables import COPY_TABLES, CopyMeta, CopyTable

Row = tuple[Any, ...]

_encode = msgspec.msgpack.Encoder().encode


class CopySource(Protocol):
    shown: str

    async def meta(self) -> CopyMeta: ...

    async def count(self, table: CopyTable) -> int: ...

    async def rows(self, table: CopyTable, after: Row | None) -> list[Row]:
        """The next rows after that key."""
        ...

    async def begin_epoch(self) -> str:
        """Let the journal be another one for those who read it: the new epoch."""
        ...

    async def close(self) -> None: ...


class CopyTarget(CopySource, Protocol):
    async def begin(self, meta: CopyMeta, *, restart: bool) -> None:
        """Take what is to come, or go on. Raises StoreUnavailable for a target that is in use or
        holds something else."""
        ...

    async def last(self, table: CopyTable) -> Row | None:
        """The key of the last row that has arrived."""
        ...

    async def write(self, table: CopyTable, rows: Sequence[Row]) -> None: ...

    async def complete(self) -> None:
        """From now on it is a store."""
        ...


class TableSum(NamedTuple):
    """How many rows a table has, and the checksum of all of them."""

    rows: int
    checksum: str


class Copied(NamedTuple):
    tables: dict[str, TableSum]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.tables.values())


async def sizes(source: CopySource) -> dict[str, int]:
    """How many rows there are to copy, by table."""
    return {table.name: await source.count(table) for table in COPY_TABLES}


async def copy(
    source: CopySource,
    target: CopyTarget,
    *,
    restart: bool = False,
    copied: Callable[[int], None] = lambda _: None,
    checked: Callable[[int], None] = lambda _: None,
) -> Copied:
    """Copy all of it, and see that it is the same. Raises StoreUnavailable.

    `copied` and `checked` are called with how many rows have been.
    """
    await target.begin(await source.meta(), restart=restart)
    done = 0
    for table in COPY_TABLES:
        after = await target.last(table)
        done += await target.count(table)
        copied(done)
        while rows := await source.rows(table, after):
            await target.write(table, rows)
            after = rows[-1][: table.keys]
            done += len(rows)
            copied(done)
    sums: dict[str, TableSum] = {}
    seen = 0
    for table in COPY_TABLES:
        mine, theirs = await _sum(source, table), await _sum(target, table)
        if mine != theirs:
            raise StoreUnavailable(
                f"the copy differs in '{table.name}' ({mine.rows} and {theirs.rows} rows): the "
                "source was changed meanwhile; begin again with --restart"
            )
        sums[table.name] = mine
        seen += mine.rows
        checked(seen)
    await target.complete()
    return Copied(sums)


async def _sum(side: CopySource, table: CopyTable) -> TableSum:
    digest = hashlib.blake2b(digest_size=16)
    count = 0
    after: Row | None = None
    while rows := await side.rows(table, after):
        for row in rows:
            digest.update(_encode(row))
        count += len(rows)
        after = rows[-1][: table.keys]
    return TableSum(count, digest.hexdigest())
