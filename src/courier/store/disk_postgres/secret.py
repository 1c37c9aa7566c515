"""The secret that signs leases and sessions: sealed, and the same on every node."""

from typing import Any

import asyncpg

from courier import ids
from courier.core.sealed import Sealer, open_text, reseal_text, seal_text, store_place

SECRET_BYTES = 32
_PLACE = store_place("secret")
_CREATE = "INSERT INTO meta (epoch, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_BEGIN = "INSERT INTO head VALUES (true, 0, 0, 0, 0, 1, 0, 0) ON CONFLICT DO NOTHING"
_KEEP = "UPDATE meta SET secret = $1"


async def load(connection: "asyncpg.Connection[Any]", sealer: Sealer) -> tuple[str, bytes]:
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
