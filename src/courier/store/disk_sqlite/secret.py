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
