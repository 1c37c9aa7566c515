"""The columns of the journal's events, once: events as JSON, as Arrow and in tables follow this."""

from typing import NamedTuple

TEXT, LONG, INT, TIME, BYTES = "string", "bigint", "int", "timestamp", "binary"


class EventColumn(NamedTuple):
    """`field` is its name in events, `name` that in tables: a query names a queue by its name, and
    reads times, not numbers. `kind` is its type, as Spark's SQL names it."""

    field: str
    name: str
    kind: str


# What every event has comes before what only some have.
COMMON = (
    EventColumn("offset", "offset", LONG),
    EventColumn("at_ms", "at", TIME),
    EventColumn("kind", "kind", TEXT),
    EventColumn("tenant", "tenant", TEXT),
    EventColumn("queue", "queue_id", TEXT),
    EventColumn("queue_name", "queue", TEXT),
    EventColumn("actor", "actor", TEXT),
    EventColumn("dialect", "dialect", TEXT),
)
OWN = (
    EventColumn("message_id", "message_id", TEXT),
    EventColumn("seq", "seq", LONG),
    EventColumn("attempt", "attempt", INT),
    EventColumn("lease_ms", "lease_ms", LONG),
    EventColumn("delay_ms", "delay_ms", LONG),
    EventColumn("size", "size", LONG),
    EventColumn("content_type", "content_type", TEXT),
    EventColumn("headers", "headers", TEXT),
    EventColumn("group", "group", TEXT),
    EventColumn("published_ms", "published_at", TIME),
    EventColumn("first_leased_ms", "first_leased_at", TIME),
    EventColumn("last_leased_ms", "last_leased_at", TIME),
    EventColumn("body", "body", BYTES),
    EventColumn("sealed", "sealed", TEXT),
    EventColumn("detail", "detail", TEXT),
)
ALL = COMMON + OWN
# Columns that are never null.
REQUIRED = ("offset", "at", "kind")
