"""The schema of a database: which it has, and numbered .sql files that are applied once. And the
secret that signs leases and sessions: sealed, and the same on every node.

Servers of two releases run beside each other, so a script leaves what the release before needs: it
may add tables and indexes, but no columns to tables whose rows are sent whole (`$1::lines[]`). One
that takes something away comes a release later, and sets `version.oldest` to its own number: then
servers that know only older schemas are refused.
"""

from importlib.resources import files
from typing import Any

import asyncpg

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.core.sealed import Sealer, open_text, reseal_text, seal_text, store_place
from courier.store.disk_postgres.connection import VERSION_MIN, Address

SECRET_BYTES = 32
_PLACE = store_place("secret")
_CREATE = "INSERT INTO meta (epoch, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_BEGIN = "INSERT INTO head VALUES (true, 0, 0, 0, 0, 1, 0, 0) ON CONFLICT DO NOTHING"
_KEEP = "UPDATE meta SET secret = $1"
# One node at a time changes the schema.
_LOCK = 0x636F7572696572
# Those who copy a store have it alone, and no node starts meanwhile.
_COPY = "SELECT pg_try_advisory_lock(hashtextextended($1, $2))"
_NO_COPY = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended($1, $2))"
_HAS_SCHEMA = "SELECT true FROM pg_namespace WHERE nspname = $1"
COPYING = "SELECT number FROM version"
_OLDEST = "SELECT oldest FROM version"
# Added to the number while the tables are being copied here: no server may open them.
UNFINISHED = 1_000_000
_TABLES_OF = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relkind IN ('r', 'p')
"""
# Another product may have a table of that name.
_OURS = """
SELECT count(*) = 2 FROM information_schema.columns
WHERE table_schema = $1 AND table_name = 'version' AND column_name IN ('number', 'product')
"""
_CREATE_NUMBER = "CREATE TABLE version (number integer NOT NULL, product text NOT NULL)"
_KEEP_NUMBER = "UPDATE version SET number = $1"


async def hold(connection: "asyncpg.Connection[Any]", address: Address) -> None:
    """No server starts on these tables while the connection is open. Raises StoreUnavailable."""
    if not await connection.fetchval(_COPY, address.schema, _LOCK):
        raise StoreUnavailable(f"{address.shown} is being copied, or a server is just starting")


async def migrate(connection: "asyncpg.Connection[Any]", address: Address) -> None:
    """Apply those of `migrations/*.sql` that the database has not had yet.

    Raises StoreUnavailable when the server is too old, a newer Courier has written the tables, or
    they belong to another program.
    """
    if connection.get_server_version().major < VERSION_MIN:
        found = connection.get_server_version().major
        raise StoreUnavailable(
            f"{address.shown} is PostgreSQL {found}; Courier needs {VERSION_MIN} or newer"
        )
    scripts = sorted(
        (e for e in files(__package__).joinpath("migrations").iterdir() if e.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if not await connection.fetchval(_NO_COPY, address.schema, _LOCK):
            raise StoreUnavailable(f"{address.shown} is being copied: start when that is done")
        # Whether it is there is asked first: to create it takes rights that nobody needs later.
        if not await connection.fetchval(_HAS_SCHEMA, address.schema):
            await connection.execute(f"CREATE SCHEMA {address.schema}")
        version = await _version(connection, address)
        if version >= UNFINISHED:
            raise StoreUnavailable(
                f"{address.shown} holds an unfinished copy: run the same courier store copy again"
            )
        if version > len(scripts) and await connection.fetchval(_OLDEST) > len(scripts):
            raise StoreUnavailable(
                f"{address.shown} was written by a newer Courier (schema {version}, this one "
                f"knows {len(scripts)})"
            )
        for number, script in enumerate(scripts[version:], start=version + 1):
            await connection.execute(script.read_text())
            await connection.execute(_KEEP_NUMBER, number)


async def _version(connection: "asyncpg.Connection[Any]", address: Address) -> int:
    if await has_tables(connection, address):
        number: int = await connection.fetchval(COPYING)
        return number
    await connection.execute(_CREATE_NUMBER)
    await connection.execute("INSERT INTO version VALUES (0, 'courier')")
    return 0


async def has_tables(connection: "asyncpg.Connection[Any]", address: Address) -> bool:
    """Whether the tables are there. Raises StoreUnavailable when others are."""
    names = {row[0] for row in await connection.fetch(_TABLES_OF, address.schema)}
    ours = "version" in names and await connection.fetchval(_OURS, address.schema)
    if names and not ours:
        raise StoreUnavailable(
            f"the schema '{address.schema}' of {address.shown} holds tables that are not "
            f"Courier's ({', '.join(sorted(names)[:3])}): name another with ?schema=NAME"
        )
    return bool(names)


async def load_secret(connection: "asyncpg.Connection[Any]", sealer: Sealer) -> tuple[str, bytes]:
    """The store's epoch and secret, made when the store is new.

    Raises StoreUnavailable when no configured key opens the secret: this node would accept no
    token of the others, and could not read what they have sealed.
    """
    async with connection.transaction():
        text = seal_text(ids.new_bytes(SECRET_BYTES), sealer, _PLACE)
        await connection.execute(_CREATE, ids.new_id(), text.encode())
        await connection.execute(_BEGIN)
        epoch, kept = await connection.fetchrow("SELECT epoch, secret FROM meta FOR UPDATE")
        text = kept.decode("ascii", "replace")
        secret = open_text(text, sealer, _PLACE)
        newest = reseal_text(text, sealer, _PLACE)
        if newest != text:
            await connection.execute(_KEEP, newest.encode())
    return epoch, secret
