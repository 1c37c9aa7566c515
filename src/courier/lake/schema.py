"""Every schema of the lake, once.

Columns ending in `_at` are times in UTC, those ending in `_ms` are milliseconds; `headers` and
`detail` are JSON text. `queue` is the queue's name as it was then, `queue_id` never changes.
"""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TEXT, _LONG, _INT, _TIME = StringType(), LongType(), IntegerType(), TimestampType()


def _schema(columns: dict[str, DataType], *, required: tuple[str, ...]) -> StructType:
    return StructType(
        [StructField(name, kind, name not in required) for name, kind in columns.items()]
    )


# One row per event of the journal.
EVENTS = _schema(
    {
        "offset": _LONG,
        "at": _TIME,
        "kind": _TEXT,
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "actor": _TEXT,
        "dialect": _TEXT,
        "message_id": _TEXT,
        "seq": _LONG,
        "attempt": _INT,
        "lease_ms": _LONG,
        "delay_ms": _LONG,
        "size": _LONG,
        "content_type": _TEXT,
        "headers": _TEXT,
        "group": _TEXT,
        "published_at": _TIME,
        "first_leased_at": _TIME,
        "last_leased_at": _TIME,
        "body": BinaryType(),
        "sealed": _TEXT,
        "detail": _TEXT,
    },
    required=("offset", "at", "kind"),
)
# One row per message of a claim.
CLAIMED = _schema(
    {
        "message_id": _TEXT,
        "seq": _LONG,
        "attempt": _INT,
        "published_at": _TIME,
        "content_type": _TEXT,
        "headers": _TEXT,
        "group": _TEXT,
        "body": BinaryType(),
    },
    required=("message_id", "seq", "attempt", "published_at", "content_type", "body"),
)
# What a DataFrame that is published may have; `body` it must have.
PUBLISHED = ("body", "content_type", "headers", "delay_ms", "group", "message_id", "sealed")

# --- tables: the journal's own columns, and what is made of them ---

EVENTS_TABLE = StructType([*EVENTS, StructField("date", DateType())])
# One row per message: what its queue did with it. `outcome` is live until it ends.
MESSAGES = _schema(
    {
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "message_id": _TEXT,
        "seq": _LONG,
        "dialect": _TEXT,
        "actor": _TEXT,
        "published_at": _TIME,
        "first_leased_at": _TIME,
        "last_leased_at": _TIME,
        "last_leased_by": _TEXT,
        "done_at": _TIME,
        "outcome": _TEXT,
        "attempts": _INT,
        "wait_ms": _LONG,
        "work_ms": _LONG,
        "total_ms": _LONG,
        "size": _LONG,
        "content_type": _TEXT,
        "headers": _TEXT,
        "group": _TEXT,
        "body": BinaryType(),
        "sealed": _TEXT,
        "detail": _TEXT,
        "published_offset": _LONG,
        "done_offset": _LONG,
        # Of a live message: the last offset of a gap since which nothing was heard of it.
        "gap": _LONG,
        # The day on which it ended, or `live`: what still changes lies in files of its own.
        "ended": _TEXT,
    },
    required=("queue_id", "seq", "published_at", "outcome", "ended"),
)
_COUNTED = (
    "published",
    "leased",
    "acked",
    "retried",
    "lease_expired",
    "buried",
    "expired",
    "purged",
    "deleted",
    "pushed",
    "push_failed",
)
_PERCENTILES = tuple(
    f"{what}_p{percent}_ms" for what in ("wait", "work", "total") for percent in (50, 95, 99)
)
# One row per queue and minute in which something happened.
QUEUE_MINUTES = _schema(
    {
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "minute": _TIME,
        **dict.fromkeys(_COUNTED, _LONG),
        "bytes": _LONG,
        **dict.fromkeys(_PERCENTILES, _LONG),
        "backlog": _LONG,
        "oldest_ms": _LONG,
        "date": DateType(),
    },
    required=("queue_id", "minute"),
)
# One row per queue, consumer and hour in which it leased or settled.
CONSUMERS_HOURS = _schema(
    {
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "actor": _TEXT,
        "hour": _TIME,
        "attempts": _LONG,
        "acked": _LONG,
        "wasted": _LONG,
        "lease_seconds": DoubleType(),
        "bytes": _LONG,
        "date": DateType(),
    },
    required=("queue_id", "actor", "hour"),
)
# One row per queue and run. Counts are of all time, findings of this run.
AUDIT = _schema(
    {
        "run_at": _TIME,
        "batch": _LONG,
        "first_offset": _LONG,
        "last_offset": _LONG,
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "accepted": _LONG,
        "acked": _LONG,
        "buried": _LONG,
        "expired": _LONG,
        "purged": _LONG,
        "deleted": _LONG,
        "live_lake": _LONG,
        "live_broker": _LONG,
        "difference": _LONG,
        "gaps": _LONG,
        "double_leases": _LONG,
        "unleased_acks": _LONG,
        "revived": _LONG,
        "order_violations": _LONG,
        "erased": _LONG,
        "date": DateType(),
    },
    required=("run_at", "batch", "last_offset"),
)
