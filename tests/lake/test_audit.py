"""The audit reports what should not have happened, each in a column of its own, and nothing else.

The same true history is copied many times, onto queues of other ids, and each copy is corrupted
in one way. Spark finds it, and so does DuckDB, which audits what is small.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from courier.clock import ManualClock
from courier.core.types import Draft
from courier.lake import audit, latest, schema, sql
from courier.lake.parts import fitted
from courier.lake.schema import TableSchema
from tests.conformance.store.driver import Driver
from tests.lake.histories import collected, renumbered, told
from tests.oracle.store import Oracle

RUN_AT = datetime(2026, 3, 1, tzinfo=UTC)
Event = dict[str, Any]
Found = dict[Any, dict[str, Any]]


class Story:
    """A group in line, where each waits for its turn, and one on a plain queue, where none does."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.driver = driver = Driver(Oracle(), ManualClock(), runner)
        line, plain = driver.queue("line", fifo=True), driver.queue("plain")
        news = driver.queue("news", fifo=True)
        listener, reader = driver.listener(plain), driver.listener(news)
        names = {line.id: "line", plain.id: "plain", news.id: "news"}
        driver.publish(line, *[Draft(b"", group="g") for _ in "abcd"])
        driver.publish(plain, *[Draft(b"", group="g") for _ in range(4)])
        a, b, c = driver.lease(line, count=3, lease_ms=60_000)
        ended, _ = driver.lease(plain, count=2, lease_ms=60_000)
        driver.advance(1)
        driver.ack(line, b)
        driver.ack(plain, ended)
        cut = driver.last()

        driver.publish_rows(plain, "at once", listener=listener)
        driver.publish(news, "delivered", "delivered first", "not taken")
        driver.advance(1)
        for message in reversed(driver.take(reader, count=2)):
            driver.arrive(reader, message)
        driver.retry(line, a, delay_ms=0)
        driver.retry(line, c, delay_ms=0)
        driver.advance(1)
        for message in driver.lease(line, count=2):
            driver.advance(1)
            driver.ack(line, message)
        for _ in "d":
            driver.ack(line, driver.lease_one(line))
        driver.publish(line, *[Draft(b"", group="g") for _ in "ef"])
        for queue in (line, line, plain):
            driver.advance(1)
            driver.ack(queue, driver.lease_one(queue))
        events = [
            {**event, "queue_id": names[event["queue_id"]]}
            for event in told(driver).to_pylist()
            if event["seq"] is not None
        ]
        whole = driver.run(driver.store.journal.backlogs())[1]
        self.held = {names[id]: count for id, count in whole.items()}
        begun = sum(event["offset"] <= cut for event in events)
        self.first, self.second = events[:begun], events[begun:]


def find(events: list[Event], kind: str, queue: str, seq: int) -> int:
    [place] = [
        place
        for place, event in enumerate(events)
        if (event["kind"], event["queue_id"], event["seq"]) == (kind, queue, seq)
    ]
    return place


# --- corruptions: of the second of two batches ---


def nothing(events: list[Event]) -> None:
    """The history as it was."""


def lease_what_is_leased(events: list[Event]) -> None:
    lease = events[find(events, "leased", "plain", 3)]
    events.insert(0, {**lease, "seq": 2, "attempt": 2})


def tell_a_lease_twice(events: list[Event]) -> None:
    place = find(events, "leased", "plain", 3)
    events.insert(place, events[place])


def ack_what_was_never_leased(events: list[Event]) -> None:
    ack = events[find(events, "acked", "plain", 3)]
    never = {"first_leased_at": None, "last_leased_at": None, "attempt": 0}
    events.append({**ack, **never, "seq": 4})


def lose_a_lease(events: list[Event]) -> None:
    del events[find(events, "leased", "plain", 3)]


def lose_an_ack(events: list[Event]) -> None:
    del events[find(events, "acked", "plain", 3)]


def revive_what_was_just_acked(events: list[Event]) -> None:
    lease = events[find(events, "leased", "plain", 3)]
    events.append({**lease, "attempt": 2})


def revive_what_was_acked_before(events: list[Event]) -> None:
    lease = events[find(events, "leased", "plain", 3)]
    events.append({**lease, "attempt": 2, "seq": 1})


def publish_again(events: list[Event]) -> None:
    events.append(events[find(events, "published", "line", 5)])


def swap_two(events: list[Event]) -> None:
    swapped = {5: 6, 6: 5}
    for place, event in enumerate(events):
        if event["queue_id"] == "line" and event["kind"] in ("leased", "acked"):
            events[place] = {**event, "seq": swapped.get(event["seq"], event["seq"])}


def lease_beside_another_lease(events: list[Event]) -> None:
    lease = events.pop(find(events, "leased", "line", 4))
    events.insert(find(events, "acked", "line", 3), lease)


def pass_over_one(events: list[Event]) -> None:
    place = find(events, "leased", "line", 3)
    events[place] = {**events[place], "seq": 4, "attempt": 1}
    events[place + 1 :] = [event for event in events[place + 1 :] if event["queue_id"] != "line"]


Corrupt = Callable[[list[Event]], None]
CORRUPTIONS: dict[Corrupt, tuple[str, str]] = {
    nothing: ("", ""),
    lease_what_is_leased: ("plain", "double_leases"),
    tell_a_lease_twice: ("plain", "double_leases"),
    ack_what_was_never_leased: ("plain", "unleased_acks"),
    lose_a_lease: ("plain", "unleased_acks"),
    lose_an_ack: ("plain", ""),
    revive_what_was_just_acked: ("plain", "revived"),
    revive_what_was_acked_before: ("plain", "revived"),
    publish_again: ("line", "revived"),
    swap_two: ("line", "order_violations"),
    lease_beside_another_lease: ("line", "order_violations"),
    pass_over_one: ("line", "order_violations"),
}
# Where a corruption also leaves the lake with other messages than the broker has.
APART: dict[Corrupt, int] = {
    lose_an_ack: 1,
    ack_what_was_never_leased: 1,
    revive_what_was_acked_before: 2,
    publish_again: 1,
    pass_over_one: 3,
}


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with asyncio.Runner() as runner:
        yield Story(runner)


def copied(events: list[Event], name: str) -> list[Event]:
    return [{**event, "queue_id": f"{name}/{event['queue_id']}"} for event in events]


class Engine:
    """Makes rows that Spark works on, or DuckDB: those are Arrow's."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._spark = spark

    def rows(self, events: pa.Table | list[Event], columns: TableSchema) -> Any:
        kept = columns.arrow()
        made = pa.Table.from_pylist(events, kept) if isinstance(events, list) else events
        if self._spark is None:
            return fitted(made, kept)
        return self._spark.createDataFrame(made, columns.spark()).cache()

    def again(self, made: Any, columns: TableSchema) -> Any:
        """Rows that were made of others, as if they had been kept."""
        names = made.column_names if isinstance(made, pa.Table) else made.columns
        assert names == columns.names
        return self.rows(made if isinstance(made, pa.Table) else made.toArrow(), columns)


@pytest.fixture(scope="module", params=["Spark", "DuckDB"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.getfixturevalue("spark") if request.param == "Spark" else None)


@pytest.fixture(scope="module")
def found(engine: Engine, story: Story) -> Found:
    """What the audit of the second batch says, by copy and queue."""
    first, second, fifo = [], [], []
    broker: dict[str, int] = {}
    for corrupt in CORRUPTIONS:
        corrupted = list(story.second)
        corrupt(corrupted)
        first += copied(story.first, corrupt.__name__)
        second += copied(corrupted, corrupt.__name__)
        fifo.append(f"{corrupt.__name__}/line")
        broker |= {f"{corrupt.__name__}/{name}": count for name, count in story.held.items()}
    events = engine.rows(renumbered(first + second), schema.EVENTS)
    before, batch = (sql.where(events, f"offset {sign} {len(first)}") for sign in ("<=", ">"))
    messages, previous = engine.rows([], schema.MESSAGES), engine.rows([], schema.AUDIT)
    known = engine.again(_live(messages, before), schema.MESSAGES)
    live = engine.again(_live(known, batch), schema.MESSAGES)
    run = audit.AuditRun(1, 0, len(first), RUN_AT)
    begun = audit.findings(messages, before, known, previous, run=run, broker=None, fifo=fifo)
    begun = engine.again(begun, schema.AUDIT)
    run = audit.AuditRun(2, len(first), len(first) + len(second), RUN_AT)
    erased = {"nothing/plain": 2}
    rows = audit.findings(
        known, batch, live, begun, run=run, broker=broker, fifo=fifo, erased=erased
    )
    return _collected(engine.again(rows, schema.AUDIT))


def _live(known: Any, events: Any) -> Any:
    return sql.where(latest.fold(known, events), "outcome = 'live'")


def _collected(rows: Any) -> Found:
    if not isinstance(rows, pa.Table):
        return collected(rows, "queue_id")
    found = {(row["queue_id"],): row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: str(corrupt.__name__))
def test_each_corruption_is_found_where_it_is_and_nowhere_else(
    found: Found, corrupt: Corrupt
) -> None:
    where, what = CORRUPTIONS[corrupt]
    for queue in ("line", "plain"):
        row = found[(f"{corrupt.__name__}/{queue}",)]
        seen = {name: row[name] for name in audit.FINDINGS if row[name]}
        assert seen == ({what: 1} if what and queue == where else {})
        assert row["difference"] == (APART.get(corrupt, 0) if queue == where else 0)


def test_counts_are_of_all_time(found: Found, story: Story) -> None:
    row = found[("nothing/plain",)]
    counts = {name: row[name] for name in (*audit.TOTALS, "live_lake", "live_broker")}
    events = [*story.first, *story.second]
    published = sum((e["kind"], e["queue_id"]) == ("published", "plain") for e in events)
    assert published == 5
    assert counts == {
        **{"accepted": 5, "acked": 3, "live_lake": 2, "live_broker": 2},
        **dict.fromkeys(("buried", "expired", "purged", "deleted"), 0),
    }
    assert (row["batch"], row["run_at"], row["queue"]) == (2, RUN_AT, "plain")
    assert (row["erased"], found[("nothing/line",)]["erased"]) == (2, 0)


def test_offsets_that_are_missing_or_there_twice_are_counted(
    engine: Engine, found: Found, story: Story
) -> None:
    assert found[("",)]["gaps"] == 0
    events = renumbered(story.first).to_pylist()
    del events[3:5]
    messages, previous = engine.rows([], schema.MESSAGES), engine.rows([], schema.AUDIT)
    # Two are missing here, and two after the last; one is there twice.
    run = audit.AuditRun(1, 0, len(story.first) + 2, RUN_AT)
    twice = engine.rows([*events, events[0]], schema.EVENTS)
    rows = audit.findings(messages, twice, messages, previous, run=run, broker=None, fifo=())
    assert _collected(rows)[("",)]["gaps"] == 5


def test_a_queue_that_nothing_happened_to_is_told_of_if_numbers_differ(
    engine: Engine, story: Story
) -> None:
    nothing = engine.rows([], schema.EVENTS)
    before = engine.rows(renumbered(story.first), schema.EVENTS)
    messages, previous = engine.rows([], schema.MESSAGES), engine.rows([], schema.AUDIT)
    live = engine.again(_live(messages, before), schema.MESSAGES)
    run = audit.AuditRun(1, 0, len(story.first), RUN_AT)
    begun = audit.findings(messages, before, live, previous, run=run, broker=None, fifo=())
    begun = engine.again(begun, schema.AUDIT)
    run = audit.AuditRun(2, run.upto, run.upto, RUN_AT)
    held = {"line": 3, "plain": 2}
    some = audit.findings(live, nothing, live, begun, run=run, broker=held, fifo=())
    every = audit.findings(live, nothing, live, begun, run=run, broker=held, fifo=(), whole=True)
    told = _collected(some)
    assert set(told) == {("",), ("plain",)}
    assert (told[("plain",)]["difference"], told[("plain",)]["accepted"]) == (1, 4)
    assert set(_collected(every)) == {("",), ("plain",), ("line",)}


def test_fifo_queues_are_known_by_their_settings(story: Story) -> None:
    events = told(story.driver)
    names = dict(zip(events["queue_id"].to_pylist(), events["queue"].to_pylist(), strict=True))
    found = audit.fifo_queues(events)
    assert {names[id] for id in found} == {"line", "news"}
