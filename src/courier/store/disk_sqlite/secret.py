"""The secret that signs leases and sessions: sealed, so that the file alone signs nothing."""

import logging

import apsw

from courier import ids
from courier.core.errors import StoreUnavailable
from courier.core.sealed import Sealer, open_text, reseal_text, seal_text, store_place

log = logging.getLogger("courier.store")

SECRET_BYTES = 32
_PLACE = store_place("secret")
_KEPT = "SELECT secret FROM meta"
_CREATE = "INSERT INTO meta (one, epoch, secret) VALUES (1, ?, ?)"
_KEEP = "UPDATE meta SET secret = ?"
_TABLE = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'meta'"


def load(db: apsw.Connection, sealer: Sealer | None) -> bytes:
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
    if len(kept) == SECRET_BYTES:
        _forget(db, seal_text(kept, sealer, _PLACE))
        log.warning("secret_sealed")
        return kept
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


def _forget(db: apsw.Connection, sealed: str) -> None:
    """Keep the secret sealed, and leave none of the bytes that an older Courier kept in clear.

    The table is made again, because pages may hold traces of rows as they once were; freed pages
    are overwritten, and so is what the log still has of them.
    """
    created = db.execute(_TABLE).get
    db.execute("PRAGMA secure_delete = on")
    with db:
        db.execute("ALTER TABLE meta RENAME TO meta_before")
        db.execute(created)
        db.execute("INSERT INTO meta SELECT * FROM meta_before")
        db.execute(_KEEP, (sealed.encode(),))
        db.execute("DROP TABLE meta_before")
    db.execute("PRAGMA secure_delete = off")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
