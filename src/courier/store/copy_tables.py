"""The tables that a store consists of, in words that both disks understand.

Rows are tuples of integers, texts and bytes, the same from either disk, ordered by their keys.
"""

from typing import NamedTuple


class CopyTable(NamedTuple):
    """`keys` is the number of columns, the first ones, that rows are ordered by. `as_bytes`: texts
    that PostgreSQL keeps as bytes. `rows_max`: how many are copied at a time."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1
    as_bytes: tuple[str, ...] = ()
    rows_max: int = 1_000


_DELIVERY = (
    *("id", "state", "attempt", "due_ms", "published_ms", "first_ms", "last_ms", "size"),
    *("own_id", "expires_ms", "grp", "follows", "claim", "report"),
)
_LINE = (
    *("no", "queue", "listener", "tail", "cursor", "count", "bytes", "fresh", "again", "leased"),
    *("delayed", "exhausted", "gone", "renamed", "missed", "acknowledged", "last_success_ms"),
    *("last_failure_ms", "dropped", "spent", "pulled", "expired"),
)
_BLOCK = ("id", "at_ms", "flags", "only", "count", "last", "meta_sum", "data_sum", "meta", "data")
_PACKET = ("last", "count", "at_ms", "before_bytes", "total_bytes", "checksum", "data")

COPY_TABLES = (
    CopyTable("record", ("kind", "id", "body"), keys=2),
    CopyTable("line", _LINE),
    CopyTable("block", _BLOCK, rows_max=64),
    CopyTable("expiry", ("id", "at_ms")),
    CopyTable("range", ("id", "until_ms", "at_ms", "count", "claim", "done")),
    CopyTable("delivery", _DELIVERY, as_bytes=("own_id", "grp")),
    CopyTable("push", _DELIVERY, as_bytes=("own_id", "grp")),
    CopyTable("fact", ("line", "kind", "key", "until_ms", "value"), keys=3, as_bytes=("key",)),
    CopyTable("packet", _PACKET, rows_max=64),
    CopyTable("minute", ("minute", "queue", "kind", "tenant", "count", "bytes"), keys=3),
    CopyTable("level", ("queue", "minute", "count", "leased", "delayed"), keys=2),
)


class CopyMeta(NamedTuple):
    """What a store is: `secret` is sealed under the operator's keys."""

    epoch: str
    secret: bytes
    rolled: int
