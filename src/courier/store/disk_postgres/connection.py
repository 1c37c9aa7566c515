"""Connections to PostgreSQL: how they are opened, and what their failures mean."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from courier.core.errors import StoreUnavailable

VERSION_MIN = 15
CONNECT_S_MAX = 5.0
# Statements that take longer are ended by the server, as are transactions that do nothing.
STATEMENT_MS_MAX = 10_000
LOCK_MS_MAX = 5_000
IDLE_MS_MAX = 10_000
# A server that does not answer at all for so long counts as lost.
ANSWER_S_MAX = 15.0
SCHEMA = "courier"
# Statements are planned once for a connection, most of them while tables are small: so only such
# plans as stay right when tables grow, which find each row by a key and in order.
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    **dict.fromkeys(
        [f"enable_{way}" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")],
        "off",
    ),
}

# What a connection that is lost raises, or one that was never made.
LOST = (
    OSError,
    asyncio.TimeoutError,
    pg.PostgresConnectionError,
    pg.InterfaceError,
    pg.InternalClientError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.IdleInTransactionSessionTimeoutError,
)
# Nothing happened, and the same may work when it is tried again.
AGAIN = (pg.DeadlockDetectedError, pg.LockNotAvailableError, pg.SerializationError)
ERRORS = (*LOST, pg.PostgresError)


# A commit that was answered by the primary alone. Nothing but a notice says so.
_NOT_ON_STANDBY = "canceling wait for synchronous replication"


class InDoubt(Exception):
    """A transaction was to be committed, and no answer came."""


class Unconfirmed(OSError):
    """Only the primary has a commit."""

    def __init__(self) -> None:
        super().__init__("no standby has confirmed it")


class Overtaken(Exception):
    """Another node has written since; nothing of the group has happened."""


class Address:
    """Where the database is. `schema` is a parameter of ours in the URL: ?schema=NAME."""

    def __init__(self, url: str) -> None:
        """Raises StoreUnavailable when it is no such URL."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.schema = options.pop("schema", SCHEMA)
        if not self.schema.isidentifier() or self.schema != self.schema.lower():
            raise StoreUnavailable(
                f"the schema in the store's URL is '{self.schema}': it has to be made of small "
                "letters, digits and underscores"
            )
        if not parts.hostname and "host" not in options:
            raise StoreUnavailable(
                "the store's URL names no host: postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            )
        self.dsn = urlunsplit(parts._replace(query=urlencode(options)))
        place = parts.netloc.rpartition("@")[2] or options.get("host", "")
        # Without the password, for the log and for errors.
        self.shown = f"postgresql://{unquote(place)}{parts.path}"

    async def connect(self, *, patient: bool = False) -> "asyncpg.Connection[Any]":
        """To a server that can write. Raises what `ERRORS` lists. `patient`: statements may take
        as long as they need."""
        return await asyncpg.connect(
            self.dsn,
            timeout=CONNECT_S_MAX,
            command_timeout=None if patient else ANSWER_S_MAX,
            target_session_attrs="read-write",
            server_settings={
                "application_name": "courier",
                "search_path": self.schema,
                "statement_timeout": "0" if patient else str(STATEMENT_MS_MAX),
                "lock_timeout": str(LOCK_MS_MAX),
                "idle_in_transaction_session_timeout": "0" if patient else str(IDLE_MS_MAX),
                "jit": "off",
                **_PLANS,
            },
        )


@contextmanager
def confirmed(connection: Any) -> Iterator[None]:
    """Raises Unconfirmed in the end, if a commit in it has not been waited for."""
    notices: list[str] = []

    def heard(_: Any, notice: Any) -> None:
        notices.append(str(notice.message))

    connection.add_log_listener(heard)
    try:
        yield
    finally:
        connection.remove_log_listener(heard)
    if any(notice.startswith(_NOT_ON_STANDBY) for notice in notices):
        raise Unconfirmed


@contextmanager
def disk_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise StoreUnavailable(sentence(address, error)) from error


def sentence(address: Address, error: BaseException) -> str:
    """What is wrong, for somebody who can mend it."""
    where = address.shown
    if isinstance(error, (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError)):
        return f"{where} refused the user or the password of the store's URL"
    if isinstance(error, pg.InvalidCatalogNameError):
        return f"{where} has no such database: create it first"
    if isinstance(error, pg.TooManyConnectionsError):
        return f"{where} has no connection left (max_connections)"
    if isinstance(error, pg.InsufficientPrivilegeError):
        return f"{where}: the user may not do that: {_first_line(error)}"
    if isinstance(error, (pg.DiskFullError, pg.OutOfMemoryError)):
        return f"{where} has no room left: {_first_line(error)}"
    if isinstance(error, (pg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched)):
        return f"{where} is a standby, or read-only: it cannot write"
    if isinstance(error, LOST) and not isinstance(error, Unconfirmed):
        return f"{where} cannot be reached: {_first_line(error) or type(error).__name__}"
    return f"{where}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    line = str(error).partition("\n")[0]
    # The driver tells of its own method then.
    gone = isinstance(error, pg.InterfaceError) and line.startswith("cannot call ")
    return "the connection was lost" if gone else line
