"""The file of a server as source or target of a copy. No server may be using it meanwhile."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import apsw

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.files import make_directory, remove, sync_directory
from courier.store.copy_tables import COPY_TABLES, CopyMeta, CopyTable
from courier.store.disk_sqlite import SCHEMA_BASE
from courier.store.disk_sqlite.connection import COPYING, claim, close, connect, disk_errors
from courier.store.disk_sqlite.migrate import migrate, refuse_earlier

_CACHE_BYTES = 16 << 20
_PACKAGE = "courier.store.disk_sqlite"


class SqliteCopy:
    """`path`: the file that it is, or is to be."""

    def __init__(self, path: Path, db: apsw.Connection | None, holding: ExitStack) -> None:
        self.shown = f"sqlite:{path}"
        self._path = path
        self._opened = db
        self._holding = holding

    @classmethod
    def source(cls, path: Path) -> Self:
        """Raises StoreUnavailable when there is none, or a server is using it."""
        if not path.exists():
            raise StoreUnavailable(f"there is no store at {path}")
        with ExitStack() as holding, disk_errors():
            refuse_earlier(path, base=SCHEMA_BASE)
            holding.enter_context(claim(path))
            db = connect(path, cache_bytes=_CACHE_BYTES)
            holding.callback(close, db)
            migrate(db, _PACKAGE, base=SCHEMA_BASE)
            return cls(path, db, holding.pop_all())

    async def begin_epoch(self) -> str:
        """Let the journal be another one for those who read it: the new epoch."""
        epoch = ids.new_id()
        with disk_errors(), self._db:
            self._db.execute("UPDATE meta SET epoch = ?", (epoch,))
        return epoch

    @classmethod
    def target(cls, path: Path) -> Self:
        """Raises StoreUnavailable when there is a store already."""
        if path.exists() and path.stat().st_size:
            raise StoreUnavailable(f"{path} is a store already: name another directory")
        return cls(path, None, ExitStack())

    @property
    def _db(self) -> apsw.Connection:
        assert self._opened is not None, "begin() opens it"
        return self._opened

    async def meta(self) -> CopyMeta:
        return CopyMeta(*self._db.execute("SELECT epoch, secret, rolled FROM meta").get)

    async def count(self, table: CopyTable) -> int:
        found: int = self._db.execute(f"SELECT count(*) FROM {table.name}").get
        return found

    async def rows(self, table: CopyTable, after: tuple[Any, ...] | None) -> list[Any]:
        keys = ", ".join(table.columns[: table.keys])
        where = ""
        if after is not None:
            where = f"WHERE ({keys}) > ({', '.join('?' * table.keys)})"
        statement = f"""SELECT {", ".join(table.columns)} FROM {table.name} {where}
            ORDER BY {keys} LIMIT {table.rows_max}"""
        with disk_errors():
            return self._db.execute(statement, after or ()).fetchall()

    async def begin(self, meta: CopyMeta, *, restart: bool) -> None:
        unfinished = Path(f"{self._path}{COPYING}")
        with disk_errors():
            make_directory(unfinished.parent)
            # No server may begin a store meanwhile.
            self._holding.enter_context(claim(self._path))
            self._holding.enter_context(claim(unfinished))
            self._opened = connect(unfinished, cache_bytes=_CACHE_BYTES)
            self._holding.callback(close, self._opened)
            migrate(self._db, _PACKAGE, base=SCHEMA_BASE)
            found = self._db.execute("SELECT epoch FROM meta").get
            if found is not None and found != meta.epoch and not restart:
                raise StoreUnavailable(
                    f"{unfinished} is the unfinished copy of another store: begin again with "
                    "--restart"
                )
            with self._db:
                for table in COPY_TABLES if restart else ():
                    self._db.execute(f"DELETE FROM {table.name}")
                self._db.execute("DELETE FROM meta")
                values = (meta.epoch, meta.secret, meta.rolled)
                self._db.execute(
                    "INSERT INTO meta (one, epoch, secret, rolled) VALUES (1, ?, ?, ?)", values
                )

    async def last(self, table: CopyTable) -> tuple[Any, ...] | None:
        keys = table.columns[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        found = self._db.execute(
            f"SELECT {', '.join(keys)} FROM {table.name} ORDER BY {order} LIMIT 1"
        ).fetchone()
        return found

    async def write(self, table: CopyTable, rows: Sequence[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * len(table.columns))
        statement = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places})"
        with disk_errors(), self._db:
            self._db.executemany(statement, rows)

    async def complete(self) -> None:
        unfinished = Path(f"{self._path}{COPYING}")
        with disk_errors():
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._holding.close()
            unfinished.replace(self._path)
            remove(Path(f"{unfinished}.lock"))
            sync_directory(self._path.parent)

    async def close(self) -> None:
        self._holding.close()
