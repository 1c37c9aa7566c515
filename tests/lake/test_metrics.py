"""A row of `queue_minutes` tells what a queue did in a minute, however late an event came."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from courier.clock import ManualClock
from courier.lake import latest, metrics, schema
from tests.conformance.store.driver import Driver
from tests.lake.histories import collected, told
from tests.lake.older import older_store

BEGUN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MINUTE_MS = 60_000
WAITS_MS = (5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120)


def minute(number: int) -> datetime:
    return BEGUN + timedelta(minutes=number)


class Story:
    """Eleven messages, leased one after the other; then the clock is set back."""

    def __init__(self, runner: asyncio.Runner) -> None:
        clock = ManualClock(int(BEGUN.timestamp() * 1000))
        self.driver = driver = Driver(older_store(), clock, runner)
        self.queue = queue = driver.queue("work", attempts_max=None)
        other = driver.queue("other")
        driver.publish(queue, *["x" * 10] * len(WAITS_MS))
        passed = 0
        for wait_ms in WAITS_MS:
            driver.advance(wait_ms - passed)
            passed = wait_ms
            message = driver.lease_one(queue, lease_ms=10 * MINUTE_MS)
            if wait_ms == 5:
                driver.retry(queue, message, delay_ms=0)
                [message] = driver.lease(queue, count=1, lease_ms=10 * MINUTE_MS)
            driver.advance(7)
            passed += 7
            if wait_ms < 2_560:
                driver.ack(queue, message)
        driver.advance(2 * MINUTE_MS - passed)
        driver.publish(queue, "later")
        driver.publish(other, "of another queue")
        self.cut = driver.last()
        driver.advance(-MINUTE_MS)
        driver.publish(queue, "in the minute between")
        driver.remove(queue, 10)
        driver.advance(-MINUTE_MS)
        driver.remove(queue, 11, 12)
        self.events = told(driver)


@pytest.fixture(scope="module")
def story() -> Story:
    with asyncio.Runner() as runner:
        return Story(runner)


@pytest.fixture(scope="module")
def batches(spark: SparkSession, story: Story) -> list[dict[Any, dict[str, Any]]]:
    """What each of two batches makes of the minutes that it is about."""
    made = []
    for after, upto in ((0, story.cut), (story.cut, story.events.num_rows)):
        events = spark.createDataFrame(story.events.slice(0, upto), schema.EVENTS.spark())
        nothing = spark.createDataFrame([], schema.MESSAGES.spark())
        live = latest.fold(nothing, events).where("outcome = 'live'")
        batch = events.where(f"offset > {after}")
        made.append(collected(metrics.queue_minutes(events, batch, live), "queue", "minute"))
    return made


def test_what_happened_in_a_minute_is_counted(batches: list[dict[Any, dict[str, Any]]]) -> None:
    row = batches[0]["work", minute(0)]
    assert list(row) == schema.QUEUE_MINUTES.names
    counted = {kind: row[kind] for kind in metrics.COUNTED if row[kind]}
    assert counted == {"published": 11, "leased": 12, "acked": 9, "retried": 1}
    assert (row["bytes"], row["date"]) == (110, BEGUN.date())


def test_percentiles_are_values_that_were_there(batches: list[dict[Any, dict[str, Any]]]) -> None:
    row = batches[0]["work", minute(0)]
    # Of eleven first attempts; the second attempt of the first message waited for nobody.
    assert [row[f"wait_p{n}_ms"] for n in (50, 95, 99)] == [160, 5_120, 5_120]
    assert [row[f"work_p{n}_ms"] for n in (50, 95, 99)] == [7, 7, 7]
    assert [row[f"total_p{n}_ms"] for n in (50, 95, 99)] == [87, 1_287, 1_287]
    later = batches[0]["work", minute(2)]
    assert [later[f"{what}_p50_ms"] for what in ("wait", "work", "total")] == [None] * 3


def test_the_backlog_is_that_after_the_last_event_of_the_minute(
    batches: list[dict[Any, dict[str, Any]]],
) -> None:
    first, last = batches[0]["work", minute(0)], batches[0]["work", minute(2)]
    assert (first["backlog"], first["oldest_ms"]) == (2, MINUTE_MS)
    assert (last["backlog"], last["oldest_ms"]) == (3, 3 * MINUTE_MS)
    assert batches[0]["other", minute(2)]["backlog"] == 1


def test_a_minute_without_events_has_no_row(batches: list[dict[Any, dict[str, Any]]]) -> None:
    assert set(batches[0]) == {("work", minute(0)), ("work", minute(2)), ("other", minute(2))}


def test_late_events_change_the_rows_of_their_own_minutes_only(
    batches: list[dict[Any, dict[str, Any]]],
) -> None:
    assert set(batches[1]) == {("work", minute(0)), ("work", minute(1))}
    first, between = batches[1]["work", minute(0)], batches[1]["work", minute(1)]
    before = batches[0]["work", minute(0)]
    assert {name for name in first if first[name] != before[name]} == {
        *("deleted", "backlog", "oldest_ms")
    }
    assert (between["published"], between["deleted"], between["backlog"]) == (1, 1, 3)
    # Two more were deleted afterwards, in a minute before it; what is left came in the minute
    # after that, by its own time.
    assert (first["deleted"], first["backlog"], first["oldest_ms"]) == (2, 1, 0)
    assert between["oldest_ms"] == 2 * MINUTE_MS


def test_corrected_rows_take_the_place_of_the_old(
    spark: SparkSession, batches: list[dict[Any, dict[str, Any]]]
) -> None:
    old, new = (
        spark.createDataFrame(
            pa.Table.from_pylist(list(rows.values())), schema.QUEUE_MINUTES.spark()
        )
        for rows in batches
    )
    rows = metrics.corrected(old, new)
    assert rows.columns == schema.QUEUE_MINUTES.names
    assert collected(rows, "queue", "minute") == batches[0] | batches[1]
