"""Mode consume: a batch is a claim, which stays the same until it is acknowledged."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from courier.lake.client import ClaimEnded, Client, CourierError
from courier.lake.consume import QueueStreamReader
from courier.lake.options import BadOption
from courier.lake.schema import CLAIMED
from courier.lake.source import CourierDataSource
from tests.clients.cloudflare import CloudflareClient
from tests.lake.brokers import events, options, place, queue, stream
from tests.server import Server

FINISHED_S_MAX = 120
POLL_S = 0.1
ALL = ReadMaxRows(1_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("broker"), args=["--sweep-every-ms", "50"]).start() as it:
        yield it


@pytest.fixture
def taken(broker: Server, queue_name: str) -> Iterator[CloudflareClient]:
    """A queue of the test's own, with ten messages."""
    with queue(broker, queue_name) as it:
        it.publish_batch([f"{n}" for n in range(10)])
        yield it


def reader(server: Server, name: str, **more: Any) -> QueueStreamReader:
    given = options(server, mode="consume", queue=name, **more)
    made = CourierDataSource(given).streamReader(CLAIMED.spark())
    assert isinstance(made, QueueStreamReader)
    return made


def read(asked: QueueStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """As executors do it: with a copy of the reader for each part."""
    found: list[str] = []
    for part in asked.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(asked)).read(part):
            found += [row["body"].decode() for row in batch.to_pylist()]
    return found


def test_a_batch_is_the_same_for_whoever_asks_until_it_is_acknowledged(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    first = reader(broker, queue_name, numPartitions=3, pageRows=2)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(7))
    assert end["rows"] == 7 and end["batch"] == 1
    assert read(first, start, end) == [f"{n}" for n in range(7)]
    assert len(taken.pull(10)) == 3
    first.stop()
    second = reader(broker, queue_name)
    assert read(second, start, end) == [f"{n}" for n in range(7)]
    assert second.latestOffset(start, ALL) == end, "claimed, not yet written down"
    second.commit(end)
    second.commit(end)
    assert taken.backlog() == 3
    assert second.latestOffset(end, ALL) == end, "nothing is there: no batch"
    second.stop()


def test_what_spark_has_committed_is_acknowledged_by_the_next_run(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    """Spark does not say so again after a restart."""
    died = reader(broker, queue_name)
    end = died.latestOffset(died.initialOffset(), ReadMaxRows(6))
    died.stop()
    later = reader(broker, queue_name)
    last = later.latestOffset(end, ALL)
    assert taken.backlog() == 4 and last["rows"] == 4
    assert later.latestOffset(last, ALL) == last
    assert taken.backlog() == 0
    later.stop()


def test_an_empty_queue_and_an_empty_batch_ask_for_nothing(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    taken.purge()
    asked = reader(broker, queue_name)
    start = asked.initialOffset()
    assert asked.latestOffset(start, ALL) == start
    assert asked.partitions(start, start) == []
    asked.commit(start)
    asked.stop()


def test_a_lease_is_kept_while_a_batch_runs(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    asked = reader(broker, queue_name, leaseMs=1_000)
    start = asked.initialOffset()
    end = asked.latestOffset(start, ALL)
    _wait(lambda: len(events(broker, kind="extended", queue=queue_name)) >= 5 * 10)
    assert taken.pull(1) == []
    assert len(read(asked, start, end)) == 10
    asked.commit(end)
    assert taken.backlog() == 0
    asked.stop()


def test_a_lost_claim_stops_the_query_with_a_sentence(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    asked = reader(broker, queue_name, leaseMs=1_000)
    start = asked.initialOffset()
    end = asked.latestOffset(start, ALL)
    asked.stop()
    _wait(lambda: bool(taken.pull(10)))
    with pytest.raises(CourierError, match="lost"):
        read(asked, start, end)
    for acknowledge in (lambda: asked.commit(end), lambda: asked.latestOffset(end, ALL)):
        with pytest.raises(ClaimEnded) as stopped:
            acknowledge()
        assert f"queue '{queue_name}' went to other consumers" in str(stopped.value)
        assert "lease 1000 ms" in str(stopped.value) and "leaseMs" in str(stopped.value)


def test_a_claim_that_the_broker_does_not_know_is_not_taken_for_acknowledged(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    asked = reader(broker, queue_name)
    start = asked.initialOffset()
    first = asked.latestOffset(start, ReadMaxRows(3))
    assert len(read(asked, start, first)) == 3
    asked.commit(first)
    second = asked.latestOffset(first, ReadMaxRows(3))
    assert len(read(asked, first, second)) == 3
    asked.commit(second)
    asked.stop()
    with Client(place(broker)) as client:
        for _ in range(2):
            client.ack(queue_name, second["claim"], after="")
    later = reader(broker, queue_name)
    assert later.latestOffset(second, ALL)["rows"] == 4
    later.stop()
    for unknown in (first, {**second, "claim": "forgotten"}):
        with pytest.raises(ClaimEnded, match="the broker no longer knows whether its messages"):
            reader(broker, queue_name).latestOffset(unknown, ALL)


def test_a_claim_that_nobody_has_read_may_be_lost(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    """The run died before Spark wrote the claim down, and the next one came late."""
    died = reader(broker, queue_name, leaseMs=1_000)
    start = died.initialOffset()
    lost = died.latestOffset(start, ALL)
    died.stop()
    _wait(lambda: len(events(broker, kind="lease_expired", queue=queue_name)) == 10)
    later = reader(broker, queue_name)
    end = later.latestOffset(start, ALL)
    assert end["rows"] == 10 and end["claim"] != lost["claim"]
    assert len(read(later, start, end)) == 10
    later.commit(end)
    assert taken.backlog() == 0
    later.stop()


def test_what_is_there_now_ends_although_more_comes(
    broker: Server, taken: CloudflareClient, queue_name: str
) -> None:
    asked = reader(broker, queue_name)
    asked.prepareForTriggerAvailableNow()
    offset = asked.initialOffset()
    batches = 0
    while (end := asked.latestOffset(offset, ReadMaxRows(4))) != offset:
        taken.publish_batch(["more"] * 8)
        offset, batches = end, batches + 1
        assert batches < 6, "it never ends"
    assert batches == 3
    asked.stop()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kinds": "acked"}, "unknown option 'kinds' for consuming a queue"),
        ({"leaseMs": "5"}, "option 'leaseMs' must be a whole number from 1000"),
    ],
)
def test_options_of_other_modes_are_refused(
    broker: Server, more: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadOption) as refused:
        reader(broker, "orders", **more)
    assert str(refused.value).startswith(sentence)


def test_other_checkpoints_and_unknown_queues_are_refused(broker: Server) -> None:
    asked = reader(broker, "nowhere")
    with pytest.raises(CourierError, match="nowhere"):
        asked.latestOffset(asked.initialOffset(), ALL)
    with pytest.raises(CourierError, match="not one of mode consume"):
        asked.latestOffset({"v": 1, "epoch": "x", "offset": 5}, ALL)
    with pytest.raises(BadOption, match="for streams"):
        CourierDataSource(options(broker, mode="consume", queue="q")).reader(CLAIMED.spark())


def test_a_query_consumes_a_queue_to_its_end(
    spark: SparkSession, broker: Server, taken: CloudflareClient, queue_name: str, tmp_path: Path
) -> None:
    batches: dict[int, list[str]] = {}

    def keep(rows: DataFrame, batch: int) -> None:
        batches[batch] = [bytes(row.body).decode() for row in rows.collect()]

    def run() -> None:
        rows = stream(spark, broker, mode="consume", queue=queue_name, maxRowsPerTrigger=4)
        writer = rows.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(FINISHED_S_MAX)

    run()
    assert [body for batch in sorted(batches) for body in batches[batch]] == [*"0123456789"]
    assert all(len(bodies) <= 4 for bodies in batches.values())
    assert taken.backlog() == 0
    taken.publish_batch(["again"])
    run()
    assert batches[max(batches)] == ["again"]
    assert taken.backlog() == 0


def _wait(true: Any) -> None:
    deadline = time.monotonic() + FINISHED_S_MAX
    while not true():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
