"""Every schema of the lake, once.

Columns ending in `_at` are times in UTC, those ending in `_ms` are milliseconds; `headers` and
`detail` are JSON text. `queue` is the queue's name as it was then, `queue_id` never changes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from courier import event_columns

# Neither is imported here: a driver plans without Arrow, and a lake is looked at without Spark.
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_TEXT, _LONG, _INT, _TIME, _DATE = "string", "bigint", "int", "timestamp", "date"
_BYTES, _REAL = "binary", "double"


@dataclass(frozen=True)
class TableSchema:
    """Columns by name, each with its type as Spark's SQL names it; `required` ones are not null."""

    kinds: Mapping[str, str]
    required: Collection[str] = ()

    @property
    def names(self) -> list[str]:
        return list(self.kinds)

    def only(self, names: Collection[str]) -> "TableSchema":
        """Some of the columns, in the order in which they are named."""
        return TableSchema({name: self.kinds[name] for name in names}, self.required)

    def without(self, names: Collection[str]) -> "TableSchema":
        return self.only([name for name in self.kinds if name not in names])

    def arrow(self) -> "pa.Schema":
        import pyarrow as pa

        types = {
            _TEXT: pa.string(),
            _LONG: pa.int64(),
            _INT: pa.int32(),
            _TIME: pa.timestamp("us", tz="UTC"),
            _DATE: pa.date32(),
            _BYTES: pa.binary(),
            _REAL: pa.float64(),
        }
        return pa.schema(
            [pa.field(name, types[kind], nullable) for name, kind, nullable in self._fields()]
        )

    def spark(self) -> "StructType":
        from pyspark.sql import types

        known = (
            *(types.StringType(), types.LongType(), types.IntegerType(), types.TimestampType()),
            *(types.DateType(), types.BinaryType(), types.DoubleType()),
        )
        of: dict[str, types.DataType] = {kind.simpleString(): kind for kind in known}
        return types.StructType(
            [types.StructField(name, of[kind], nullable) for name, kind, nullable in self._fields()]
        )

    def _fields(self) -> Iterator[tuple[str, str, bool]]:
        for name, kind in self.kinds.items():
            yield name, kind, name not in self.required


# One row per event of the journal.
EVENTS = TableSchema({each.name: each.kind for each in event_columns.ALL}, event_columns.REQUIRED)
# One row per message of a claim.
CLAIMED = TableSchema(
    {
        "message_id": _TEXT,
        "seq": _LONG,
        "attempt": _INT,
        "published_at": _TIME,
        "content_type": _TEXT,
        "headers": _TEXT,
        "group": _TEXT,
        "body": _BYTES,
    },
    required=("message_id", "seq", "attempt", "published_at", "content_type", "body"),
)
# What a DataFrame that is published may have; `body` it must have.
PUBLISHED = ("body", "content_type", "headers", "delay_ms", "group", "message_id", "sealed")

# --- replays ---

# Who replays wants the order in which they were published; no two messages are equal in these.
ORDER = ("published_at", "queue_id", "seq")
# Headers that tell where a replayed message comes from, and for whom alone it is.
MESSAGE, LISTENER = "courier-replay-message", "courier-replay-listener"
ORIGIN = ("courier-replay-id", "courier-replay-queue", MESSAGE, LISTENER)

# --- tables: the journal's own columns, and what is made of them ---

EVENTS_TABLE = TableSchema({**EVENTS.kinds, "date": _DATE}, EVENTS.required)
# One row per message: what its queue did with it. `outcome` is live until it ends.
MESSAGES = TableSchema(
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
        "body": _BYTES,
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
QUEUE_MINUTES = TableSchema(
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
        # The last offset of a gap of which events may be missing in the minute.
        "gap": _LONG,
        "date": _DATE,
    },
    required=("queue_id", "minute"),
)
# One row per queue, consumer and hour in which it leased or settled.
CONSUMERS_HOURS = TableSchema(
    {
        "tenant": _TEXT,
        "queue_id": _TEXT,
        "queue": _TEXT,
        "actor": _TEXT,
        "hour": _TIME,
        "attempts": _LONG,
        "acked": _LONG,
        "wasted": _LONG,
        "lease_seconds": _REAL,
        "bytes": _LONG,
        # As for minutes.
        "gap": _LONG,
        "date": _DATE,
    },
    required=("queue_id", "actor", "hour"),
)
# One row per queue and run. Counts are of all time, findings of this run.
AUDIT = TableSchema(
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
        "date": _DATE,
    },
    required=("run_at", "batch", "last_offset"),
)
