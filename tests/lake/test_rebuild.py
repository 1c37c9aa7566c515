"""Batch by batch or all at once: the tables come out the same, and as plain Python makes them.

A random history of a real store is cut into batches anywhere, also in the middle of a call and of
a message's life. CUTS asks for more batches, SEED for another history.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from courier.lake import audit, consumers, latest, metrics, schema
from courier.lake.schema import TableSchema
from courier.store.embedded import EmbeddedStore
from tests.lake.histories import History
from tests.lake.reference import Reference

SEED = int(os.environ.get("SEED", "7"))
CUTS = int(os.environ.get("CUTS", "2"))
FEW_CUTS = 25
STEPS = 900
RUN_AT = datetime(2026, 3, 1, tzinfo=UTC)
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Made:
    """The tables as they are at some point."""

    messages: Rows
    queue_minutes: Rows
    consumers_hours: Rows
    audit: Rows


@dataclass(frozen=True)
class Told:
    """A journal, and how much each queue of the broker held after it."""

    events: pa.Table
    held: dict[str, int]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    path = tmp_path_factory.mktemp("history") / "courier.db"

    async def opened(path: Path) -> EmbeddedStore:
        return await EmbeddedStore.open(path)

    with asyncio.Runner() as runner:
        store = runner.run(opened(path))
        history = History(store, runner, seed=SEED).live(STEPS)
        _, held = runner.run(store.journal.backlogs())
        events = history.events()
        runner.run(store.close())
    return Told(events, held)


@pytest.fixture(scope="module")
def expected(told: Told) -> Reference:
    return Reference(told.events.to_pylist())


@pytest.fixture(scope="module")
def batches(spark: SparkSession, told: Told) -> Made:
    count = told.events.num_rows
    cuts = sorted(Random(SEED).sample(range(1, count), CUTS))
    lake = Lake(spark, told.events, tasks=1)
    for upto in cuts:
        lake.go_on(upto, broker=None)
    # As batches of few events are, between others: by DuckDB, of what Spark has made.
    for upto in _cut_further(range(cuts[-1] + 1, count)):
        lake.go_on(upto, broker=None, here=True)
    lake.go_on(count, broker=told.held)
    return lake.made()


@pytest.fixture(scope="module")
def few(spark: SparkSession, told: Told) -> Made:
    lake = Lake(spark, told.events, tasks=1)
    divided = _within_leases(told.events)
    assert len(divided) > FEW_CUTS
    for upto in sorted({*_cut_further(range(1, told.events.num_rows)), *_cut_further(divided)}):
        lake.go_on(upto, broker=None, here=True, audits=True)
    lake.go_on(told.events.num_rows, broker=told.held, here=True, audits=True)
    return lake.made()


def _cut_further(places: Sequence[int]) -> list[int]:
    return sorted(Random(SEED).sample(places, FEW_CUTS))


def _within_leases(events: pa.Table) -> list[int]:
    """Cuts that leave a part of what one call leased of a group of a FIFO queue."""
    fifo = audit.fifo_queues(events)
    calls = events.select(["kind", "queue_id", "at", "actor"]).to_pylist()
    return [
        cut
        for cut, (before, after) in enumerate(pairwise(calls), 1)
        if before == after and after["kind"] == "leased" and after["queue_id"] in fifo
    ]


@pytest.fixture(scope="module")
def rebuilt(spark: SparkSession, told: Told) -> Made:
    lake = Lake(spark, told.events, tasks=2)
    lake.go_on(told.events.num_rows, broker=told.held)
    return lake.made()


class Lake:
    """What a pipeline does with the steps, with tables in memory.

    As with a small batch's, one task does all; or there are more, and rows go to and fro.
    """

    def __init__(self, spark: SparkSession, events: pa.Table, *, tasks: int) -> None:
        self._spark = spark
        self._tasks = tasks
        self._told = events
        self._upto = 0
        self._messages = _empty(schema.MESSAGES)
        self._minutes = _empty(schema.QUEUE_MINUTES)
        self._hours = _empty(schema.CONSUMERS_HOURS)
        self._audit = _empty(schema.AUDIT)
        self._audited, self._was_live = 0, self._messages
        self._here = False

    def go_on(
        self,
        upto: int,
        *,
        broker: dict[str, int] | None,
        here: bool = False,
        audits: bool = False,
    ) -> None:
        after, self._upto, self._here = self._upto, upto, here
        told, new = self._told.slice(0, upto), self._told.slice(after, upto - after)
        events = self._frame(told, schema.EVENTS)
        batch = self._frame(new, schema.EVENTS)
        was_live = pc.equal(self._messages["outcome"], "live")
        before = self._messages.filter(was_live)
        is_read = _within(before["published_at"], latest.concerned(new))
        known = self._frame(before.filter(is_read), schema.MESSAGES)

        made = _kept(latest.fold(known, batch), schema.MESSAGES)
        ended = self._messages.filter(pc.invert(was_live))
        self._messages = pa.concat_tables([ended, before.filter(pc.invert(is_read)), made])
        after_it = self._messages.filter(pc.equal(self._messages["outcome"], "live"))
        live = self._frame(after_it, schema.MESSAGES)

        minutes = metrics.queue_minutes(events, batch, live)
        old = self._frame(self._minutes, schema.QUEUE_MINUTES)
        self._minutes = _kept(metrics.corrected(old, minutes), schema.QUEUE_MINUTES)

        hours = consumers.consumers_hours(known, batch)
        old = self._frame(self._hours, schema.CONSUMERS_HOURS)
        self._hours = _kept(consumers.added(old, hours), schema.CONSUMERS_HOURS)

        # Also of many batches together.
        if audits or not here:
            found = self.audited(broker=broker, here=here)
            self._audit = pa.concat_tables([self._audit, found])
            self._audited, self._was_live = upto, after_it

    def audited(self, *, broker: dict[str, int] | None, here: bool = False) -> pa.Table:
        """What an audit finds in all that came since the last one."""
        self._here = here
        live = self._messages.filter(pc.equal(self._messages["outcome"], "live"))
        new = self._told.slice(self._audited, self._upto - self._audited)
        found = audit.findings(
            self._frame(self._was_live, schema.MESSAGES),
            self._frame(new, schema.EVENTS),
            self._frame(live, schema.MESSAGES),
            self._frame(self._audit, schema.AUDIT),
            run=audit.AuditRun(self._upto, self._audited, self._upto, RUN_AT),
            broker=broker,
            fifo=audit.fifo_queues(self._told.slice(0, self._upto)),
            erased=dict.fromkeys(broker or {}, 1),
        )
        return _kept(found, schema.AUDIT)

    def made(self) -> Made:
        tables = (self._messages, self._minutes, self._hours, self._audit)
        return Made(*[table.to_pylist() for table in tables])

    def _frame(self, rows: pa.Table, columns: TableSchema) -> Any:
        if self._here:
            return rows.cast(columns.arrow())
        return self._spark.createDataFrame(rows, columns.spark()).coalesce(self._tasks)


def _empty(columns: TableSchema) -> pa.Table:
    return columns.arrow().empty_table()


def _kept(rows: Any, columns: TableSchema) -> pa.Table:
    found = rows if isinstance(rows, pa.Table) else rows.toArrow()
    assert found.column_names == columns.names
    return found.cast(_empty(columns).schema)


def _within(times: pa.ChunkedArray, ranges: list[latest.Range]) -> pa.Array:
    found = [any(low <= at <= high for low, high in ranges) for at in times.to_pylist()]
    return pa.array(found, pa.bool_())


def in_order(rows: Rows, *key: str) -> Rows:
    return sorted(rows, key=lambda row: tuple(row[name] for name in key))


def test_the_history_has_all_that_can_go_wrong(told: Told) -> None:
    kinds = set(told.events["kind"].to_pylist())
    assert kinds >= {"published", *latest.CHANGES, "renamed", "pushed", "push_failed"}
    times = told.events["at"].to_pylist()
    assert any(later < earlier for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("messages", ("queue_id", "seq")),
        ("queue_minutes", ("queue_id", "minute")),
        ("consumers_hours", ("queue_id", "actor", "hour")),
    ],
)
def test_batches_and_a_rebuild_make_what_plain_python_makes(
    batches: Made, few: Made, rebuilt: Made, expected: Reference, table: str, key: tuple[str, ...]
) -> None:
    wanted = in_order(getattr(expected, table), *key)
    assert len(wanted) > 50
    assert in_order(getattr(rebuilt, table), *key) == wanted
    assert in_order(getattr(batches, table), *key) == wanted
    assert in_order(getattr(few, table), *key) == wanted


def test_the_audit_finds_nothing_wherever_a_batch_ends(
    batches: Made, few: Made, rebuilt: Made
) -> None:
    for row in (*batches.audit, *few.audit, *rebuilt.audit):
        found = {name: row[name] for name in ("difference", "gaps", *audit.FINDINGS) if row[name]}
        assert not found, row


def test_duckdb_audits_as_spark_does(spark: SparkSession, told: Told) -> None:
    """The second of two, with messages that the broker does not have, so that some are found."""
    lake, count = Lake(spark, told.events, tasks=1), told.events.num_rows
    lake.go_on(count // 2 + 1, broker=None)
    lake.go_on(count, broker=None, here=True)
    held = {queue: number + 1 for queue, number in told.held.items()}
    for broker in (None, held):
        ours, theirs = (
            lake.audited(broker=broker, here=here).to_pylist() for here in (True, False)
        )
        assert in_order(ours, "queue_id") == in_order(theirs, "queue_id")
        assert len(ours) > 3 and any(row["difference"] for row in ours) == (broker is held)


def test_the_audit_counts_all_of_a_queue_over_batches(batches: Made, rebuilt: Made) -> None:
    whole = {row["queue_id"]: row for row in rebuilt.audit}
    last = {row["queue_id"]: row for row in in_order(batches.audit, "last_offset")}
    assert set(last) == set(whole)
    for queue, row in last.items():
        counts = (*audit.TOTALS, "live_lake", "tenant", "queue")
        if row["last_offset"] == rebuilt.audit[0]["last_offset"]:
            assert {name: row[name] for name in counts} == {
                name: whole[queue][name] for name in counts
            }
