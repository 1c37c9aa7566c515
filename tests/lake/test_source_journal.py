"""The journal as a source: which rows a range has, and how a stream goes on from an offset."""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType

from courier.lake.client import Client, CourierError, Recreated, Trimmed
from courier.lake.options import BadOption
from courier.lake.schema import EVENTS
from courier.lake.source import CourierDataSource, JournalReader, JournalStreamReader
from tests.lake.brokers import bodies, journal, last_offset, options, place, queue, stream
from tests.server import Server

FINISHED_S_MAX = 120
TRIMMED_S_MAX = 60
PLANNED_S_MAX = 60
POLL_S = 0.1
_ALL = EVENTS.spark()


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("history")).start() as server:
        for name in ("orders", "bills"):
            with queue(server, name) as it:
                it.publish_batch([f"{name} {n}" for n in range(20)])
                it.ack([each.lease for each in it.pull(4, lease_ms=600_000)])
        yield server


def reader(server: Server, schema: StructType = _ALL, **more: Any) -> JournalReader:
    return CourierDataSource(options(server, **more)).reader(schema)


def streamed(server: Server, schema: StructType = _ALL, **more: Any) -> JournalStreamReader:
    made = CourierDataSource(options(server, **more)).streamReader(schema)
    assert isinstance(made, JournalStreamReader)
    return made


def rows_of(reader: JournalReader) -> list[dict[str, Any]]:
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def offsets_of(reader: JournalReader) -> list[int]:
    return [row["offset"] for row in rows_of(reader)]


def test_a_batch_reads_every_event_of_its_range_once(history: Server) -> None:
    last = last_offset(history)
    whole = list(range(1, last + 1))
    assert offsets_of(reader(history)) == whole
    assert offsets_of(reader(history, numPartitions=7, pageRows=5)) == whole
    assert offsets_of(reader(history, startingOffset=5, endingOffset=9)) == [6, 7, 8, 9]
    assert offsets_of(reader(history, startingOffset=last)) == []
    assert offsets_of(reader(history, endingOffset=last + 1_000)) == whole
    assert offsets_of(reader(history, startingOffset="2999-01-01")) == []
    assert offsets_of(reader(history, startingOffset="2020-01-01T00:00:00Z")) == whole
    assert offsets_of(reader(history, endingOffset="2020-01-01T00:00:00+02:00")) == []


def test_a_stream_cannot_register_as_the_lakes_pipeline(history: Server) -> None:
    with pytest.raises(CourierError, match="option 'pipeline' cannot be 'lake'"):
        streamed(history, pipeline="lake")


def test_an_unknown_kind_is_refused_by_name(history: Server) -> None:
    for plan in (reader(history, kinds="acked,publishd").partitions,
                 streamed(history, kinds="acked,publishd").initialOffset):  # fmt: skip
        with pytest.raises(BadOption, match="unknown kind 'publishd'; known: acked, "):
            plan()


def test_a_read_of_every_column_of_many_events_warns_what_it_costs(
    history: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.lake.source.WIDE_ROWS", 10)
    with pytest.warns(UserWarning, match=r"reads all \d+ columns of \d+ events.* 'columns'"):
        reader(history).partitions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader(history, endingOffset=5).partitions()
        narrow = EVENTS.only(["offset", "kind"]).spark()
        reader(history, narrow, columns="offset,kind").partitions()


def test_a_time_divides_the_journal_at_its_first_event_from_then_on(history: Server) -> None:
    rows = rows_of(reader(history))
    moments = sorted({row["at"] for row in rows})
    middle = moments[len(moments) // 2].astimezone(UTC).isoformat()
    before = offsets_of(reader(history, endingOffset=middle))
    after = offsets_of(reader(history, startingOffset=middle))
    assert before + after == [row["offset"] for row in rows]
    assert after[0] == next(r["offset"] for r in rows if r["at"] >= datetime.fromisoformat(middle))


def test_queue_kinds_and_columns_are_the_brokers_work(history: Server) -> None:
    asked = reader(history, queue="bills", kinds="published, acked", pageRows=3)
    rows = rows_of(asked)
    assert {(row["queue"], row["kind"]) for row in rows} == {
        ("bills", "published"),
        ("bills", "acked"),
    }
    assert len(rows) == 24
    source = CourierDataSource(options(history, columns="kind,offset,kind"))
    assert source.schema().names == ["kind", "offset"]
    assert set(rows_of(source.reader(source.schema()))[0]) == {"kind", "offset"}
    schema = StructType().add("message_id", StringType()).add("offset", LongType(), False)
    assert [*rows_of(reader(history, schema))[0]] == ["message_id", "offset"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"colums": "body"}, "unknown option 'colums'"),
        ({"columns": "body,bodi"}, "option 'columns' names bodi"),
        ({"mode": "push"}, "option 'mode' must be journal or consume, not 'push'"),
        ({"mode": "consume"}, "option 'queue' is missing"),
        (
            {"startingOffset": "soon"},
            "option 'startingOffset' must be earliest, latest, an offset or",
        ),
        ({"startingOffset": "latest"}, "a batch read goes from startingOffset on"),
        ({"endingOffset": "earliest"}, "a batch read goes from startingOffset on"),
        ({"numPartitions": "0"}, "option 'numPartitions' must be a whole number from 1"),
        ({"pageRows": "many"}, "option 'pageRows' must be a whole number"),
        ({"pushFilters": "yes"}, "option 'pushFilters' must be true or false"),
        ({"maxRowsPerTrigger": "5"}, "unknown option 'maxrowspertrigger' for a batch read"),
        ({"path": "x"}, "unknown option 'path'"),
        ({"tokenFile": "x"}, "give option 'token' or 'tokenFile', not both"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' must be true or false"),
        ({"provider": "courier", "option.url": "x"}, "Spark does not tell a source the options of"),
        ({"url": ""}, "option 'url' is missing"),
        ({"url": "ftp://here"}, "url must be an http:// or https:// address"),
        ({"url": "http://here:port"}, "url must be an http:// or https:// address"),
        ({"token": "", "tokenFile": "/nowhere/token"}, "option 'tokenFile': /nowhere/token: No"),
        ({"token": ""}, "option 'token' is missing"),
        ({"token": "two words"}, "the token contains invalid"),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(
    history: Server, more: dict[str, str], sentence: str
) -> None:
    with pytest.raises(CourierError) as refused:
        source = CourierDataSource(options(history, **more))
        source.reader(source.schema()).partitions()
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_a_wrong_schema_is_one_sentence(history: Server) -> None:
    with pytest.raises(BadOption, match="unknown column 'ofset'"):
        reader(history, StructType().add("ofset", LongType()))
    with pytest.raises(BadOption, match="column 'offset' is bigint, not string"):
        reader(history, StructType().add("offset", StringType()))
    with pytest.raises(BadOption, match="column 'offset' is there twice"):
        reader(history, StructType().add("offset", LongType()).add("offset", LongType()))


def test_the_broker_cannot_be_reached_or_refuses_in_one_sentence(
    history: Server, tmp_path: Path
) -> None:
    def refusal(**more: Any) -> str:
        with pytest.raises(CourierError) as refused:
            reader(history, awaySeconds=1, **more).partitions()
        assert history.credentials["admin"]["token"] not in str(refused.value)
        return str(refused.value)

    assert "127.0.0.1:1 cannot be reached" in refusal(url="http://127.0.0.1:1")
    assert "cannot be trusted" in refusal(url=history.url.replace("http", "https"))
    assert refusal(token="wrong") == f"{history.url} does not know this token"
    assert "refused: no such path" in refusal(url=f"{history.url}/client")
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as stranger:
        threading.Thread(target=stranger.serve_forever).start()
        told = refusal(url=f"http://127.0.0.1:{stranger.server_port}")
        stranger.shutdown()
    assert "does not answer like a Courier broker" in told
    file = tmp_path / "token"
    file.write_text("wrong\n")
    assert "does not know this token" in refusal(token="", tokenFile=file)
    api_token = history.credentials["cloudflare"]["api_token"]
    assert "key lacks scope journal" in refusal(token=api_token)


def test_the_token_is_in_no_plan_and_no_representation(
    spark: SparkSession, history: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    token = history.credentials["admin"]["token"]
    assert token not in repr(place(history))
    assert token not in repr(reader(history)._asked)
    read = journal(spark, history, columns="offset").where("offset > 3")
    read.explain("extended")
    plan = capsys.readouterr().out
    assert "courier" in plan and token not in plan


def test_a_stream_goes_on_where_it_was_and_takes_no_more_than_it_may(history: Server) -> None:
    last = last_offset(history)
    asked = streamed(history, maxRowsPerTrigger=10)
    start = asked.initialOffset()
    assert start == {"v": 1, "epoch": start["epoch"], "offset": 0}
    limit = asked.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    end = asked.latestOffset(start, limit)
    assert end == {**start, "offset": 10}
    [part] = asked.partitions(start, end)
    assert [row["offset"] for b in asked.read(part) for row in b.to_pylist()] == [*range(1, 11)]
    assert asked.latestOffset(end, ReadAllAvailable()) == {**start, "offset": last}
    assert asked.latestOffset({**start, "offset": last}, limit) == {**start, "offset": last}
    assert asked.reportLatestOffset() == {**start, "offset": last}
    assert streamed(history, startingOffset="latest").initialOffset()["offset"] == last
    assert streamed(history, startingOffset=7).initialOffset()["offset"] == 7
    with pytest.raises(CourierError, match=f"{last + 1} is beyond the end.* ends at {last}"):
        streamed(history, startingOffset=last + 1).initialOffset()
    with pytest.raises(CourierError, match="not one of a stream of the journal"):
        asked.latestOffset({**start, "v": 2}, limit)
    with pytest.raises(BadOption, match="unknown option 'endingoffset'"):
        streamed(history, endingOffset=5)


def test_a_stream_of_what_is_there_now_ends_there(fresh_server: Server) -> None:
    asked = streamed(fresh_server)
    asked.prepareForTriggerAvailableNow()
    there = last_offset(fresh_server)
    with queue(fresh_server, "late") as late:
        late.publish_batch(["later"])
    assert last_offset(fresh_server) > there
    end = asked.latestOffset(asked.initialOffset(), asked.getDefaultReadLimit())
    assert end["offset"] == there
    assert asked.latestOffset(end, asked.getDefaultReadLimit()) == end


def test_a_stream_stops_when_its_journal_is_not_the_one_it_knew(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Server(tmp_path).start() as server:
        old_last = last_offset(server)
        server.stop()
        shutil.copytree(server.data, backup)
        server.start()
        with queue(server, "orders") as orders:
            orders.publish_batch(["one", "two"])
        asked = streamed(server)
        start = asked.initialOffset()
        end = asked.latestOffset(start, ReadAllAvailable())
        server.stop()
        shutil.rmtree(server.data)
        shutil.copytree(backup, server.data)
        server.start()
        for go_on in (
            lambda: asked.latestOffset(end, ReadAllAvailable()),
            lambda: asked.partitions(start, end),
        ):
            with pytest.raises(Recreated) as stopped:
                go_on()
            assert f"at offset {end['offset']}" in str(stopped.value)
            assert f"ends at {old_last}" in str(stopped.value)
            assert "new checkpoint" in str(stopped.value)
        server.stop()
        shutil.rmtree(server.data)
        server.start()
        with pytest.raises(Recreated) as stopped:
            streamed(server).latestOffset(end, ReadAllAvailable())
        with Client(place(server)) as client:
            now = client.head().epoch
        assert end["epoch"] in str(stopped.value) and now in str(stopped.value)


def test_a_checkpoint_of_another_mode_is_refused(history: Server) -> None:
    claim = {"v": 1, "query": "q", "batch": 1, "claim": "q-1", "rows": 5}
    with pytest.raises(CourierError, match="not one of a stream of the journal"):
        streamed(history).latestOffset(claim, ReadAllAvailable())


def test_a_stream_stops_when_events_it_has_not_read_are_gone(tmp_path: Path) -> None:
    with Server(tmp_path, args=["--journal-bytes-max", "300000"]).start() as server:
        asked = streamed(server, startingOffset="earliest")
        start = {"v": 1, "epoch": asked.initialOffset()["epoch"], "offset": 0}
        first = _trimmed(server)
        with pytest.raises(Trimmed) as stopped:
            asked.latestOffset(start, ReadAllAvailable())
        told = re.search(
            r"at offset 0, .* begins at (\d+): (\d+) events are gone", str(stopped.value)
        )
        # More may have gone since.
        assert told is not None and int(told[1]) >= first and int(told[2]) == int(told[1]) - 1
        with pytest.raises(Trimmed, match=r"startingOffset 0 are gone: .* begins at \d+"):
            reader(server, startingOffset=0).partitions()


def test_a_stream_goes_on_after_a_gap_when_asked_to_and_the_broker_records_it(
    tmp_path: Path,
) -> None:
    with Server(tmp_path, args=["--journal-bytes-max", "300000"]).start() as server:
        begun = streamed(server, pipeline="mine")
        start = begun.initialOffset()
        _trimmed(server)
        asked = streamed(server, pipeline="mine", failOnDataLoss="false")
        with pytest.warns(UserWarning, match=r"events after offset \d+ are gone"):
            end = asked.latestOffset(start, ReadAllAvailable())
            parts = asked.partitions(start, end)
            parts = asked.partitions(start, end)  # planned again, after a crash
        [first] = [next(asked.read(part)) for part in parts[:1]]
        with Client(place(server)) as client:
            [mine] = client.pipelines()
        gap = first["offset"][0].as_py() - 1 - start["offset"]
        assert mine.name == "mine" and 0 < mine.lost <= gap
        with pytest.warns(UserWarning, match="are gone"):
            late = reader(server, startingOffset=0, failOnDataLoss="false")
            assert offsets_of(late)[0] > 1


def test_a_query_is_registered_from_its_first_moment_and_never_a_batch_behind(
    fresh_server: Server,
) -> None:
    with queue(fresh_server, "orders") as orders, Client(place(fresh_server)) as client:

        def registered() -> int:
            [mine] = client.pipelines()
            return mine.offset

        orders.publish_batch(["a", "b", "c"])
        asked = streamed(fresh_server, pipeline="mine", startingOffset=2)
        start = asked.initialOffset()
        assert registered() == start["offset"] == 2
        end = asked.latestOffset(start, ReadMaxRows(3))
        assert registered() == 2
        # The next question means that Spark has committed the batch before it.
        again = streamed(fresh_server, pipeline="mine")
        again.latestOffset(end, ReadAllAvailable())
        assert registered() == end["offset"] == 5
        # Another query of that name that begins further back has its events kept as well.
        streamed(fresh_server, pipeline="mine").initialOffset()
        assert registered() == 0
        client.forget("mine")
        assert client.pipelines() == []


def _trimmed(server: Server) -> int:
    """Publish until the sweep has taken something away; where the journal begins then."""
    deadline = time.monotonic() + TRIMMED_S_MAX
    with queue(server, "orders") as orders, Client(place(server)) as client:
        while (first := client.head().first) == 1:
            assert time.monotonic() < deadline, "nothing was trimmed"
            orders.publish_batch(["x" * 1_000] * 50)
            time.sleep(POLL_S)
        return first


def test_a_query_that_ends_and_starts_again_reads_every_event_once(
    spark: SparkSession, fresh_server: Server, tmp_path: Path
) -> None:
    """With a new process behind the reader, from the checkpoint alone."""
    batches: list[tuple[int, list[int]]] = []

    def keep(rows: DataFrame, batch: int) -> None:
        batches.append((batch, sorted(row.offset for row in rows.collect())))

    def run() -> dict[str, Any]:
        rows = stream(spark, fresh_server, maxRowsPerTrigger=9, pipeline="mine", columns="offset")
        writer = rows.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(FINISHED_S_MAX)
        assert query.lastProgress is not None
        progress: dict[str, Any] = json.loads(query.lastProgress.json)
        return progress

    with queue(fresh_server, "orders") as orders:
        orders.publish_batch([f"{n}" for n in range(12)])
        progress = run()
        orders.publish_batch([f"{n}" for n in range(12, 15)])
        known = last_offset(fresh_server)
        run()
    read = [offset for _, offsets in batches for offset in offsets]
    assert read[: known - 1] == [*range(1, known)] and len(read) >= known
    assert all(len(offsets) <= 9 for _, offsets in batches)
    [source] = progress["sources"]
    assert set(json.loads(json.dumps(source["endOffset"]))) == {"v", "epoch", "offset"}
    token = fresh_server.credentials["admin"]["token"]
    assert token not in json.dumps(progress)
    headers = {"authorization": f"Bearer {token}"}
    with fresh_server.client() as http:
        told = http.get(f"{fresh_server.url}/journal/pipelines", headers=headers).json()
    assert [each["name"] for each in told["pipelines"]] == ["mine"]
    assert 0 < told["pipelines"][0]["offset"] <= last_offset(fresh_server)
    assert bodies(fresh_server, "orders") == [f"{n}" for n in range(15)]


def test_a_process_that_only_plans_does_not_load_arrow() -> None:
    planning = "import sys, pyspark_courier; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", planning], check=True, timeout=PLANNED_S_MAX)
