"""Tables: what is written and committed is there once, whoever else is at it."""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from courier import clock
from courier.lake import tables
from courier.lake.files import Written
from courier.lake.schema import TableSchema
from courier.lake.tables import (
    CHECKPOINT_COMMITS,
    LAYOUT,
    LOOKED_S_MAX,
    LakeError,
    Moved,
    Table,
)

APP = "tests"
COLUMNS = TableSchema(
    {"offset": "bigint", "at": "timestamp", "text": "string", "day": "string"},
    required=("offset", "at"),
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return _table(tmp_path)


def _table(root: Path) -> Table:
    by = {"day": "date_format(at, 'yyyy-MM-dd')"}
    return Table(str(root), "things", COLUMNS, partition_by=by, sort_by=("at",))


def _rows(spark: SparkSession, offsets: Sequence[int]) -> DataFrame:
    made = [(n, NOON + timedelta(hours=n, microseconds=1), f"n={n}", "") for n in offsets]
    return spark.createDataFrame(made, COLUMNS.spark())


def _offsets(table: Table, spark: SparkSession) -> list[int]:
    return sorted(row["offset"] for row in table.read(spark).select("offset").collect())


def _write(table: Table, spark: SparkSession, offsets: Sequence[int], batch: int = 1) -> Written:
    return table.write(_rows(spark, offsets), batch=batch)


def test_a_batch_is_there_once_it_is_committed_and_only_once(
    spark: SparkSession, table: Table
) -> None:
    assert table.open() is None
    assert table.read(spark).count() == 0
    written = _write(table, spark, [1, 2, 13])
    assert written.rows == 3
    assert written.range("offset") == (1, 13)
    assert table.commit(written, app=APP, batch=7)
    # The same batch again, as after a crash: its files do not count.
    assert not table.commit(_write(table, spark, [1, 2, 13]), app=APP, batch=7)
    assert not _table(Path(table.uri).parent).commit(written, app=APP, batch=6)
    assert _offsets(table, spark) == [1, 2, 13]
    assert (table.committed(APP), table.committed("others")) == (7, None)
    # Delta's own reader agrees, and partitions are as declared.
    assert sorted(DeltaTable(table.uri).to_pyarrow_table().column("offset").to_pylist()) == [
        1,
        2,
        13,
    ]
    assert {file.partition["day"] for file in table.files()} == {"2026-01-31", "2026-02-01"}


def test_files_are_chosen_by_partition_and_range(spark: SparkSession, table: Table) -> None:
    table.commit(_write(table, spark, [1, 2]), app=APP, batch=1)
    table.commit(_write(table, spark, [5, 14]), app=APP, batch=2)
    assert len(table.files()) == 3
    assert [f.rows for f in table.files(partition="2026-01-31")] == [1, 2]
    assert table.files(partition="2026-03-01") == []

    def found(column: str, low: object, high: object) -> list[int]:
        files = table.files(meets=(column, low, high))
        return sorted(row["offset"] for row in table.read(spark, files).collect())

    assert found("offset", 2, 4) == [1, 2]
    assert found("offset", 3, 4) == []
    assert found("at", NOON + timedelta(hours=5), NOON + timedelta(hours=13)) == [5]
    # Bounds are kept in milliseconds and rounded outwards: nothing is missed.
    exact = NOON + timedelta(hours=14, microseconds=1)
    assert found("at", exact, exact) == [14]


def test_a_batch_may_replace_files_unless_they_are_gone(spark: SparkSession, table: Table) -> None:
    table.commit(_write(table, spark, [1, 2]), app=APP, batch=1)
    before = table.files()
    table.commit(_write(table, spark, [2]), app=APP, batch=2, removes=before)
    assert _offsets(table, spark) == [2]
    with pytest.raises(Moved):
        table.commit(_write(table, spark, [3]), app=APP, batch=3, removes=before)
    assert _offsets(table, spark) == [2]
    assert table.committed(APP) == 2
    # What was there stays readable for a while.
    old = table.files_at(APP, 1)
    assert sorted(row["offset"] for row in table.read(spark, old).collect()) == [1, 2]


def test_two_writers_of_one_batch_commit_it_once(spark: SparkSession, table: Table) -> None:
    other = _table(Path(table.uri).parent)
    table.create()
    assert other.open() is not None
    mine, theirs = _write(table, spark, [1]), _write(other, spark, [1])
    assert table.commit(mine, app=APP, batch=1)
    # It last looked before the commit.
    assert not other.commit(theirs, app=APP, batch=1)
    assert _offsets(table, spark) == [1]


def test_files_are_rewritten_into_one_with_the_same_rows(spark: SparkSession, table: Table) -> None:
    for n in (1, 2, 3):
        table.commit(_write(table, spark, [n]), app=APP, batch=n)
    files = sorted(table.files(), key=lambda file: file.low["offset"])
    table.commit(table.rewrite(files), removes=files, same_rows=True)
    (file,) = table.files()
    assert (file.rows, file.low["offset"], file.high["offset"]) == (3, 1, 3)
    assert [row["text"] for row in table.read(spark).collect()] == ["n=1", "n=2", "n=3"]
    assert table.committed(APP) == 3


def test_a_commit_tells_about_itself(spark: SparkSession, table: Table) -> None:
    assert table.note() == {}
    table.create(epoch="e1")
    assert table.epoch == "e1"
    assert table.note() == {}
    table.commit(_write(table, spark, [1]), app=APP, batch=1, note={"courier.upto": "1"})
    files = table.files()
    table.commit(table.rewrite(files), removes=files, same_rows=True)
    assert table.note()["courier.upto"] == "1"


def test_a_table_of_somebody_else_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    other = TableSchema({"a": "bigint", "b": "string"})
    Table(str(tmp_path), "things", other).create()
    table = _table(tmp_path)
    with pytest.raises(LakeError, match=r"not one of Courier's tables.* a, b;"):
        table.open()


def test_a_table_of_an_earlier_release_gets_the_columns_of_this_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = COLUMNS.without(["text"])
    by = {"day": "date_format(at, 'yyyy-MM-dd')"}
    old = Table(str(tmp_path), "things", before, partition_by=by, sort_by=("at",))
    old.commit(old.write(_rows(spark, [1, 2]).drop("text"), batch=1), app=APP, batch=1)
    table = _table(tmp_path)
    # It can be read at once, and is written to after an upgrade, which may come twice.
    assert [row["text"] for row in table.read(spark).collect()] == [None, None]
    table.upgrade()
    table.upgrade()
    table.commit(_write(table, spark, [3]), app=APP, batch=2)
    files = [file for file in table.files() if file.partition["day"] == "2026-01-31"]
    table.commit(table.rewrite(files), removes=files, same_rows=True)
    assert sorted((row["offset"], row["text"]) for row in table.read(spark).collect()) == [
        (1, None),
        (2, None),
        (3, "n=3"),
    ]
    found = DeltaTable(table.uri).to_pyarrow_table().to_pylist()
    assert sorted((row["offset"], row["text"]) for row in found) == [
        (1, None),
        (2, None),
        (3, "n=3"),
    ]
    # And the earlier release reads on.
    assert _offsets(Table(str(tmp_path), "things", before, partition_by=by), spark) == [1, 2, 3]


def test_a_table_of_a_newer_layout_is_left_alone(spark: SparkSession, table: Table) -> None:
    table.create().alter.set_table_properties({LAYOUT: "99"}, raise_if_not_exists=False)
    with pytest.raises(LakeError, match="was written by a newer Courier"):
        _table(Path(table.uri).parent).open()


def test_the_log_of_a_table_does_not_grow(spark: SparkSession, table: Table) -> None:
    table.commit(_write(table, spark, [1]), app=APP, batch=1)
    log = Path(table.uri, "_delta_log")
    for batch in range(2, 131):
        table.commit(None, app=APP, batch=batch)
    table.trim_log()
    assert len(list(log.glob("*.json"))) == 131  # none is old enough
    for file in log.iterdir():
        then_s = file.stat().st_mtime - 2 * 3600
        os.utime(file, (then_s, then_s))
    table.commit(None, app=APP, batch=131)
    table.trim_log()
    assert len(list(log.glob("*.json"))) <= CHECKPOINT_COMMITS + 1
    for reader in (table, _table(Path(table.uri).parent)):
        assert reader.committed(APP) == 131
        assert _offsets(reader, spark) == [1]
    with pytest.raises(LakeError, match="has no version of batch 5"):
        table.files_at(APP, 5)


def test_a_commit_lists_nothing_however_long_the_log_is(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch asks of the log, by the calls that list it or read it again."""
    written = _write(table, spark, [1])
    table.commit(written, app=APP, batch=1, note={"courier.upto": "1"})
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in (
        *((os, "scandir"), (os, "listdir"), (os, "fsync"), (os.path, "exists")),
        *((DeltaTable, "update_incremental"), (DeltaTable, "history")),
        (DeltaTable, "transaction_version"),
    ):
        count(owner, name)

    def batch(number: int) -> Counter[str]:
        counts.clear()
        table.commit(None, app=APP, batch=number, note={"courier.upto": str(number)})
        assert table.committed(APP) == number
        assert table.note()["courier.upto"] == str(number)
        assert len(table.files()) == 1
        return Counter(counts)

    first = batch(2)
    assert not first["scandir"] + first["listdir"] + first["history"]
    assert first["update_incremental"] <= 1 and first["transaction_version"] <= 2
    for number in range(3, 2 * CHECKPOINT_COMMITS):
        last = batch(number)
        # With a checkpoint, two more files are made durable.
        assert last - first <= Counter(fsync=2 * ((number + 1) % CHECKPOINT_COMMITS == 0)), number
    assert len(list(Path(table.uri, "_delta_log").glob("*.checkpoint.parquet"))) == 2
    # A commit of somebody else is seen.
    other = _table(Path(table.uri).parent)
    other.commit(None, app=APP, batch=1_000)
    assert table.committed(APP) == 1_000


def test_a_log_that_was_not_looked_at_for_long_is_listed(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit may be gone from it, and others be there. Time asleep counts."""
    table.commit(_write(table, spark, [1]), app=APP, batch=1)
    other = _table(Path(table.uri).parent)
    for batch in range(2, CHECKPOINT_COMMITS + 10):
        other.commit(None, app=APP, batch=batch)
    log = Path(table.uri, "_delta_log")
    for file in log.iterdir():
        then_s = file.stat().st_mtime - 2 * 3600
        os.utime(file, (then_s, then_s))
    other.trim_log()
    assert not (log / f"{2:020d}.json").exists()
    asleep_ns = int(LOOKED_S_MAX + 1) * 1_000_000_000
    monkeypatch.setattr(tables, "elapsed_ns", lambda: clock.elapsed_ns() + asleep_ns)
    assert table.committed(APP) == CHECKPOINT_COMMITS + 9
