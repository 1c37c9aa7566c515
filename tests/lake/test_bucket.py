"""A lake in object storage is what it is on a disk."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

import courier.lake
from courier.lake import iceberg, parts, pipeline, storage, tables
from courier.lake.catalog import Lake
from courier.lake.tables import LakeError
from tests.clients.cloudflare import CloudflareClient
from tests.lake.buckets import bucket_server, variables
from tests.lake.commands import Commands
from tests.lake.lakes import place_of, rows
from tests.lake.test_open import in_catalog
from tests.server import Server

# Rows of an audit tell when it took place.
COMPARED = ("events", "messages", "queue_minutes", "consumers_hours")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server to whose messages nothing happens any more."""
    with Server(tmp_path_factory.mktemp("orders")).start() as server, server.client() as http:
        queue = CloudflareClient(http, "orders")
        queue.publish_batch([json.dumps({"n": n}) for n in range(40)])
        assert queue.ack([each.lease for each in queue.pull(10)]) == 10
        yield server


@pytest.fixture(scope="module")
def lake(spark: SparkSession, orders: Server, bucket: str) -> Lake:
    lake = Lake(f"{bucket}/shared/lake")
    pipeline.once(spark, lake, place_of(orders), name="bucket")
    return lake


def _all(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """All that is of queues; that a pipeline was here is an event, too."""
    found = {name: rows(getattr(lake, name)) for name in COMPARED}
    return {name: [row for row in each if row["queue_id"]] for name, each in found.items()}


def test_a_bucket_holds_what_a_disk_holds(
    spark: SparkSession, orders: Server, lake: Lake, tmp_path: Path
) -> None:
    on_disk = Lake(str(tmp_path / "lake"))
    pipeline.once(spark, on_disk, place_of(orders), name="disk")
    expected = _all(on_disk)
    assert _all(lake) == expected
    assert len(expected["events"]) > 60 and len(expected["messages"]) == 40


def test_tasks_write_and_read_a_bucket_too(
    spark: SparkSession,
    orders: Server,
    lake: Lake,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "FEW_ROWS", 0)
    monkeypatch.setattr(parts, "GROUP_ROWS", 7)
    by_tasks = Lake(f"{bucket}/tasks")
    pipeline.once(spark, by_tasks, place_of(orders), name="tasks")
    assert _all(by_tasks) == _all(lake)
    read = courier.lake.read(spark, "events", lake=by_tasks.root)
    assert read.count() == len(rows(by_tasks.events))


def test_the_catalog_of_a_bucket_has_the_rows_that_delta_has(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    file = tmp_path / "catalog.db"
    iceberg.sync(lake, file)
    for table in lake.tables:
        assert in_catalog(lake, file, table.name) == rows(table), table.name
    with pytest.raises(LakeError, match="name it with --out"):
        iceberg.default_file(lake)


def test_a_table_is_read_by_its_name(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no table 'things': a lake has events, messages"):
        courier.lake.read(spark, "things", lake=lake.root)
    with pytest.raises(LakeError, match=r"no lake at .*nowhere: `courier pipeline run` makes one"):
        courier.lake.read(spark, "events", lake=str(tmp_path / "nowhere"))


def test_every_command_takes_a_bucket(
    courier: Commands, orders: Server, bucket: str, tmp_path: Path
) -> None:
    root = f"{bucket}/commands"
    place = ("--lake", root, "--data", str(orders.data))

    def run(*words: str) -> str:
        status, shown, said = courier(*words, *place)
        assert status == 0, (words, shown, said)
        return shown

    local = ("--master", "local[2]")
    run("pipeline", "run", "--once", *local)
    counted = "select count(*) as n from messages"
    assert json.loads(run("lake", "query", counted, "--json")) == [{"n": 40}]
    assert "messages" in run("lake", "tables")
    assert json.loads(run("pipeline", "status", "--json"))["lag_offsets"] == 0
    run("lake", "compact")
    run("lake", "vacuum", "--hours", "0")
    run("pipeline", "rebuild", *local)
    run("replay", "--queue", "orders", "--into", "orders", *local)
    run("pipeline", "run", "--once", *local)
    again = "select count(*) as n from messages where headers->>'courier-replay-id' is not null"
    assert json.loads(run("lake", "query", again, "--json")) == [{"n": 40}]
    assert "courier.messages: 80 rows" in run(
        "lake", "catalog", "--out", str(tmp_path / "catalog.db")
    )
    erase = ("lake", "erase", "--queue", "orders", "--where", "(body->>'n')::int < 5")
    assert run(*erase, "--dry-run").startswith("10 messages of 1 queue")
    assert run(*erase, "--actor", "ada").startswith("10 messages erased")
    assert [each["messages"] for each in json.loads(run("lake", "erasures", "--json"))] == [10]
    run("pipeline", "run", "--once", *local)
    left = "select count(*) as n from messages where body is not null and queue = 'orders'"
    assert json.loads(run("lake", "query", left, "--json")) == [{"n": 70}]
    run("report", "--out", str(tmp_path / "report.html"))
    assert (tmp_path / "report.html").stat().st_size > 1_000


@pytest.mark.parametrize(
    ("root", "changed", "reason"),
    [
        ("s3://nowhere/lake", {}, "has no bucket 'nowhere': create it first"),
        ("gs://lakes/lake", {}, "a lake is in a folder or at s3://BUCKET/PATH, not at gs:"),
        ("s3:///lake", {}, "a lake is in a folder or at s3://BUCKET/PATH"),
        (
            "s3://lakes/none",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "127.0.0.1:9 cannot be reached",
        ),
        # Without a scheme it would be AWS that is asked.
        ("s3://lakes/none", {"AWS_ENDPOINT_URL": "minio:9000"}, "https://…, not 'minio:9000'"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_created(
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    root: str,
    changed: dict[str, str],
    reason: str,
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LakeError, match=reason) as caught:
        Lake(root).check(write=True)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    system, _ = storage.filesystem(bucket)
    found = system.get_file_info(pafs.FileSelector("lakes/none", allow_not_found=True))
    assert found == []


def test_a_bucket_that_is_not_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    # The bucket is created by anybody; after that nobody has rights.
    with bucket_server({"INITIAL_NO_AUTH_ACTION_COUNT": "1"}) as bucket:
        for write in (False, True):
            with pytest.raises(LakeError, match="refuses bucket 'lakes': ACCESS_DENIED"):
                Lake(f"{bucket}/lake").check(write=write)
