"""A row of `consumers_hours` tells what a consumer took in an hour, and what came of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from courier.clock import ManualClock
from courier.core.types import Ack, Actor, Message, Queue, Retry, Settlement
from courier.lake import consumers, latest, schema
from tests.conformance.store.driver import Driver
from tests.lake.histories import collected, told
from tests.oracle.store import Oracle

BEGUN = datetime(2026, 3, 1, 12, 59, 0, tzinfo=UTC)
LEASE_MS = 90_000
ADA, BOB = Actor("ada", "cloudflare"), Actor("bob", "anypoint")


class Story:
    """Ada and Bob take messages shortly before the hour is over."""

    def __init__(self, runner: asyncio.Runner) -> None:
        clock = ManualClock(int(BEGUN.timestamp() * 1000))
        self.driver = driver = Driver(Oracle(), clock, runner)
        queue = driver.queue("work", attempts_max=None)
        listener = driver.listener(queue)
        driver.publish_rows(queue, "for a listener", listener=listener)
        driver.publish(queue, *["x" * 100] * 6)
        acked, retried, purged = self.lease(queue, ADA, 3)
        late, expired = self.lease(queue, BOB, 2)
        driver.advance(10_500)
        self.settle(queue, ADA, Ack(acked.seq, 1, late=False), Retry(retried.seq, 1, 600_000))
        self.cut = driver.last()
        driver.advance(79_500)
        driver.sweep()
        driver.advance(1_000)
        self.settle(queue, ADA, Ack(late.seq, 1, late=True))
        driver.remove(queue, purged.seq, expired.seq, retried.seq)
        self.events = told(driver)

    def lease(self, queue: Queue, actor: Actor, count: int) -> list[Message]:
        now_ms = self.driver.now_ms
        lease = self.driver.store.lease(
            queue.id, count=count, lease_ms=LEASE_MS, actor=actor, now_ms=now_ms
        )
        return self.driver.run(lease).messages

    def settle(self, queue: Queue, actor: Actor, *items: Settlement) -> None:
        now_ms = self.driver.now_ms
        self.driver.run(self.driver.store.settle(queue.id, items, actor=actor, now_ms=now_ms))


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[Any, dict[str, Any]]:
    """Made of two batches, the second of which ends leases of the first."""
    with asyncio.Runner() as runner:
        story = Story(runner)
    events = spark.createDataFrame(story.events, schema.EVENTS.spark())
    first, second = events.where(f"offset <= {story.cut}"), events.where(f"offset > {story.cut}")
    nothing = spark.createDataFrame([], schema.MESSAGES.spark())
    known = latest.fold(nothing, first).where("outcome = 'live'")
    begun = consumers.consumers_hours(nothing, first)
    made = consumers.added(begun, consumers.consumers_hours(known, second))
    assert made.columns == schema.CONSUMERS_HOURS.names
    return collected(made, "actor", "hour")


def counts(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("attempts", "acked", "wasted", "lease_seconds", "bytes"))


HOUR = BEGUN.replace(minute=0)
NEXT = HOUR + timedelta(hours=1)


def test_a_lease_counts_when_it_begins_and_for_what_it_came_to_when_it_ends(
    rows: dict[Any, dict[str, Any]],
) -> None:
    assert counts(rows["ada", HOUR]) == (3, 1, 1, 21.0, 300)
    assert rows["ada", HOUR]["date"] == BEGUN.date()


def test_a_lease_that_expires_is_wasted_by_who_held_it(rows: dict[Any, dict[str, Any]]) -> None:
    assert counts(rows["bob", HOUR]) == (2, 0, 0, 0.0, 200)
    assert counts(rows["bob", NEXT]) == (0, 0, 2, 180.0, 0)


def test_a_late_ack_is_of_who_sent_it_and_held_nothing(rows: dict[Any, dict[str, Any]]) -> None:
    # Her third lease expired, too. Messages that nobody held were then removed.
    assert counts(rows["ada", NEXT]) == (0, 1, 1, 90.0, 0)


def test_whoever_leases_nothing_is_no_consumer(rows: dict[Any, dict[str, Any]]) -> None:
    assert set(rows) == {("ada", HOUR), ("ada", NEXT), ("bob", HOUR), ("bob", NEXT)}
