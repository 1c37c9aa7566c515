"""The schema of a database: which it has, and numbered .sql files that are applied once. And the
secret that signs leases and sessions: sealed, so that the file alone signs nothing."""

import logging
from importlib.resources import files
from pathlib import Path

import apsw

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.core.sealed import Sealer, open_text, reseal_text, seal_text, store_place
from courier.store.disk_sqlite.connection import abandon

# Where a database file says its schema number.
_NUMBER_AT, _NUMBER_BYTES = 60, 4
SECRET_BYTES = 32
_PLACE = store_place("secret")
_KEPT = "SELECT secret FROM meta"
_CREATE = "INSERT INTO meta (one, epoch, secret) VALUES (1, ?, ?)"
_KEEP = "UPDATE meta SET secret = ?"

log = logging.getLogger("courier.store")


def refuse_earlier(path: Path, *, base: int) -> None:
    """Raises StoreUnavailable for a database whose schema number is not above `base`: it was
    written by a Courier with another layout. Writes nothing, whatever is there."""
    number = _schema(path)
    if 0 < number <= base:
        raise StoreUnavailable(
            f"{path} was written by an earlier Courier (schema {number}) and this one cannot read "
            "it: run the earlier version until its queues are drained, or start this one with "
            "another data directory (--data)"
        )


def _schema(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(_NUMBER_AT)
        number = int.from_bytes(file.read(_NUMBER_BYTES), "big")
    log = Path(f"{path}-wal")
    if number or not log.exists() or not log.stat().st_size:
        return number
    # All of it may be in the log yet. In this mode reading it makes no file and changes none.
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.execute("PRAGMA locking_mode = exclusive")
        return int(db.execute("PRAGMA user_version").get)
    except apsw.BusyError:  # somebody is using it, and will be named
        return 0
    finally:
        abandon(db)


def migrate(db: apsw.Connection, package: str, *, base: int = 0) -> None:
    """Apply those of the package's `migrations/*.sql` that the database has not had yet.

    Their schema numbers begin after `base`.
    """
    scripts = sorted(
        (
            entry
            for entry in files(package).joinpath("migrations").iterdir()
            if entry.name.endswith(".sql")
        ),
        key=lambda entry: entry.name,
    )
    found = int(db.execute("PRAGMA user_version").get)
    version = max(0, found - base)
    if version > len(scripts):
        raise StoreUnavailable(
            f"it was written by a newer Courier (schema {found}, this one knows "
            f"{base + len(scripts)})"
        )
    for number, script in enumerate(scripts[version:], start=version + 1):
        with db:
            db.execute(script.read_text())
            db.execute(f"PRAGMA user_version = {base + number:d}")


def has_schema_of(db: apsw.Connection, other: apsw.Connection) -> bool:
    """Whether both have the same tables and indexes, column by column."""
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    try:
        return bool(db.execute(schema).fetchall() == other.execute(schema).fetchall())
    except UnicodeDecodeError:
        return False


def load_secret(db: apsw.Connection, sealer: Sealer | None) -> bytes:
    """The store's secret, made when the store is new.

    Without a sealer nothing is kept: the secret is another one at every opening. One that no
    configured key opens is replaced, which ends leases and sessions but loses no message.
    """
    fresh = ids.new_bytes(SECRET_BYTES)
    kept: bytes | None = db.execute(_KEPT).get
    if kept is None:
        text = "" if sealer is None else seal_text(fresh, sealer, _PLACE)
        db.execute(_CREATE, (ids.new_id(), text.encode()))
        return fresh
    if sealer is None:
        return fresh
    text = kept.decode("ascii", "replace")
    try:
        secret = open_text(text, sealer, _PLACE)
        text = reseal_text(text, sealer, _PLACE)
    except StoreUnavailable as error:
        secret, text = fresh, seal_text(fresh, sealer, _PLACE)
        log.warning("secret_replaced", extra={"reason": str(error)})
    if text.encode() != kept:
        db.execute(_KEEP, (text.encode(),))
    return secret
