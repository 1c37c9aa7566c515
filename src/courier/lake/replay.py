"""Messages of the lake, published again as new messages: chosen once, each published once."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from courier import ids
from courier.clock import SystemClock
from courier.lake import archive, bulk, erasure, options, small
from courier.lake.catalog import Lake
from courier.lake.client import Client, CourierError, Place
from courier.lake.plan import ORDER, ORIGIN, Plan, Plans
from courier.lake.schema import PUBLISHED
from courier.lake.tables import BadRequest, LakeError

# Small replays do without Spark.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    # What only hands Spark on needs no other name of it.
    Spark: TypeAlias = SparkSession

SAMPLES = 3
POLL_S = 0.5
# As long as the broker remembers how many rows of a key it has.
KEY_MS = 24 * 3_600_000
_AGO = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?")
_UNIT_MS = {"ms": 1, "s": 1_000, None: 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Asked:
    """What a replay is of, as it was written; times are read when the plan is made."""

    queue: str = ""
    since: str = ""
    until: str = ""
    where: str = ""
    into: str = ""
    sets: tuple[str, ...] = ()
    listener: str = ""

    def told(self) -> dict[str, Any]:
        """What was said, for comparing: nothing means the same as before."""
        given = asdict(self)
        given["set"] = list(given.pop("sets"))
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class Chosen:
    """The rows that were chosen, what is published for them, and how much that is."""

    rows: "DataFrame | pa.Table"
    count: int
    bytes: int
    first: datetime | None
    last: datetime | None

    def samples(self) -> list[dict[str, Any]]:
        """The first few, as they would be published."""
        if isinstance(self.rows, pa.Table):
            few: list[dict[str, Any]] = self.rows.slice(0, SAMPLES).to_pylist()
            return few
        return [row.asDict() for row in self.rows.orderBy(*ORDER).limit(SAMPLES).collect()]


def choose(
    spark: "SparkSession", lake: Lake, asked: Asked, *, tenant: str, replay: str, now_ms: int
) -> Chosen:
    """Raises BadRequest for what cannot be chosen, or not published."""
    from courier.lake import selection

    if lake.messages.open() is None:
        raise LakeError(
            f"there is no table 'messages' in {lake.root}: `courier pipeline run` makes it"
        )
    chosen = selection.choose(
        lake.messages,
        spark,
        tenant=tenant,
        queue=asked.queue,
        since_ms=since_ms(asked, now_ms=now_ms),
        until_ms=until_ms(asked, now_ms=now_ms),
        where=asked.where,
    )
    return measure(chosen, asked, replay=replay)


def choose_few(
    lake: Lake, asked: Asked, *, tenant: str, replay: str, now_ms: int, only_samples: bool
) -> Chosen | None:
    """The same without Spark; None if there are too many, or only Spark understands what is asked.

    With `only_samples` there may be any number, of which the first few are at hand.
    """
    if asked.sets or asked.listener or lake.messages.open() is None:
        return None
    found = small.choose(
        lake,
        tenant=tenant,
        queue=asked.queue,
        since_ms=since_ms(asked, now_ms=now_ms),
        until_ms=until_ms(asked, now_ms=now_ms),
        where=asked.where,
        replay=replay,
        only_samples=only_samples,
    )
    return None if found is None else Chosen(*found)


def is_small(plan: Plan) -> bool:
    """Whether what is left of a plan is published without Spark."""
    return plan.total - plan.before(plan.published) <= small.ROWS_MAX


def measure(chosen: "DataFrame", asked: Asked, *, replay: str) -> Chosen:
    """How much the chosen messages are, and what is published for them."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    from courier.lake import selection

    sets = selection.parse_sets(list(asked.sets))
    rows = selection.publishable(chosen, sets=sets, replay=replay, listener=asked.listener)
    totals = rows.agg(
        functions.count("*"),
        functions.sum(functions.length("body")),
        functions.min("published_at"),
        functions.max("published_at"),
        functions.count_if(functions.col("body").isNull()),
    )
    try:
        ((number, size, first, last, empty),) = totals.collect()
    except PySparkException as error:
        raise BadRequest(f"--where or --set: {selection.sentence(error)}") from error
    if empty:
        raise BadRequest(
            f"--set: 'body' is null for {empty} of the {number} chosen messages; bodies that are "
            'sealed or no text cannot be read here: leave them out with --where "body is not null"'
        )
    return Chosen(rows, number, size or 0, _utc(first), _utc(last))


def find(plans: Plans, id: str, asked: Asked) -> Plan | None:
    """The plan with this id, if it was made before, and for the same."""
    plan = plans.find(id)
    if plan is None:
        return None
    for name, value in asked.told().items():
        if plan.asked.get(name, "") != value:
            raise BadRequest(
                f"replay '{id}' was begun with another --{name}: "
                f"{plan.asked.get(name) or 'none'!r}; continue it with --id alone, or take "
                "another id"
            )
    return plan


def make(plans: Plans, id: str, asked: Asked, chosen: Chosen) -> Plan:
    """Choose for good: what is chosen now is what will be published."""
    plan = Plan(
        id=id,
        key=ids.new_id(),
        asked=asked.told(),
        queue=asked.into or asked.queue,
        listener=asked.listener,
        rows=(),
        bytes=chosen.bytes,
    )
    if isinstance(chosen.rows, pa.Table):
        return plans.add_few(plan, chosen.rows)
    return plans.add(plan, chosen.rows, count=chosen.count)


def publish(
    spark: "SparkSession | None",
    plans: Plans,
    plan: Plan,
    place: Place,
    *,
    rate: int | None = None,
    report: Callable[[int], None] = lambda rows: None,
) -> Plan:
    """Publish what of the plan is not published yet; `report` is told how many rows are.

    With Spark or without it, the rows have the same keys: either can continue what the other began.
    """
    clock = SystemClock()
    while not plan.done:
        piece = plan.published
        if plan.began_ms is None:
            plan = plans.keep(replace(plan, began_ms=clock.now_ms()))
        elif clock.now_ms() - plan.began_ms > KEY_MS:
            _still_known(plan, place)
        with _watched(plan, place, report):
            if spark is None:
                _publish_here(plans, plan, place, rate=rate)
            else:
                _publish_piece(spark, plans, plan, place, rate=rate)
        plan = plans.keep(replace(plan, published=piece + 1, began_ms=None))
        report(plan.before(plan.published))
    plans.forget_rows(plan)
    return plan


def check(place: Place, queue: str) -> None:
    """See that broker and queue are there, before anything is begun."""
    with Client(place.first_asked()) as broker:
        broker.published(queue, once="check")


def lag(lake: Lake, place: Place, asked: Asked, *, now_ms: int) -> int:
    """How many events that may be about chosen messages are not in `messages` yet."""
    with Client(place.first_asked()) as broker:
        head = broker.head(at_ms=until_ms(asked, now_ms=now_ms))
    if lake.messages.epoch not in ("", head.epoch):
        return 0  # another store than the one that the lake was made of
    return max(0, head.last - archive.last(lake.messages))


def erased(lake: Lake, asked: Asked, *, tenant: str, now_ms: int) -> int:
    """How many messages of the queue and time were erased, and cannot be published any more."""
    low, high = since_ms(asked, now_ms=now_ms), until_ms(asked, now_ms=now_ms)
    return erasure.count(lake, tenant=tenant, queue=asked.queue, since_ms=low, until_ms=high)


def since_ms(asked: Asked, *, now_ms: int) -> int:
    return instant(asked.since, now_ms=now_ms) if asked.since else 0


def until_ms(asked: Asked, *, now_ms: int) -> int:
    return instant(asked.until, now_ms=now_ms) if asked.until else now_ms


def new_id() -> str:
    return ids.new_id()[-12:]


def now_ms() -> int:
    return SystemClock().now_ms()


def instant(text: str, *, now_ms: int) -> int:
    """A time such as 2026-01-31T12:00:00Z, or so long ago: 30s, 5m, 2h, 7d. Raises BadRequest."""
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"'{text[:100]}' is neither a time such as 2026-01-31T12:00:00Z nor so long ago: "
            "30s, 5m, 2h or 7d"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1_000))


def _publish_here(plans: Plans, plan: Plan, place: Place, *, rate: int | None) -> None:
    rows = plans.piece_here(plan, plan.published)
    rows = rows.select([name for name in PUBLISHED if name in rows.column_names])
    given = {"url": place.url, "token": place.token, "tenant": place.tenant, "queue": plan.queue}
    if plan.listener:
        given["listener"] = plan.listener
    if rate is not None:
        given["rowsPerSecond"] = str(rate)
    asked = options.parse(given, options.BATCH_WRITE)
    run = plan.write_id(plan.published)
    # The same key as that of the one task that Spark would have.
    count = bulk.publish(asked, run, iter(rows.combine_chunks().to_batches()), partition=0)
    bulk.none_beside(asked, run, rows=count)


def _publish_piece(
    spark: "SparkSession", plans: Plans, plan: Plan, place: Place, *, rate: int | None
) -> None:
    from pyspark.errors import PySparkException

    from courier.lake.selection import sentence

    rows = plans.piece(spark, plan, plan.published)
    # One task, so that the order is the same for the queue as it was; and the same every time.
    ordered = rows.coalesce(1).sortWithinPartitions(*ORDER)
    writer = (
        ordered.select(*(name for name in PUBLISHED if name in rows.columns))
        .write.format("courier")
        .option("url", place.url)
        .option("token", place.token)
        .option("tenant", place.tenant)
        .option("queue", plan.queue)
        .option("writeId", plan.write_id(plan.published))
    )
    if plan.listener:
        writer = writer.option("listener", plan.listener)
    if rate is not None:
        writer = writer.option("rowsPerSecond", str(rate))
    try:
        writer.mode("append").save()
    except PySparkException as error:
        raise LakeError(sentence(error)) from error


@contextmanager
def _watched(plan: Plan, place: Place, report: Callable[[int], None]) -> Iterator[None]:
    """Meanwhile ask the broker now and then how far the piece has come."""
    over = threading.Event()
    key, before = f"{plan.write_id(plan.published)}/0", plan.before(plan.published)

    def watch() -> None:
        with Client(replace(place, away_s_max=0)) as broker:
            while not over.wait(POLL_S):
                # It is away for a moment; publishing reports it if it stays away.
                with suppress(CourierError):
                    report(before + broker.published(plan.queue, once=key))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _still_known(plan: Plan, place: Place) -> None:
    """Refuse to go on with a piece that the broker may have forgotten."""
    with Client(place) as broker:
        if broker.published(plan.queue, once=f"{plan.write_id(plan.published)}/0"):
            return
    first = plan.before(plan.published)
    raise LakeError(
        f"replay '{plan.id}' was interrupted more than a day ago, and the broker has forgotten "
        f"which of its messages {first + 1} to {first + plan.rows[plan.published]} it has: look "
        f"in queue '{plan.queue}' for the header {ORIGIN[0]} before you replay them "
        "under another id"
    )


def _utc(at: datetime | None) -> datetime | None:
    """Spark gives times without a zone, in that of this process."""
    return None if at is None else at.astimezone(UTC)
