"""Compaction and vacuum: the same rows in fewer files, and nothing that is needed is removed."""

import os
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, lock, upkeep
from courier.lake.catalog import LIVE, Lake
from courier.lake.files import File
from courier.lake.tables import LakeError, Moved, Table
from tests.lake.lakes import SmallLake

HOUR_S = 3600


@pytest.fixture
def lake(small: SmallLake, tmp_path: Path) -> Lake:
    """A copy of the small lake, to be changed."""
    shutil.copytree(small.root, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def _split(table: Table, spark: SparkSession, count: int) -> None:
    """Have the rows of a table in so many files."""
    files = table.files()
    for number in range(count):
        part = table.read(spark, files).where(f"seq % {count} = {number}")
        removes = files if number == 0 else []
        table.commit(table.write(part, batch=number), removes=removes, same_rows=True)


def _rows(table: Table, spark: SparkSession) -> list[str]:
    return sorted(str(row) for row in table.read(spark).collect())


def _age(folder: Path, hours: float) -> None:
    for path in folder.rglob("*"):
        then_s = time.time() - hours * HOUR_S
        os.utime(path, (then_s, then_s))


def test_small_files_become_few_with_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    _split(lake.messages, spark, upkeep.FILES_MIN)
    before, upto = _rows(lake.messages, spark), archive.last(lake.messages)
    many = len(lake.messages.files())
    done = upkeep.compact(lake, "messages")
    assert done.before > done.after >= 1
    assert str(done) == f"compacted {done.before} files into {done.after}"
    assert len(lake.messages.files()) == many - done.before + done.after
    # Live rows are still apart from ended ones.
    live = lake.messages.read(spark, lake.messages.files(partition=LIVE))
    assert {row["outcome"] for row in live.collect()} == {"live"}
    assert _rows(lake.messages, spark) == before
    assert archive.last(lake.messages) == upto
    assert str(upkeep.compact(lake)) == "there is nothing to compact"


def test_compaction_gives_way_to_a_batch(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _split(lake.messages, spark, upkeep.FILES_MIN)
    before = _rows(lake.messages, spark)
    rewrite = Table.rewrite

    def overtaken(table: Table, files: list[File]) -> object:
        """Between reading and commit, a batch replaces what is being compacted."""
        written = rewrite(table, files)
        again = Lake(lake.root).messages
        rows = again.read(spark, files)
        batch = (again.committed(archive.APP) or 0) + 1
        again.commit(again.write(rows, batch=batch), app=archive.APP, batch=batch, removes=files)
        return written

    monkeypatch.setattr(Table, "rewrite", overtaken)
    assert upkeep.compact(lake, "messages").before == 0
    assert _rows(lake.messages, spark) == before


def test_a_batch_does_not_replace_what_was_compacted(spark: SparkSession, lake: Lake) -> None:
    _split(lake.messages, spark, upkeep.FILES_MIN)
    files = lake.messages.files(partition=LIVE)
    written = lake.messages.write(lake.messages.read(spark, files), batch=1)
    upkeep.compact(Lake(lake.root), "messages")
    with pytest.raises(Moved):
        lake.messages.commit(written, app="batch", batch=1, removes=files)


def test_vacuum_removes_dead_attempts_and_old_files_only(spark: SparkSession, lake: Lake) -> None:
    before = {table.name: _rows(table, spark) for table in lake.tables}
    data = Path(lake.messages.uri, "data")
    # A dead attempt of long ago, and one that may still be at work.
    lake.messages.write(lake.messages.read(spark), batch=1)
    _age(data, hours=25)
    lake.messages.write(lake.messages.read(spark), batch=2)
    everything = set(data.rglob("*.parquet"))
    assert upkeep.vacuum(lake, 24, True).files > 0
    assert set(data.rglob("*.parquet")) == everything
    told = upkeep.vacuum(lake, 24)
    gone = everything - set(data.rglob("*.parquet"))
    assert gone
    assert {path.name[:12] for path in gone} == {f"{1:012d}"}
    assert str(told) == f"removed {len(gone)} files"
    assert not list(data.rglob(f"{1:012d}-*"))
    assert {table.name: _rows(table, spark) for table in lake.tables} == before


def test_what_was_replaced_is_kept_for_a_while(spark: SparkSession, lake: Lake) -> None:
    old = lake.messages.files()
    _split(lake.messages, spark, 2)
    _age(Path(lake.root), hours=25)
    upkeep.vacuum(lake, 24)
    # Written long ago, but replaced just now: a reader may be in the midst of it.
    assert len(_read(lake, spark, old)) > 0
    upkeep.vacuum(lake, 0)
    assert not [file for file in old if Path(lake.messages.uri, file.path).exists()]
    # What is gone is not counted again, as long as the log tells of it.
    assert upkeep.vacuum(lake, 0).files == upkeep.vacuum(lake, 0, True).files == 0


def _read(lake: Lake, spark: SparkSession, files: list[File]) -> list[object]:
    return list(lake.messages.read(spark, files).collect())


def test_vacuum_leaves_a_running_pipeline_its_files(lake: Lake) -> None:
    with lock.hold(lake.root):
        with pytest.raises(LakeError, match="a pipeline is running"):
            upkeep.vacuum(lake, 0)
        upkeep.vacuum(lake, 1)
    upkeep.vacuum(lake, 0)


def test_one_pipeline_holds_a_lake(lake: Lake) -> None:
    with lock.hold(lake.root), pytest.raises(LakeError, match=f"process {os.getpid()}"):
        lock.hold(lake.root).__enter__()
    assert lock.holder(lake.root) is None


def test_an_unknown_table_is_named(lake: Lake) -> None:
    with pytest.raises(LakeError, match="no table 'things': the lake has events, messages"):
        upkeep.compact(lake, "things")
