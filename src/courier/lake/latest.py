"""Events -> `messages`: what is known of every message, folded from what happened to it."""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    date_format,
    date_trunc,
    lit,
    max_by,
    min_by,
    struct,
    unix_micros,
    unix_millis,
    when,
)
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import min as min_of

from courier.lake import schema

# Events that end a message on its queue, and say what its life was.
ENDS = ("acked", "buried", "expired", "purged", "deleted")
# Events that end an attempt and leave the message there.
RETURNS = ("retried", "lease_expired")
# All that happens to a message between `published` and its end. Pushes are not of its queue's line
# and go on after it; a message's name is its header as it was published.
CHANGES = ("leased", "extended", *RETURNS, *ENDS)

KEY = ("queue_id", "seq")
_IDENTITY = ("tenant", "queue", "message_id", "published_at", "size")
_BIRTH = ("dialect", "actor", "content_type", "headers", "group", "body", "sealed", "detail")
LIVE = "live"
# Of live rows: somebody holds the message.
LEASED = "(attempts > 0 and work_ms is null)"
Range = tuple[datetime, datetime]


def fold(known: DataFrame, events: DataFrame) -> DataFrame:
    """Rows of `messages`, live or ended, after `events` happened to `known`.

    `known` are live rows: all those that the events are about (`concerned` tells where they are),
    and any others, which come out as they went in. What happened before a message was known, in
    a lake that begins in the middle of a journal, is filled in as far as later events tell it.

    Times are as the broker's clock told them. Where it was set back between two of them, no time
    passed.
    """
    steps = _happened(events).unionByName(_remembered(known), allowMissingColumns=True)
    lives = steps.groupBy(*KEY).agg(
        min_by("identity", "offset").alias("identity"),
        min_by("birth", when(col("birth").isNotNull(), col("offset"))).alias("birth"),
        min_by("first", when(col("first").isNotNull(), col("offset"))).alias("first"),
        max_by("lease", when(col("lease").isNotNull(), col("offset"))).alias("lease"),
        max_by("turn", when(col("turn").isNotNull(), col("offset"))).alias("turn"),
        min_by("end", when(col("end").isNotNull(), col("offset"))).alias("end"),
    )
    # That an attempt came back tells nothing of a message that nothing else is known of.
    lives = lives.where("birth is not null or lease is not null or end is not null")
    return _rows(lives)


def _happened(events: DataFrame) -> DataFrame:
    """Events as steps of a fold: each has the parts that it tells of, the others are null."""
    kind = col("kind")
    return events.where(kind.isin("published", "leased", *RETURNS, *ENDS)).select(
        *KEY,
        "offset",
        struct(*_IDENTITY).alias("identity"),
        when(kind == "published", struct(*_BIRTH, col("offset").alias("published_offset"))).alias(
            "birth"
        ),
        when((kind == "leased") & (col("attempt") == 1), col("at")).alias("first"),
        when(kind == "leased", struct("at", col("actor").alias("by"), "attempt")).alias("lease"),
        when(
            kind.isin("leased", *RETURNS),
            struct("kind", "at", lit(None).cast("long").alias("work_ms")),
        ).alias("turn"),
        when(
            kind.isin(*ENDS),
            struct("kind", "at", "attempt", "first_leased_at", "last_leased_at", "offset"),
        ).alias("end"),
    )


def _remembered(known: DataFrame) -> DataFrame:
    """Live rows as steps that come before every event."""
    leased = col("attempts") > 0
    return known.select(
        *KEY,
        lit(0).cast("long").alias("offset"),
        struct(*_IDENTITY).alias("identity"),
        struct(*_BIRTH, "published_offset").alias("birth"),
        col("first_leased_at").alias("first"),
        when(
            leased,
            struct(
                col("last_leased_at").alias("at"),
                col("last_leased_by").alias("by"),
                col("attempts").alias("attempt"),
            ),
        ).alias("lease"),
        when(
            leased, struct(lit(LIVE).alias("kind"), col("last_leased_at").alias("at"), "work_ms")
        ).alias("turn"),
    )


def _rows(lives: DataFrame) -> DataFrame:
    ended = col("end").isNotNull()
    first = when(ended, col("end.first_leased_at")).otherwise(col("first"))
    last = when(ended, col("end.last_leased_at")).otherwise(col("lease.at"))
    done = col("end.at")
    made = {
        **{name: col("identity")[name] for name in _IDENTITY},
        **{name: col("birth")[name] for name in (*_BIRTH, "published_offset")},
        "queue_id": col("queue_id"),
        "seq": col("seq"),
        "first_leased_at": first,
        "last_leased_at": last,
        "last_leased_by": col("lease.by"),
        "done_at": done,
        "outcome": coalesce(col("end.kind"), lit(LIVE)),
        "attempts": coalesce(col("end.attempt"), col("lease.attempt"), lit(0)),
        "wait_ms": passed_ms(col("identity.published_at"), first),
        "work_ms": when(col("end.kind") == "acked", passed_ms(last, done)).when(
            ~ended, _returned_ms()
        ),
        "total_ms": passed_ms(col("identity.published_at"), done),
        "done_offset": col("end.offset"),
        "ended": when(ended, date_format(done, "yyyy-MM-dd")).otherwise(lit(LIVE)),
    }
    return lives.select(*[made[name].alias(name) for name in schema.MESSAGES.names])


def _returned_ms() -> Column:
    """How long the last attempt of a live message lasted; null while it is leased."""
    return when(col("turn.kind") == LIVE, col("turn.work_ms")).when(
        col("turn.kind").isin(*RETURNS), passed_ms(col("lease.at"), col("turn.at"))
    )


def passed_ms(begin: Column, end: Column) -> Column:
    """Milliseconds from one time to another; none passed if the clock was set back between."""
    passed = unix_millis(end) - unix_millis(begin)
    return when(passed < 0, lit(0).cast("long")).otherwise(passed)


def concerned(events: DataFrame) -> list[Range]:
    """When the messages were published that these events are about, and not begun by them.

    One range for each hour in which there are some, for choosing the files that hold their rows.
    """
    # A queue's sequence goes up with the offsets: what is not below the first one that was
    # published in these events was published in them, too.
    floors = (
        events.where("kind = 'published'").groupBy("queue_id").agg(min_of("seq").alias("floor"))
    )
    earlier = (
        events.where(col("kind").isin(*CHANGES))
        .join(broadcast(floors), "queue_id", "left")
        .where("floor is null or seq < floor")
    )
    at = unix_micros("published_at")
    hours = earlier.groupBy(date_trunc("hour", "published_at")).agg(
        min_of(at).alias("low"), max_of(at).alias("high")
    )
    return sorted((_time(row["low"]), _time(row["high"])) for row in hours.collect())


def _time(micros: int) -> datetime:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
