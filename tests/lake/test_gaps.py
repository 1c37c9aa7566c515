"""Events that the journal lost: the pipeline goes on after them, and every table says so."""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, query
from courier.lake.archive import Span
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place
from courier.lake.pipeline import LakePipeline
from courier.lake.rebuild import RebuildPart, rebuild
from courier.lake.tables import LakeError
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import SmallLake, place_of, rows
from tests.lake.test_pipeline_goes_on import trim
from tests.server import Server

# The journal is looked at every second.
SETTLED_S = 4.0


@dataclass(frozen=True)
class Torn:
    """A lake whose journal was trimmed past it once."""

    lake: Lake
    gap: Span
    ended: str
    silent: str
    heard: str


@pytest.fixture(scope="module")
def torn(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Torn]:
    home = tmp_path_factory.mktemp("torn")
    lake = Lake(str(home / "lake"))
    args = ["--journal-bytes-max", "100000"]
    with Server(home, args=args).start() as server, server.client() as http:
        place = place_of(server)
        _make_older(lake, place)
        queue, other = CloudflareClient(http, "work"), CloudflareClient(http, "other")
        queue.publish_batch(["ended", "silent", "heard"])
        LakePipeline(spark, lake, place, name="lake").run(every_ms=None)
        after = archive.last(lake.events)
        first, *leased = queue.pull(3)
        queue.ack([first.lease])
        trim(server, other, past=after + 3)
        _settle(server)
        queue.ack([leased[1].lease])
        # As if it was killed once the gap was recorded in `events`.
        with pytest.raises(Killed):
            Dying(spark, lake, place, name="lake", accept_gap=True).run(every_ms=None)
        LakePipeline(spark, lake, place, name="lake").run(every_ms=None)
        [gap] = archive.gaps(lake.events)
        assert gap.after == after
        with Client(place) as broker:
            [known] = broker.pipelines()
            assert known.lost == gap.rows
        yield Torn(lake, gap, ended=first.id, silent=leased[0].id, heard=leased[1].id)


def _make_older(lake: Lake, place: Place) -> None:
    """The tables that said nothing of gaps in an earlier release, as it made them."""
    with Client(place) as broker:
        epoch = broker.head().epoch
    older = Lake(lake.root)
    for table in (older.queue_minutes, older.consumers_hours):
        table.schema = table.schema.without(["gap"])
        assert "gap" not in {field.name for field in table.create(epoch=epoch).schema().fields}


def _settle(server: Server) -> None:
    """Until nothing more is trimmed."""
    first = -1
    with Client(place_of(server)) as broker:
        while first != broker.head().first:
            first = broker.head().first
            time.sleep(SETTLED_S)


class Killed(Exception):
    pass


class Dying(LakePipeline):
    def _go_on(self, every_ms: int | None) -> None:
        raise Killed


def test_every_table_and_the_audit_say_what_is_missing(torn: Torn) -> None:
    lake, gap = torn.lake, torn.gap
    assert {each.missing for each in query.sizes(lake)} == {gap.rows}
    [row] = [row for row in rows(lake.events) if row["kind"] == archive.GAP]
    assert row["offset"] == gap.upto
    assert json.loads(row["detail"]) == {
        "first": gap.after + 1,
        "last": gap.upto,
        "events": gap.rows,
        "pipeline": "lake",
    }
    offsets = sorted(row["offset"] for row in rows(lake.events))
    assert offsets == [*range(1, gap.after + 1), *range(gap.upto, archive.last(lake.events) + 1)]
    assert sum(row["gaps"] for row in rows(lake.audit)) == gap.rows
    # What was counted in the time of the gap may be too little.
    assert gap.upto in {row["gap"] for row in rows(lake.queue_minutes)}
    assert gap.upto in {row["gap"] for row in rows(lake.consumers_hours)}
    assert {archive.last(table) for table in lake.tables} == {archive.last(lake.events)}


def test_a_message_that_may_have_ended_in_the_gap_is_marked(torn: Torn) -> None:
    found = {row["message_id"]: row for row in rows(torn.lake.messages)}
    assert found[torn.ended]["outcome"] == found[torn.silent]["outcome"] == "live"
    assert found[torn.ended]["gap"] == found[torn.silent]["gap"] == torn.gap.upto
    # What happened to this one later tells its whole life.
    assert (found[torn.heard]["outcome"], found[torn.heard]["gap"]) == ("acked", None)
    assert found[torn.heard]["attempts"] == 1
    marked = [row for row in found.values() if row["gap"] is not None]
    assert len(marked) == 2


def test_tables_with_a_gap_are_rebuilt_the_same(spark: SparkSession, torn: Torn) -> None:
    before = {table.name: rows(table) for table in torn.lake.tables}
    list(rebuild(spark, torn.lake))
    for table in torn.lake.tables:
        assert rows(table) == before[table.name], table.name


def _damaged(small: SmallLake, tmp_path: Path, *, live: bool) -> Lake:
    """The small lake, without the rows of one queue in any table that is made of events.

    Unless told, those of its live messages stay.
    """
    shutil.copytree(small.root, tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    [queue] = {row["queue_id"] for row in rows(lake.messages) if row["queue"] == "orders"}

    def others(found: pa.Table) -> pa.Table:
        return found.filter(pc.not_equal(found["queue_id"], queue))

    for table in (lake.messages, lake.queue_minutes, lake.consumers_hours):
        for file in table.files():
            if file.partition.get("ended") == "live" and not live:
                continue
            table.commit(table.rewrite([file], others), removes=[file])
    return lake


def _others(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["queue"] != "orders"]


def test_one_queue_is_rebuilt_and_no_other(
    spark: SparkSession, small: SmallLake, tmp_path: Path
) -> None:
    damaged = _damaged(small, tmp_path, live=True)
    for table, whole in zip(damaged.tables[1:4], small.lake.tables[1:4], strict=True):
        assert rows(table) == _others(rows(whole)) != rows(whole), table.name
    before = {file.path for table in damaged.tables[1:4] for file in table.files()}
    with pytest.raises(LakeError, match="no event of the lake is about a queue 'nope'"):
        list(rebuild(spark, damaged, part=RebuildPart(queue="nope")))
    list(rebuild(spark, damaged, part=RebuildPart(queue="orders")))
    for table, whole in zip(damaged.tables[1:4], small.lake.tables[1:4], strict=True):
        assert rows(table) == rows(whole), table.name
    # None of these has a row of the queue, so all of them are as they were.
    assert before <= {file.path for table in damaged.tables[1:4] for file in table.files()}


def test_one_day_is_rebuilt_and_no_other(
    spark: SparkSession, small: SmallLake, tmp_path: Path
) -> None:
    damaged = _damaged(small, tmp_path, live=False)
    days = {str(row["date"]) for row in rows(small.lake.queue_minutes)}
    live = [file.path for file in damaged.messages.files(partition="live")]
    for day in sorted(days):
        list(rebuild(spark, damaged, part=RebuildPart(day=day)))
    for table, whole in zip(damaged.tables[2:4], small.lake.tables[2:4], strict=True):
        assert rows(table) == rows(whole), table.name
    ended = [row for row in rows(small.lake.messages) if row["done_at"] is not None]
    assert [row for row in rows(damaged.messages) if row["done_at"] is not None] == ended
    # What has not ended is of no day.
    assert [file.path for file in damaged.messages.files(partition="live")] == live
