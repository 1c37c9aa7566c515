"""Exact objects of the admin API: every member, and its default."""

from typing import Any

DAY_MS = 86_400_000
HOUR_MS = 3_600_000

TTL_DEFAULT = 7 * DAY_MS
LOCK_TTL_DEFAULT = 120_000
TTL_MAX = 14 * DAY_MS
LOCK_TTL_MAX = 12 * HOUR_MS
DELAY_MAX = 900_000


def queue_object(id: str, **settings: Any) -> dict[str, Any]:
    """A queue as it is shown; what is not given is at its default."""
    return {
        "type": "queue",
        "queueId": id,
        "fifo": False,
        "encrypted": False,
        "defaultTtl": TTL_DEFAULT,
        "defaultLockTtl": LOCK_TTL_DEFAULT,
        "defaultDeliveryDelay": 0,
        "isFallback": False,
        **settings,
    }


def exchange_object(id: str, *, encrypted: bool = False) -> dict[str, Any]:
    return {"type": "exchange", "exchangeId": id, "encrypted": encrypted}


def binding_object(exchange: str, queue: str, **others: Any) -> dict[str, Any]:
    return {"exchangeId": exchange, "queueId": queue, "fifo": False, **others}
