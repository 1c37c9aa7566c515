"""The pipeline in this process: what it meets with, tells, and goes on from."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, pipeline, upkeep
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.pipeline import Done, LakePipeline
from courier.lake.tables import COMPACTED, LakeError
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import place_of, subscribed
from tests.server import Server

TRIMMED_S_MAX = 60.0
POLL_S = 0.1
HOUR_S = 3600


def _offsets(lake: Lake) -> list[int]:
    """What Delta's own reader finds."""
    opened = lake.events.open()
    assert opened is not None
    found: list[int] = opened.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


def trim(server: Server, queue: CloudflareClient, *, past: int) -> None:
    """Publish more than the journal has room for, and wait until an offset is gone."""
    for _ in range(20):
        queue.publish_batch(["x" * 1_000] * 50)
    deadline_s = time.monotonic() + TRIMMED_S_MAX
    with Client(place_of(server)) as broker:
        while broker.head().first <= past + 1:
            assert time.monotonic() < deadline_s, "nothing was trimmed"
            time.sleep(POLL_S)


def test_a_trimmed_journal_is_told_and_another_lake_begins_where_it_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    args = ["--journal-bytes-max", "300000"]
    with Server(tmp_path, args=args).start() as server, server.client() as http:
        queue, place = CloudflareClient(http, "work"), place_of(server)
        told = subscribed(http, "run.failed", "run.completed")
        lake = Lake(str(tmp_path / "lake"))
        LakePipeline(spark, lake, place, name="lake").run(every_ms=None)
        before, upto = _offsets(lake), archive.last(lake.events)
        trim(server, queue, past=upto)

        with pytest.raises(LakeError) as refused:
            LakePipeline(spark, lake, place, name="lake").run(every_ms=None)
        sentence = str(refused.value)
        assert f"ends at offset {upto}, and the journal now begins at " in sentence
        assert "events are gone, those after 20" in sentence
        assert "--accept-gap, which records the gap, or start another lake with --lake" in sentence
        assert "\n" not in sentence
        assert _offsets(lake) == before == list(range(1, upto + 1))

        another = Lake(str(tmp_path / "another"))
        LakePipeline(spark, another, place, name="lake").run(every_ms=None)
        offsets = _offsets(another)
        assert offsets[0] > upto + 1
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert {archive.last(table) for table in another.tables} == {offsets[-1]}

        news = [json.loads(each.body) for each in told.pull(10)]
        assert [each["type"].rpartition("run.")[2] for each in news] == [
            "completed",
            "failed",
            "completed",
        ]
        assert news[1]["payload"] == {"pipeline": "lake", "batches": 0, "reason": sentence}
        assert news[2]["payload"]["offset"] == offsets[-1]


def _another_version(checkpoint: Path) -> None:
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        told = file.read_text()
        assert '"v": 1' in told
        file.write_text(told.replace('"v": 1', '"v": 99'))
    _forget_sums(checkpoint)


def _garbage(checkpoint: Path) -> None:
    for file in checkpoint.rglob("[0-9]*"):
        if file.is_file():
            file.write_bytes(b"\x00garbage")
    _forget_sums(checkpoint)


def _cut_short(checkpoint: Path) -> None:
    """As a machine that lost its power leaves files."""
    for name in ("metadata", "_courier.json"):
        (checkpoint / name).write_bytes(b"")
    for name in ("offsets", "commits", "sources"):
        shutil.rmtree(checkpoint / name, ignore_errors=True)
    _forget_sums(checkpoint)


def _forget_sums(checkpoint: Path) -> None:
    """Spark's own sums of what was in the files, without which it takes them as they are."""
    for file in checkpoint.rglob(".*.crc"):
        file.unlink()


class Spoilt:
    """A lake whose checkpoint is spoilt, again and again."""

    def __init__(self, server: Server, http: httpx.Client, root: Path) -> None:
        self.lake = Lake(str(root))
        self.checkpoint = root / "_checkpoints" / "lake"
        self.place = place_of(server)
        self._queue = CloudflareClient(http, "work")

    def publish(self) -> int:
        """How many events are new for the lake."""
        self._queue.publish_batch(["a", "b"])
        with Client(self.place) as broker:
            return broker.head().last - archive.last(self.lake.events)


@pytest.fixture(scope="module")
def spoilt(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoilt]:
    folder = tmp_path_factory.mktemp("spoilt")
    with Server(folder).start() as server, server.client() as http:
        spoilt = Spoilt(server, http, folder / "lake")
        LakePipeline(spark, spoilt.lake, spoilt.place, name="lake").run(every_ms=None)
        yield spoilt


@pytest.mark.parametrize("spoil", [shutil.rmtree, _another_version, _garbage, _cut_short])
def test_without_a_checkpoint_that_can_be_used_it_goes_on_and_brings_nothing_twice(
    spark: SparkSession, spoilt: Spoilt, spoil: Callable[[Path], None]
) -> None:
    spoil(spoilt.checkpoint)
    new = spoilt.publish()
    done: list[Done] = []
    LakePipeline(spark, spoilt.lake, spoilt.place, name="lake", report=done.append).run(
        every_ms=None
    )
    assert sum(each.rows for each in done) == new
    offsets = _offsets(spoilt.lake)
    assert offsets == list(range(1, len(offsets) + 1))
    assert {archive.last(table) for table in spoilt.lake.tables} == {offsets[-1]}


def test_a_running_pipeline_keeps_its_lake_in_shape(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four batches, each compacted with the others; and what no table needs is removed."""
    monkeypatch.setattr(pipeline, "UPKEEP_BATCHES", 2)
    monkeypatch.setattr(pipeline, "VACUUM_BATCHES", 4)
    monkeypatch.setattr(upkeep, "FILES_MIN", 2)
    with Server(tmp_path).start() as server, server.client() as http:
        queue, lake = CloudflareClient(http, "work"), Lake(str(tmp_path / "lake"))
        dead = Path(lake.events.uri, "data", "000000000000-dead", "part.parquet")
        done: list[Done] = []

        def next(batch: Done) -> None:
            done.append(batch)
            if len(done) == 1:
                _old(dead)
            if len(done) == 4:
                running.end.set()
            queue.publish_batch([f"{batch.batch}"])

        running = LakePipeline(spark, lake, place_of(server), name="lake", report=next)
        running.run(every_ms=100)
    assert len(done) == 4
    assert not dead.exists()
    files = lake.events.files()
    assert [COMPACTED in file.path for file in files] == [True], files
    assert _offsets(lake) == list(range(1, done[-1].upto + 1))
    assert sum(each.rows for each in done) == done[-1].upto
    assert {archive.last(table) for table in lake.tables} == {done[-1].upto}


def test_a_broker_that_goes_in_the_midst_of_a_batch_is_told_of_soon(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes when the events are in the lake, and is not told so before it is back."""
    monkeypatch.setattr(pipeline, "AWAY_S_MAX", 1)
    append = archive.append
    with Server(tmp_path).start() as server:
        place, lake, said = place_of(server), Lake(str(tmp_path / "lake")), list[str]()

        def appended(*args: Any, **words: Any) -> archive.Span:
            span = append(*args, **words)
            if not said:
                server.kill()
            return span

        def hear(line: str) -> None:
            said.append(line)
            if "waiting" in line:
                server.start()

        monkeypatch.setattr(archive, "append", appended)
        running = LakePipeline(
            spark, lake, place, name="lake", say=hear, report=lambda done: running.end.set()
        )
        running.run(every_ms=100)
    assert len(said) == 2 and "tried for 1 s; waiting for it" in said[0], said
    upto = archive.last(lake.events)
    assert _offsets(lake) == list(range(1, upto + 1))
    assert {archive.last(table) for table in lake.tables} == {upto}


def _old(file: Path) -> None:
    """A file of an attempt that died yesterday."""
    file.parent.mkdir(parents=True)
    file.write_bytes(b"PAR1")
    then_s = time.time() - 25 * HOUR_S
    os.utime(file, (then_s, then_s))
