"""Queues as a sink: every row once, whatever is run again."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from courier.lake.bulk import PACE_S, REQUEST_BYTES, Pace, _cut
from courier.lake.client import Client, CourierError
from courier.lake.source import CourierDataSource
from tests.lake.brokers import bodies, events, options, place, queue
from tests.server import Server

FINISHED_S_MAX = 120
BODY = StructType().add("body", StringType())
COUNTS = MapType(StringType(), LongType())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("broker")).start() as server, queue(server, "checked"):
        yield server


def save(rows: DataFrame, server: Server, **more: Any) -> None:
    rows.write.format("courier").options(**options(server, **more)).mode("append").save()


def numbers(spark: SparkSession, count: int, parts: int) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("cast(id as string) as body")


def test_columns_are_what_a_message_is_made_of(spark: SparkSession, broker: Server) -> None:
    with queue(broker, "whole"):
        rows = spark.sql(
            "select '[1]' as body, 'json' as content_type, map('a', 'b') as headers,"
            " 60000L as delay_ms, 'own-1' as message_id"
        )
        save(rows, broker, queue="whole")
        save(spark.sql("select x'00ff' as body"), broker, queue="whole")
        save(spark.sql("select '7' as body"), broker, queue="whole", contentType="json")
    first, second, third = events(broker, kind="published", queue="whole")
    assert json.loads(first["body"]) == [1] and first["content_type"] == "json"
    assert first["headers"] == {"a": "b"} and first["delay_ms"] == 60_000
    assert first["message_id"] == "own-1"
    assert second["content_type"] == "bytes" and second["body_base64"] == "AP8="
    assert third["content_type"] == "json"


def test_a_write_that_is_run_again_publishes_what_is_missing(
    spark: SparkSession, broker: Server
) -> None:
    with queue(broker, "again"):
        save(numbers(spark, 50, 2).where("body < '30'"), broker, queue="again", writeId="w.1")
        before = len(bodies(broker, "again"))
        assert 0 < before < 50
        save(numbers(spark, 50, 2).where("body < '30'"), broker, queue="again", writeId="w.1")
        assert len(bodies(broker, "again")) == before
        save(numbers(spark, 3, 1), broker, queue="again")
        save(numbers(spark, 3, 1), broker, queue="again")
        assert len(bodies(broker, "again")) == before + 6


OTHERS = r"the rows published under 'w/\d' before were others: there are 10, and those sent now"


def test_a_write_that_is_run_again_with_other_rows_fails_and_publishes_nothing_more(
    spark: SparkSession, broker: Server, queue_name: str
) -> None:
    with queue(broker, queue_name):
        save(numbers(spark, 20, 2), broker, queue=queue_name, writeId="w")
        before = bodies(broker, queue_name)
        for what, rows, parts, body in (
            ("the last changed", 20, 2, "id + id div 19"),
            ("neighbours in each other's place", 20, 2, "id + 1 - 2 * (id % 2)"),
            ("the last of a part gone", 18, 2, "id"),
            ("one more in a part", 22, 2, "id"),
            ("both parts in one", 20, 1, "id"),
        ):
            other = spark.range(0, rows, 1, parts).selectExpr(f"cast({body} as string) as body")
            with pytest.raises(Exception, match=OTHERS):
                save(other, broker, queue=queue_name, writeId="w")
            assert bodies(broker, queue_name) == before, what
        # The rows of one part are as they were: only the driver sees that there were others.
        told = rf"20 rows are published to queue '{queue_name}' under w, and this run has 10: "
        with pytest.raises(Exception, match=told):
            save(numbers(spark, 10, 1), broker, queue=queue_name, writeId="w")
        save(numbers(spark, 20, 2), broker, queue=queue_name, writeId="w")
        assert bodies(broker, queue_name) == before


def test_a_write_that_is_run_again_with_more_parts_fails_and_repeats_no_part(
    spark: SparkSession, broker: Server, queue_name: str
) -> None:
    """Parts that are new may be published: they could be those that an earlier run never began."""
    with queue(broker, queue_name):
        save(numbers(spark, 20, 2), broker, queue=queue_name, writeId="w")
        with pytest.raises(Exception, match=OTHERS):
            save(numbers(spark, 20, 4), broker, queue=queue_name, writeId="w")
        published = bodies(broker, queue_name)
        assert sorted(published[:20]) == sorted(str(n) for n in range(20))
        assert {int(body) for body in published[20:]} <= {*range(10, 20)}


def test_rows_of_an_earlier_run_in_a_part_that_nobody_has_now_are_noticed(
    spark: SparkSession, broker: Server, queue_name: str
) -> None:
    with queue(broker, queue_name):
        far = numbers(spark, 40, 4).where("cast(body as int) >= 30")
        save(far, broker, queue=queue_name, writeId="w")
        with pytest.raises(Exception, match=r"15 rows are published .* and this run has 5: "):
            save(numbers(spark, 5, 1), broker, queue=queue_name, writeId="w")


def test_a_write_that_died_goes_on_with_the_same_rows_only(
    spark: SparkSession, broker: Server, queue_name: str
) -> None:
    """Wherever it died; and it does not matter how the rows are divided among requests."""
    wanted = [str(n) for n in range(20)]
    with queue(broker, queue_name), Client(place(broker)) as client:
        for died in (1, 7, 20):
            sent = pa.record_batch({"body": wanted[:died]})
            client.publish(queue_name, sent, once=f"w{died}/0", first=0, last=died == 20)
            before = bodies(broker, queue_name)
            # With a rate, eleven rows make a request.
            again = {"queue": queue_name, "writeId": f"w{died}", "rowsPerSecond": 44}
            body = f"cast(if(id = {died - 1}, 100, id) as string) as body"
            with pytest.raises(Exception, match=rf"under 'w{died}/0' before were others"):
                save(spark.range(0, 20, 1, 1).selectExpr(body), broker, **again)
            assert bodies(broker, queue_name) == before
            save(numbers(spark, 20, 1), broker, **again)
            assert bodies(broker, queue_name)[-20:] == wanted
        assert len(bodies(broker, queue_name)) == 60


def _with(column: str) -> StructType:
    return StructType().add("body", StringType()).add(column, StringType())


@pytest.mark.parametrize(
    ("schema", "more", "sentence"),
    [
        (StructType().add("text", StringType()), {}, "there is no column 'body' among text"),
        (StructType().add("body", DoubleType()), {}, "column 'body' is double, not string or"),
        (_with("colour"), {}, "unknown column 'colour'; known: body, content_type"),
        (
            StructType().add("body", BinaryType()).add("headers", COUNTS),
            {},
            "column 'headers' is map<string,bigint>, not map<string,string> or string",
        ),
        (BODY, {"queue": ""}, "option 'queue' is missing"),
        (BODY, {"queue": "nowhere"}, "{url} refused: "),
        (BODY, {"tenant": "nobody"}, "{url} refused: "),
        (BODY, {"contentType": "xml"}, "option 'contentType' must be one of text, json, bytes"),
        (BODY, {"writeId": "a/b"}, "option 'writeId' must be up to 100 letters"),
        (BODY, {"startingOffset": "1"}, "unknown option 'startingoffset'"),
        (BODY, {"rowsPerSecond": "0"}, "option 'rowsPerSecond' must be a whole number from 1"),
        (BODY, {"token": "wrong"}, "{url} does not know this token"),
        (
            _with("content_type"),
            {"contentType": "json"},
            "give column 'content_type' or option",
        ),
    ],
)
def test_a_write_that_cannot_be_is_refused_before_any_row(
    broker: Server, schema: StructType, more: dict[str, str], sentence: str
) -> None:
    with pytest.raises(CourierError) as refused:
        given = options(broker, **{"queue": "checked", **more})
        CourierDataSource(given).writer(schema, False)
    assert str(refused.value).startswith(sentence.format(url=broker.url))
    assert "\n" not in str(refused.value)


def test_a_queue_is_not_overwritten(broker: Server) -> None:
    with pytest.raises(CourierError, match="use mode append"):
        CourierDataSource(options(broker, queue="checked")).writer(BODY, True)


def test_rows_are_cut_to_what_a_request_may_carry(spark: SparkSession, broker: Server) -> None:
    with queue(broker, "large"):
        rows = spark.range(0, 120, 1, 1).selectExpr("repeat(cast(id as string), 40000) as body")
        [batch] = rows.limit(120).toArrow().combine_chunks().to_batches()
        parts = list(_cut(batch, 1_000))
        assert len(parts) > 1 and sum(part.num_rows for part in parts) == 120
        assert all(part.nbytes <= REQUEST_BYTES * 1.3 for part in parts)
        save(rows, broker, queue="large")
        assert [body[:1] for body in bodies(broker, "large")[:3]] == ["0", "1", "2"]
        assert len(bodies(broker, "large")) == 120


def test_a_rate_is_held(spark: SparkSession, broker: Server) -> None:
    with queue(broker, "slow"):
        save(numbers(spark, 600, 1), broker, queue="slow", rowsPerSecond=200)
    moments = [event["at_ms"] for event in events(broker, kind="published", queue="slow")]
    after_first = sum(at > moments[0] for at in moments)
    rate = after_first / (moments[-1] - moments[0]) * 1_000
    assert 180 < rate < 220


def test_a_pace_does_not_make_up_for_lost_time_and_costs_nothing_for_repeated_rows() -> None:
    pace = Pace(1_000)
    began_s = time.monotonic()
    for _ in range(100):
        pace.wait(0)
    assert time.monotonic() - began_s < 0.2
    pace._due_s = time.monotonic() - 3_600
    began_s = time.monotonic()
    for _ in range(4):
        pace.wait(pace.rows_max)
    assert time.monotonic() - began_s >= 3 * PACE_S * 0.95


def test_a_stream_whose_last_batch_is_run_again_publishes_it_once(
    spark: SparkSession, broker: Server, tmp_path: Path
) -> None:
    """What Spark had not yet noted as done when it died is what it runs again."""
    (tmp_path / "in").mkdir()
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        rows = spark.readStream.text(str(tmp_path / "in")).selectExpr("value as body")
        writer = rows.writeStream.format("courier").options(**options(broker, queue="stream"))
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(FINISHED_S_MAX)

    def undone() -> None:
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)

    with queue(broker, "stream"):
        (tmp_path / "in" / "one.txt").write_text("a\nb\nc\n")
        run()
        undone()
        run()
        assert bodies(broker, "stream") == ["a", "b", "c"]
        undone()
        (tmp_path / "in" / "one.txt").write_text("a\nc\nb\n")
        with pytest.raises(StreamingQueryException, match="/0/0' before were others: there are 3"):
            run()
        (tmp_path / "in" / "one.txt").write_text("a\nb\nc\n")
        run()
        assert bodies(broker, "stream") == ["a", "b", "c"]
        (tmp_path / "in" / "two.txt").write_text("d\n")
        run()
        assert bodies(broker, "stream") == ["a", "b", "c", "d"]
