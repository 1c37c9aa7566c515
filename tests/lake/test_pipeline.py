"""The pipeline in this process: what is in the lake after it ran, broke off, or was refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, checks, derived, java, pipeline, retention, tables
from courier.lake.catalog import LIVE, Lake
from courier.lake.client import Away, Client, CourierError, Slice
from courier.lake.pipeline import LakePipeline
from courier.lake.rebuild import rebuild
from courier.lake.status import status
from courier.lake.tables import LakeError, Table
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import SmallLake, place_of, rows, subscribed
from tests.server import Server

FINDINGS = ("gaps", "double_leases", "unleased_acks", "revived", "order_violations")


class Died(BaseException):
    """In place of a kill: whatever is on disk stays as it is."""


def _journal(server: Server, upto: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with Client(place_of(server)) as broker:
        epoch, after = broker.head().epoch, 0
        while after < upto:
            page, after = broker.page(Slice(epoch, after, upto), rows=10_000)
            rows += page.to_pylist()
    return rows


def test_the_lake_has_every_event_as_the_journal_tells_it(small: SmallLake) -> None:
    events = sorted(rows(small.lake.events), key=lambda row: int(row["offset"]))
    upto = archive.last(small.lake.events)
    for row in events:
        assert row.pop("date") == row["at"].date()
    assert events == _journal(small.server, upto)
    assert [archive.last(table) for table in small.lake.tables] == [upto] * 5


def test_all_adds_up_in_a_mixed_history(small: SmallLake) -> None:
    audit = rows(small.lake.audit)
    assert {row["queue"] for row in audit} >= {"orders", "payments.fifo", "waste", "short"}
    for row in audit:
        assert row["difference"] == 0, row
        assert not any(row[name] for name in FINDINGS), row
    (orders,) = (row for row in audit if row["queue"] == "orders")
    assert (orders["accepted"], orders["acked"], orders["buried"]) == (40, 25, 3)
    assert (orders["live_lake"], orders["live_broker"]) == (12, 12)


def _points() -> list[tuple[str, str]]:
    tables = ("events", "messages", "queue_minutes", "consumers_hours", "audit")
    return [(name, verb) for name in tables for verb in ("write", "commit")]


def test_a_batch_that_broke_off_anywhere_is_finished_by_the_next_run(
    spark: SparkSession, small: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run breaks off behind the next point, so the same events are brought in ten runs."""
    root = tmp_path / "lake"
    for number, (name, verb) in enumerate(_points()):
        real: Callable[..., Any] = getattr(Table, verb)

        def dying(
            table: Table, *args: Any, name: str = name, real: Callable[..., Any] = real, **kw: Any
        ) -> Any:
            result = real(table, *args, **kw)
            if table.name == name:
                raise Died
            return result

        with monkeypatch.context() as patched:
            patched.setattr(Table, verb, dying)
            # In place of the query, which takes a BaseException for the end of Python.
            with pytest.raises(Died):
                _bring(spark, Lake(str(root)), small, batch=number)
    _bring(spark, Lake(str(root)), small, batch=len(_points()))
    lake = Lake(str(root))
    upto = archive.last(lake.events)
    assert sorted(row["offset"] for row in rows(lake.events)) == list(range(1, upto + 1))
    again, first = Lake(str(root)), small.lake
    for table, other in zip(again.tables[1:4], first.tables[1:4], strict=True):
        assert rows(table) == rows(other), table.name
    for row in rows(again.audit):
        assert not any(row[name] for name in ("difference", *FINDINGS)), row


def _bring(spark: SparkSession, lake: Lake, small: SmallLake, *, batch: int) -> None:
    """One batch as a query makes it, of the events that the small lake has."""
    upto = archive.last(small.lake.events)
    place = place_of(small.server)
    for table in lake.tables:
        table.create()
    rows = (
        spark.read.format("courier")
        .option("url", place.url)
        .option("token", place.token)
        .option("endingOffset", str(upto))
        .load()
    )
    after = archive.last(lake.events)
    new = rows.where(f"offset > {after}")
    archive.append(lake.events, new, after=after, batch=batch, began_ms=0, files_max=1)
    tables = derived.Derived(spark, lake, lambda offset: None)
    tables.catch_up(batch=batch, began_ms=0, audit=True)


def test_a_batch_of_few_events_is_no_job_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are its tables and its audit; one of many events is."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    with Server(tmp_path).start() as server, server.client() as http:
        queue = CloudflareClient(http, "orders")
        lake = Lake(str(tmp_path / "lake"))
        brought = LakePipeline(spark, lake, place_of(server), name="few")
        brought.check()
        before = set(jobs())
        for number in range(2):
            queue.publish_batch([f"{number} {n}" for n in range(10)])
            queue.ack([each.lease for each in queue.pull(10)])
            brought._bring(number)
        brought._settle()
        assert {archive.last(table) for table in lake.tables} == {archive.last(lake.events)}
        assert len(rows(lake.messages)) == 20 and rows(lake.audit)
        assert set(jobs()) == before
        monkeypatch.setattr(tables, "FEW_ROWS", 5)
        queue.publish_batch(["many"] * 10)
        brought._bring(2)
        assert set(jobs()) > before


def test_a_second_run_brings_only_what_is_new_and_a_rebuild_gives_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Server(tmp_path).start() as server, server.client() as http:
        lake, place = Lake(str(tmp_path / "lake")), place_of(server)
        queue = CloudflareClient(http, "work")
        queue.publish_batch([f"first {n}" for n in range(20)])
        queue.ack([each.lease for each in queue.pull(5)])
        done: list[pipeline.Done] = []
        first = LakePipeline(spark, lake, place, name="lake", rows_max=25, report=done.append)
        first.run(every_ms=None)
        # Cut in the middle of lives, and of what one call did.
        assert [each.rows for each in done[:-1]] == [25]
        queue.publish_batch(["second"])
        queue.ack([each.lease for each in queue.pull(10)])
        told = subscribed(http, "run.completed")
        before = archive.last(lake.events)
        with Client(place) as broker:
            new = broker.head().last - before
        done.clear()
        # The checkpoint is lost, or on another machine: the lake knows where to go on.
        elsewhere = str(tmp_path / "elsewhere")
        second = LakePipeline(
            spark, lake, place, name="lake", checkpoint=elsewhere, report=done.append
        )
        second.run(every_ms=None)
        assert [each.rows for each in done] == [new]
        (message,) = told.pull(10)
        assert json.loads(message.body)["payload"] == {
            "pipeline": "lake",
            "batches": 1,
            "offset": before + new,
        }
        found = {table.name: rows(table) for table in lake.tables}
        offsets = sorted(row["offset"] for row in found["events"])
        assert offsets == list(range(1, len(offsets) + 1))
        assert len(found["messages"]) == 21
        assert not any(row["difference"] for row in found["audit"])
        assert {row["live_broker"] for row in found["audit"] if row["queue"] == "work"} == {15, 6}

        assert list(rebuild(spark, lake)) == [
            "messages",
            "queue_minutes",
            "consumers_hours",
        ]
        for table in lake.tables[:4]:
            assert rows(table) == found[table.name], table.name
        with pytest.raises(LakeError, match="'events' cannot be rebuilt"):
            list(rebuild(spark, lake, "events"))
        _status_and_metrics(lake, server, new)


def _status_and_metrics(lake: Lake, server: Server, rows: int) -> None:
    found = status(lake, place_of(server))
    assert [each.upto for each in found.tables] == [archive.last(lake.events)] * 5
    assert found.tables[0].rows == rows and found.tables[0].rows_per_s > 0
    token = f"Bearer {server.credentials['admin']['token']}"
    with server.client() as http:
        metrics = http.get(f"{server.url}/metrics", headers={"Authorization": token}).text
    lag = found.lag_offsets
    assert (
        lag is not None and f'courier_pipeline_lag_offsets{{pipeline="lake"}} {lag:.1f}' in metrics
    )
    seconds = next(
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith('courier_pipeline_lag_seconds{pipeline="lake"}')
    )
    # What became of the news that the run was completed, and its message, is still to come.
    assert lag >= 2 and seconds > 0
    assert found.lag_seconds is not None and found.lag_seconds > 0
    assert 'courier_pipeline_seen_timestamp_seconds{pipeline="lake"}' in metrics


# --- what cannot be gone on from ---


def _check(lake: Lake, server: Server, checkpoint: Path) -> int:
    return checks.check(lake, place_of(server), name="lake", checkpoint=str(checkpoint))


def test_a_lake_of_another_journal_is_refused(small: SmallLake, tmp_path: Path) -> None:
    shutil.copytree(small.root, tmp_path / "lake")
    (tmp_path / "other").mkdir()
    with Server(tmp_path / "other").start() as other:
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*")}
        with pytest.raises(LakeError, match=r"the store was recreated.* --lake"):
            _check(Lake(str(tmp_path / "lake")), other, tmp_path / "checkpoint")
        assert {p: p.stat().st_mtime_ns for p in (tmp_path / "lake").rglob("*")} == before


def test_a_lake_ahead_of_its_journal_is_refused(
    spark: SparkSession, small: SmallLake, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with Client(place_of(small.server)) as broker:
        head = broker.head()
    lake.events.create(epoch=head.epoch)
    lake.events.commit(None, app=archive.APP, batch=head.last + 1_000_000)
    with pytest.raises(LakeError, match=f"up to offset {head.last + 1_000_000}.*older copy"):
        _check(lake, small.server, tmp_path / "checkpoint")


def test_a_checkpoint_of_another_is_refused(small: SmallLake, tmp_path: Path) -> None:
    shutil.copytree(small.root, tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    own = tmp_path / "lake" / "_checkpoints" / "lake"
    # A lake that was moved goes on.
    assert _check(lake, small.server, own) == archive.last(lake.events) + 1
    with pytest.raises(LakeError, match=r"another pipeline or lake.*--checkpoint"):
        checks.check(lake, place_of(small.server), name="other", checkpoint=str(own))
    with pytest.raises(LakeError, match=r"another pipeline or lake.*--checkpoint"):
        _check(Lake(str(tmp_path / "new")), small.server, own)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(LakeError, match=r"in use by something else.*--checkpoint"):
        _check(lake, small.server, tmp_path / "full")


def test_a_broker_that_is_not_there_or_does_not_know_us_is_told(
    small: SmallLake, tmp_path: Path
) -> None:
    lake, place = Lake(str(tmp_path / "lake")), place_of(small.server)
    with pytest.raises(Away, match="cannot be reached"):
        nowhere = replace(place, url="http://127.0.0.1:9", away_s_max=0)
        checks.check(lake, nowhere, name="lake", checkpoint=str(tmp_path / "c"))
    with pytest.raises(CourierError, match="does not know this token"):
        checks.check(
            lake, replace(place, token="wrong"), name="lake", checkpoint=str(tmp_path / "c")
        )
    assert lake.events.open() is None


def test_events_that_a_token_may_not_see_are_missed(
    spark: SparkSession, small: SmallLake, tmp_path: Path
) -> None:
    events = Lake(str(tmp_path / "lake")).events
    rows = small.lake.events.read(spark).drop("date").where("offset <> 5")
    with pytest.raises(LakeError, match="needs the operator's token"):
        archive.append(events, rows, after=0, batch=0, began_ms=0, files_max=1)
    with pytest.raises(archive.Gap, match=r"the lake needs event 1 next,.* begin with 6"):
        archive.append(events, rows.where("offset > 4"), after=0, batch=0, began_ms=0, files_max=1)
    assert archive.last(events) == 0


def test_without_java_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = java.find()
    assert home is not None and (java.version(home) or 0) >= java.OLDEST
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(java, "_homes", lambda: iter([tmp_path, tmp_path / "none"]))
    assert java.version(tmp_path) == 11
    assert java.find() is None
    assert "apt-get install openjdk-17-jre-headless" in java.MISSING


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "x\n  File y\ncourier.lake.client.Trimmed: it is gone\n\nJVM stacktrace:\n z",
            "Trimmed",
            "it is gone",
        ),
        ("java.io.IOException: No space left on device\n at x", "LakeError", "no room left"),
        ("\n[SOME_CLASS] what it is\n at x", "Unexplained", "[SOME_CLASS] what it is (more in"),
    ],
)
def test_what_ended_a_query_is_one_sentence(text: str, kind: str, sentence: str) -> None:
    told = checks.explained(RuntimeError(text), "/lake")
    assert type(told).__name__ == kind
    assert sentence in str(told) and "\n" not in str(told)


def test_the_first_audit_of_a_day_tells_of_every_queue(
    spark: SparkSession, small: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small.root, tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    before = {row["queue_id"]: row["accepted"] for row in rows(lake.audit)}
    upto = archive.last(lake.events)
    queue_id = next(row["queue_id"] for row in rows(lake.audit) if row["queue"] == "orders")
    # One more event, a day later.
    event = lake.events.read(spark).where(f"queue_id = '{queue_id}' and kind = 'retried'").limit(1)
    moved = event.selectExpr(
        f"cast({upto + 1} as bigint) as offset",
        *[name for name in event.columns if name not in ("offset", "date")],
    )
    archive.append(lake.events, moved, after=upto, batch=1, began_ms=0, files_max=1)
    tables = derived.Derived(spark, lake, lambda offset: None)
    later_ms = tables._clock.now_ms() + 86_400_000
    monkeypatch.setattr(tables._clock, "now_ms", lambda: later_ms)
    tables.catch_up(batch=1, began_ms=0, audit=True)
    days = sorted({row["date"] for row in rows(lake.audit)})
    assert len(days) == 2
    after = {row["queue_id"]: row["accepted"] for row in rows(lake.audit) if row["date"] == days[1]}
    assert after == before
    assert lake.messages.files(partition=LIVE)
    # So the last day has the totals of all time, and all others can be dropped.
    dropped = {
        each.table: each.rows for each in retention.chosen(lake, retention.DropAsked("9999-12-31"))
    }
    assert dropped["audit"] == sum(row["date"] == days[0] for row in rows(lake.audit))
