"""A row of `messages` tells what is known of a message, whichever events have come so far."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from courier.clock import ManualClock
from courier.core.types import Draft, Message, Queue
from courier.lake import latest, schema
from tests.conformance.store.driver import Driver
from tests.lake.histories import collected, told
from tests.lake.older import older_store
from tests.oracle.store import Oracle

BEGUN = datetime(2026, 3, 1, 23, 59, 50, tzinfo=UTC)
Rows = dict[Any, dict[str, Any]]


def at(ms: int) -> datetime:
    return BEGUN + timedelta(milliseconds=ms)


class Story:
    """A few lives on one store, and where in them the first batch ends."""

    def __init__(self, runner: asyncio.Runner) -> None:
        clock = ManualClock(int(BEGUN.timestamp() * 1000))
        self.driver = driver = Driver(older_store(), clock, runner)
        dead = driver.queue("dead")
        self.queue = queue = driver.queue("work", attempts_max=2, dead_letter=dead.id)
        self.early = driver.queue("early")
        driver.publish(self.early, "leased twice", "removed later", "kept")
        driver.retry(self.early, driver.lease_one(self.early), delay_ms=0)
        self.gone = driver.last()
        self.listener = driver.listener(queue)

        driver.publish(queue, Draft(b"{}", content_type="json", headers={"k": "v"}, group="g"))
        driver.publish(queue, "retried", "leased", "late", "buried", "waiting")
        driver.advance(1_000)
        self.acked, self.retried, self.leased, self.late, self.buried = driver.lease(queue, count=5)
        driver.retry(queue, self.late, delay_ms=60_000)
        driver.rename(queue, self.retried.seq, "another")
        self.cut = driver.last()

        driver.advance(500)
        driver.ack(queue, self.acked)
        driver.retry(queue, self.retried, delay_ms=0)
        driver.extend(queue, self.leased, lease_ms=20_000)
        driver.retry(queue, self.buried, delay_ms=0)
        driver.advance(-3_000)
        driver.ack(queue, self.late, late=True)
        driver.advance(3_000)
        again = {message.seq: message for message in driver.lease(queue, count=2)}
        driver.retry(queue, again[self.buried.seq])
        for pushed in driver.take(self.listener, count=1):
            driver.arrive(self.listener, pushed)
        [self.dead] = driver.browse(dead)
        self.dead_queue = dead
        driver.remove(self.early, 2)
        driver.lease_one(self.early)
        self.events = told(driver)


@pytest.fixture(scope="module")
def story() -> Story:
    with asyncio.Runner() as runner:
        return Story(runner)


@pytest.fixture(scope="module")
def first(spark: SparkSession, story: Story) -> pa.Table:
    """What is known after the first batch, which begins in the middle of the journal."""
    batch = story.events.slice(story.gone, story.cut - story.gone)
    known = spark.createDataFrame([], schema.MESSAGES.spark())
    return latest.fold(known, frame(spark, batch)).toArrow()


@pytest.fixture(scope="module")
def second(spark: SparkSession, story: Story, first: pa.Table) -> Rows:
    known = spark.createDataFrame(first, schema.MESSAGES.spark())
    batch = frame(spark, story.events.slice(story.cut))
    return collected(latest.fold(known, batch), "queue_id", "seq")


def frame(spark: SparkSession, events: pa.Table) -> DataFrame:
    return spark.createDataFrame(events, schema.EVENTS.spark())


def of(rows: Rows, queue: Queue, message: Message) -> dict[str, Any]:
    return rows[queue.id, message.seq]


def test_a_row_has_every_column_of_the_table(first: pa.Table) -> None:
    assert first.column_names == schema.MESSAGES.names


def test_an_acked_message_tells_its_whole_life(story: Story, second: Rows) -> None:
    row = of(second, story.queue, story.acked)
    [offset] = [
        event["offset"]
        for event in story.events.to_pylist()
        if (event["kind"], event["seq"]) == ("acked", story.acked.seq)
    ]
    assert row == {
        "tenant": story.queue.tenant,
        "queue_id": story.queue.id,
        "queue": "work",
        "message_id": story.acked.id,
        "seq": 1,
        "dialect": "test",
        "actor": "caller",
        "published_at": at(0),
        "first_leased_at": at(1_000),
        "last_leased_at": at(1_000),
        "last_leased_by": "caller",
        "done_at": at(1_500),
        "outcome": "acked",
        "attempts": 1,
        "wait_ms": 1_000,
        "work_ms": 500,
        "total_ms": 1_500,
        "size": 2,
        "content_type": "json",
        "headers": '{"k":"v"}',
        "group": "g",
        "body": b"{}",
        "sealed": None,
        "detail": None,
        "published_offset": story.gone + 2,
        "done_offset": offset,
        "gap": None,
        "ended": "2026-03-01",
    }


def test_a_live_message_tells_its_last_attempt(story: Story, first: pa.Table, second: Rows) -> None:
    before = {row["seq"]: row for row in first.to_pylist()}
    leased = before[story.leased.seq]
    assert (leased["outcome"], leased["attempts"], leased["ended"]) == ("live", 1, "live")
    assert (leased["wait_ms"], leased["work_ms"], leased["total_ms"]) == (1_000, None, None)
    assert of(second, story.queue, story.leased) == leased, "an extended lease is no news"

    # It came back and was leased again: the second attempt runs.
    again = of(second, story.queue, story.retried)
    assert (again["attempts"], again["work_ms"], again["outcome"]) == (2, None, "live")
    assert (again["first_leased_at"], again["last_leased_at"]) == (at(1_000), at(1_500))

    waiting = [row for row in second.values() if row["body"] == b"waiting"]
    assert [(row["attempts"], row["wait_ms"], row["last_leased_by"]) for row in waiting] == [
        (0, None, None)
    ]


def test_an_attempt_that_came_back_has_a_length(story: Story, first: pa.Table) -> None:
    [row] = [row for row in first.to_pylist() if row["seq"] == story.late.seq]
    assert (row["outcome"], row["work_ms"]) == ("live", 0)


def test_no_time_passes_while_the_clock_is_set_back(story: Story, second: Rows) -> None:
    row = of(second, story.queue, story.late)
    assert row["done_at"] < row["last_leased_at"]
    assert (row["outcome"], row["work_ms"], row["total_ms"]) == ("acked", 0, 0)


def test_a_dead_letter_is_another_message(story: Story, second: Rows) -> None:
    buried = of(second, story.queue, story.buried)
    dead = of(second, story.dead_queue, story.dead)
    assert (buried["outcome"], buried["attempts"], buried["body"]) == ("buried", 2, b"buried")
    assert buried["work_ms"] is None
    assert (dead["outcome"], dead["attempts"], dead["body"]) == ("live", 0, b"buried")
    assert (dead["actor"], dead["dialect"]) == ("", "broker")
    assert '"reason":"attempts"' in dead["detail"]


def test_headers_are_those_that_were_published(story: Story, second: Rows) -> None:
    assert of(second, story.queue, story.retried)["headers"] is None


def test_an_unknown_message_is_told_of_as_far_as_it_is_known(story: Story, second: Rows) -> None:
    row = second[story.early.id, 2]
    assert (row["outcome"], row["attempts"], row["published_at"]) == ("deleted", 0, at(0))
    assert (row["body"], row["published_offset"], row["size"]) == (None, None, 13)
    row = second[story.early.id, 1]
    assert (row["outcome"], row["attempts"], row["body"]) == ("live", 2, None)
    assert (row["first_leased_at"], row["wait_ms"], row["last_leased_at"]) == (
        None,
        None,
        at(1_500),
    )
    assert (story.early.id, 3) not in second


def test_a_message_is_a_row_of_its_own_however_often_it_is_folded(
    story: Story, first: pa.Table, second: Rows
) -> None:
    assert len(first) == 6
    assert len(second) == 6 + 1 + 2


def test_only_messages_of_earlier_batches_are_looked_for() -> None:
    with asyncio.Runner() as runner:
        driver = Driver(Oracle(), ManualClock(int(BEGUN.timestamp() * 1000)), runner)
        queue = driver.queue()
        for ms in (0, 10, 20_000):
            driver.advance(ms)
            driver.publish(queue, "early")
        cut = driver.last()
        driver.advance(5)
        driver.publish(queue, "in this batch", "and another")
        for message in driver.lease(queue, count=4):
            driver.ack(queue, message)
        events = told(driver)
    batch = events.slice(cut)
    # The third was published in the hour, and on the day, after.
    assert latest.concerned(batch) == [(at(0), at(10)), (at(20_010), at(20_010))]
    assert latest.concerned(events) == []
