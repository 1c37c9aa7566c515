"""Filters that the broker takes over leave out what Spark would, and nothing else."""

import operator
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from courier.lake.filters import NAMES_CHARACTERS_MAX, WantedEvents, narrowed
from courier.lake.options import at_ms
from tests.lake.brokers import journal, last_offset, queue
from tests.server import Server

OFFSET, AT, KIND, QUEUE = ("offset",), ("at",), ("kind",), ("queue",)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([GreaterThan(OFFSET, 5)], WantedEvents(after=5)),
        ([GreaterThanOrEqual(OFFSET, 5)], WantedEvents(after=4)),
        ([LessThan(OFFSET, 5)], WantedEvents(upto=4)),
        ([LessThanOrEqual(OFFSET, 5)], WantedEvents(upto=5)),
        ([EqualTo(OFFSET, 5)], WantedEvents(after=4, upto=5)),
        ([EqualNullSafe(OFFSET, 5)], WantedEvents(after=4, upto=5)),
        ([In(OFFSET, (7, None, 3))], WantedEvents(after=2, upto=7)),
        ([In(OFFSET, (7, 1.5))], WantedEvents()),
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 9), LessThan(OFFSET, 12)], WantedEvents(5, 8)),
        ([GreaterThan(OFFSET, -5)], WantedEvents()),
        ([GreaterThan(OFFSET, 1.5)], WantedEvents()),
        ([GreaterThan(OFFSET, True)], WantedEvents()),
        ([EqualNullSafe(OFFSET, None)], WantedEvents()),
        ([Not(EqualTo(OFFSET, 5))], WantedEvents()),
        ([IsNotNull(OFFSET)], WantedEvents()),
        ([GreaterThan(AT, NOON)], WantedEvents(since_ms=NOON_MS)),
        ([GreaterThanOrEqual(AT, NOON)], WantedEvents(since_ms=NOON_MS)),
        ([EqualTo(AT, NOON), GreaterThan(AT, NOON)], WantedEvents(since_ms=NOON_MS)),
        ([In(AT, (NOON + timedelta(days=1), NOON))], WantedEvents(since_ms=NOON_MS)),
        (
            [GreaterThan(AT, NOON), GreaterThan(AT, NOON - timedelta(days=1))],
            WantedEvents(since_ms=NOON_MS),
        ),
        ([GreaterThan(AT, NOON + timedelta(microseconds=1))], WantedEvents(since_ms=NOON_MS + 1)),
        ([LessThan(AT, NOON)], WantedEvents()),
        ([GreaterThan(AT, NOON.replace(tzinfo=None))], WantedEvents()),
        ([EqualTo(KIND, "acked")], WantedEvents(kinds=("acked",))),
        ([In(KIND, ("acked", None, "acked", "leased"))], WantedEvents(kinds=("acked", "leased"))),
        ([In(KIND, ("acked",)), EqualTo(KIND, "leased")], WantedEvents(kinds=())),
        ([EqualNullSafe(QUEUE, "a")], WantedEvents(queues=("a",))),
        ([In(QUEUE, (None,))], WantedEvents()),
        ([EqualTo(QUEUE, "a,b")], WantedEvents()),
        ([EqualTo(QUEUE, "")], WantedEvents()),
        ([Not(EqualTo(QUEUE, "a"))], WantedEvents()),
        ([StringStartsWith(QUEUE, "a")], WantedEvents()),
        ([In(QUEUE, tuple(f"q{n}" for n in range(NAMES_CHARACTERS_MAX)))], WantedEvents()),
        ([EqualTo(("detail", "offset"), 5)], WantedEvents()),
    ],
)
def test_what_is_left_of_the_journal_under_filters(
    filters: list[Filter], wanted: WantedEvents
) -> None:
    assert narrowed(WantedEvents(), filters) == wanted


def test_filters_narrow_what_the_options_ask_for() -> None:
    asked = WantedEvents(queues=("a",), kinds=("acked", "leased"))
    filters: list[Filter] = [EqualTo(QUEUE, "b"), EqualTo(KIND, "acked")]
    narrow = narrowed(asked, filters)
    assert narrow == WantedEvents(queues=(), kinds=("acked",))
    assert narrow.nothing
    assert not asked.nothing


def test_a_time_is_the_first_millisecond_that_is_not_before_it() -> None:
    assert at_ms(NOON) == NOON_MS
    assert at_ms(NOON + timedelta(microseconds=1)) == NOON_MS + 1
    assert at_ms(NOON - timedelta(microseconds=1)) == NOON_MS
    assert at_ms(datetime(1, 1, 1, tzinfo=UTC)) == 0


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three queues, a few kinds of events."""
    with Server(tmp_path_factory.mktemp("history")).start() as server:
        for name in ("orders", "bills", "a-b"):
            with queue(server, name) as it:
                it.publish_batch([f"{name} {n}" for n in range(8)])
                taken = it.pull(5)
                it.ack([each.lease for each in taken[:3]])
                it.retry(taken[3].lease)
        yield server


def test_no_filters_leave_out_a_row_that_they_let_through() -> None:
    """Many lists of filters over a small journal, judged row by row."""
    chosen = random.Random(20260131)
    rows: list[dict[str, Any]] = [
        {"offset": n, "at": NOON + timedelta(milliseconds=n // 3), "kind": f"k{n % 3}",
         "queue": None if n % 5 == 0 else f"q{n % 5}"}
        for n in range(1, 40)
    ]  # fmt: skip

    def some(column: str) -> Any:
        value: Any = chosen.choice([*rows, {column: None}])[column]
        shift = timedelta(microseconds=chosen.choice([-1, 0, 1]))
        return value + shift if column == "at" and value else value

    def made() -> Filter:
        column = chosen.choice(["offset", "at", "kind", "queue"])
        kind: Any = chosen.choice([*COMPARED, In, Not, IsNotNull])
        if kind is In:
            return In((column,), tuple(some(column) for _ in range(chosen.randint(1, 4))))
        if kind is Not:
            return Not(EqualTo((column,), some(column)))
        if kind is IsNotNull:
            return IsNotNull((column,))
        compared: Filter = kind((column,), some(column))
        return compared

    left_out = 0
    for _ in range(3_000):
        filters = [made() for _ in range(chosen.randint(1, 4))]
        wanted = narrowed(WantedEvents(), filters)
        for row in rows:
            if _inside(wanted, row):
                continue
            left_out += 1
            assert not all(_holds(each, row) for each in filters), (filters, row)
    assert left_out > 10_000


COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def _holds(each: Any, row: dict[str, Any]) -> bool:
    """As SQL has it: what is compared with NULL does not hold."""
    if isinstance(each, Not):
        inner: Any = each.child
        value, other = row[inner.attribute[0]], inner.value
        return value is not None and other is not None and bool(value != other)
    value = row[each.attribute[0]]
    if isinstance(each, IsNotNull):
        return value is not None
    if isinstance(each, In):
        return value is not None and value in each.value
    if isinstance(each, EqualNullSafe) and each.value is None:
        return value is None
    return value is not None and each.value is not None and COMPARED[type(each)](value, each.value)


def _inside(wanted: WantedEvents, row: dict[str, Any]) -> bool:
    return (
        wanted.after < row["offset"]
        and (wanted.upto is None or row["offset"] <= wanted.upto)
        and (wanted.since_ms is None or at_ms(row["at"]) >= wanted.since_ms)
        and (wanted.queues is None or row["queue"] in wanted.queues)
        and (wanted.kinds is None or row["kind"] in wanted.kinds)
    )


def test_results_are_the_same_with_and_without_push_down(
    spark: SparkSession, history: Server
) -> None:
    """Of one journal that does not grow meanwhile; each read is loaded for its own condition."""
    fixed = {"columns": "offset,at,kind,queue,seq", "endingOffset": last_offset(history)}
    rows = journal(spark, history, **fixed).collect()
    middle = rows[len(rows) // 2]
    at, offset = f"timestamp'{middle.at.isoformat()}'", middle.offset
    conditions = [
        f"offset > {offset}.5 and offset <= {offset + 9} and seq > 1",
        f"at >= {at} and queue in ('orders', 'a-b', null)",
        f"at > {at} and {at} + interval 1 hour > at and kind != 'leased'",
        f"at <=> {at} or offset < 4",
        f"{offset} < offset and kind = 'published' and queue <=> 'bills'",
        "queue <=> null and offset >= 2",
        "queue = 'orders,bills' or queue = ''",
        "kind collate UTF8_LCASE = 'ACKED' and queue not in ('bills', 'none')",
        "kind = 'acked' and kind in ('leased', 'retried')",
    ]
    told = [f"({condition}) as `{n}`" for n, condition in enumerate(conditions)]
    judged = journal(spark, history, **fixed).selectExpr("offset", *told).collect()
    reads = [
        journal(spark, history, pushFilters=True, **fixed).where(each).selectExpr(f"{n}", "offset")
        for n, each in enumerate(conditions)
    ]
    found: dict[int, list[int]] = {n: [] for n in range(len(conditions))}
    for n, one in reduce(DataFrame.union, reads).collect():
        found[n].append(one)
    for n, condition in enumerate(conditions):
        assert sorted(found[n]) == [row.offset for row in judged if row[str(n)]], condition
    assert sum(bool(rows) for rows in found.values()) >= 6, "too few conditions find anything"


def test_filters_reach_the_broker_where_it_is_asked_for(
    spark: SparkSession, history: Server
) -> None:
    def tasks(predicate: str, **more: Any) -> int:
        """With one event each there are as many tasks as offsets that are looked at."""
        read = journal(spark, history, numPartitions=10_000, columns="offset,at,queue", **more)
        return read.where(predicate).rdd.getNumPartitions()

    assert tasks("offset > 10 and offset <= 15", pushFilters=True) == 5
    assert tasks("at > timestamp'2999-01-01'", pushFilters=True) == 1
    assert tasks("queue = 'bills'", pushFilters=True, queue="orders") == 1
    assert tasks("offset > 10 and offset <= 15") > 50


def test_one_load_serves_several_queries_with_different_filters(
    spark: SparkSession, history: Server
) -> None:
    """With push-down Spark 4.3 would read them all with the filters of one of them."""
    rows = journal(spark, history, columns="offset", endingOffset=20)
    assert rows.where("offset <= 3").count() == 3
    assert rows.count() == 20
    both = rows.where("offset <= 3").union(rows.where("offset > 18")).collect()
    assert sorted(row.offset for row in both) == [1, 2, 3, 19, 20]
