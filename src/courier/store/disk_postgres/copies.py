"""A database as source or target of a copy. No server may be using it meanwhile."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

import asyncpg

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.store.copy_tables import COPY_TABLES, CopyMeta, CopyTable
from courier.store.disk_postgres.connection import Address, disk_errors
from courier.store.disk_postgres.migrate import COPYING, UNFINISHED, has_tables, hold, migrate
from courier.store.disk_postgres.statements import GONE_S

Connection = Any

# What both disks call differently.
_TABLES = {"line": "lines"}
_COLUMNS = {"only": "only_line"}
_LIVING = f"SELECT count(*) FROM node WHERE at > clock_timestamp() - interval '{GONE_S} s'"
_BEGIN_HEAD = """
INSERT INTO head SELECT true, 0, coalesce(newest.last, 0), coalesce(newest.total_bytes, 0),
    coalesce(newest.at_ms, 0), coalesce(oldest.last - oldest.count + 1, 1),
    coalesce(oldest.before_bytes, 0), 0
FROM (SELECT 1) AS one
LEFT JOIN (SELECT * FROM packet ORDER BY last DESC LIMIT 1) AS newest ON true
LEFT JOIN (SELECT * FROM packet ORDER BY last LIMIT 1) AS oldest ON true
"""


class PostgresCopy:
    def __init__(self, address: Address, connection: Connection, *, known: bool) -> None:
        """`known`: the tables are there."""
        self.shown = address.shown
        self._address = address
        self._connection = connection
        self._known = known

    @classmethod
    async def source(cls, url: str) -> Self:
        """Raises StoreUnavailable when there is no store, or servers are using it."""
        found = await cls._opened(url)
        try:
            with disk_errors(found._address):
                if not found._known or not await found._connection.fetchval(
                    "SELECT count(*) FROM meta"
                ):
                    raise StoreUnavailable(f"there is no store at {found.shown}")
                await migrate(found._connection, found._address)
                await found._require_alone()
                # A copy must see one moment.
                await found._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        except BaseException:
            await found.close()
            raise
        return found

    async def begin_epoch(self) -> str:
        """Let the journal be another one for those who read it: the new epoch."""
        epoch = ids.new_id()
        with disk_errors(self._address):
            await self._connection.execute("UPDATE meta SET epoch = $1", epoch)
            await self._connection.execute("COMMIT")
        return epoch

    @classmethod
    async def target(cls, url: str) -> Self:
        """Raises StoreUnavailable when there is a store already."""
        found = await cls._opened(url)
        try:
            with disk_errors(found._address):
                await found._require_empty()
        except BaseException:
            await found.close()
            raise
        return found

    @classmethod
    async def _opened(cls, url: str) -> Self:
        address = Address(url)
        with ExitStack() as failing, disk_errors(address):
            connection: asyncpg.Connection[Any] = await address.connect(patient=True)
            failing.callback(connection.terminate)
            await hold(connection, address)
            known = await has_tables(connection, address)
            failing.pop_all()
        return cls(address, connection, known=known)

    async def _require_alone(self) -> None:
        if await self._connection.fetchval(_LIVING):
            raise StoreUnavailable(f"servers are running on {self.shown}: stop them first")

    async def _require_empty(self) -> None:
        if self._known and await self._connection.fetchval(COPYING) < UNFINISHED:
            await self._require_alone()
            if await self._connection.fetchval("SELECT count(*) FROM meta"):
                raise StoreUnavailable(
                    f"{self.shown} is a store already: name another schema with ?schema=NAME"
                )

    async def meta(self) -> CopyMeta:
        return CopyMeta(*await self._connection.fetchrow("SELECT epoch, secret, rolled FROM meta"))

    async def count(self, table: CopyTable) -> int:
        name = _TABLES.get(table.name, table.name)
        found: int = await self._connection.fetchval(f"SELECT count(*) FROM {name}")
        return found

    async def rows(self, table: CopyTable, after: tuple[Any, ...] | None) -> list[Any]:
        name = _TABLES.get(table.name, table.name)
        keys = ", ".join(_columns(table)[: table.keys])
        where, values = "", []
        if after is not None:
            values = _stored(table, after)
            places = ", ".join(f"${number}" for number in range(1, table.keys + 1))
            where = f"WHERE ({keys}) > ({places})"
        statement = f"""SELECT {", ".join(_columns(table))} FROM {name} {where}
            ORDER BY {keys} LIMIT {table.rows_max}"""
        with disk_errors(self._address):
            found = await self._connection.fetch(statement, *values)
        return [_told(table, row) for row in found]

    async def begin(self, meta: CopyMeta, *, restart: bool) -> None:
        with disk_errors(self._address):
            await self._require_empty()
            if not self._known:
                await migrate(self._connection, self._address)
                self._known = True
            async with self._connection.transaction():
                await self._connection.execute(
                    f"UPDATE version SET number = number + {UNFINISHED} WHERE number < {UNFINISHED}"
                )
                found = await self._connection.fetchval("SELECT epoch FROM meta")
                if found is not None and found != meta.epoch and not restart:
                    raise StoreUnavailable(
                        f"{self.shown} holds the unfinished copy of another store: begin again "
                        "with --restart"
                    )
                if restart:
                    names = [_TABLES.get(table.name, table.name) for table in COPY_TABLES]
                    await self._connection.execute(f"TRUNCATE {', '.join(names)}")
                await self._connection.execute("TRUNCATE meta, head, grp, node, duty")
                await self._connection.execute(
                    "INSERT INTO meta (epoch, secret, rolled) VALUES ($1, $2, $3)", *meta
                )

    async def last(self, table: CopyTable) -> tuple[Any, ...] | None:
        name, keys = _TABLES.get(table.name, table.name), _columns(table)[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        found = await self._connection.fetchrow(
            f"SELECT {', '.join(keys)} FROM {name} ORDER BY {order} LIMIT 1"
        )
        return None if found is None else _told(table, found)

    async def write(self, table: CopyTable, rows: Sequence[tuple[Any, ...]]) -> None:
        with disk_errors(self._address):
            await self._connection.copy_records_to_table(
                _TABLES.get(table.name, table.name),
                schema_name=self._address.schema,
                columns=_columns(table),
                records=[_stored(table, row) for row in rows],
            )

    async def complete(self) -> None:
        with disk_errors(self._address):
            async with self._connection.transaction():
                await self._connection.execute(_BEGIN_HEAD)
                await self._connection.execute(f"UPDATE version SET number = number - {UNFINISHED}")
            await self._connection.execute("ANALYZE")

    async def close(self) -> None:
        self._connection.terminate()


def _columns(table: CopyTable) -> list[str]:
    return [_COLUMNS.get(column, column) for column in table.columns]


def _stored(table: CopyTable, row: tuple[Any, ...]) -> list[Any]:
    """A row, or the beginning of one, as PostgreSQL keeps it."""
    return [
        value.encode() if column in table.as_bytes and value is not None else value
        for column, value in zip(table.columns, row, strict=False)
    ]


def _told(table: CopyTable, row: Any) -> tuple[Any, ...]:
    return tuple(
        [
            value.decode() if column in table.as_bytes and value is not None else value
            for column, value in zip(table.columns, row, strict=False)
        ]
    )
