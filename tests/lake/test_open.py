"""Other engines open the lake, and find in it what Spark finds."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from courier.lake import erasure, iceberg, upkeep
from courier.lake.catalog import Lake
from tests.lake.lakes import SmallLake, rows

TABLES = ("events", "messages", "queue_minutes", "consumers_hours", "audit")
# Table -> a number, a time and a text of it.
LOOKED_AT = {
    "events": ("offset", "at", "kind"),
    "messages": ("size", "published_at", "outcome"),
    "queue_minutes": ("published", "minute", "queue"),
    "consumers_hours": ("attempts", "hour", "actor"),
    "audit": ("accepted", "run_at", "queue"),
}
Found = tuple[int, int | None, datetime | None, int]


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, small: SmallLake) -> dict[str, Found]:
    """Rows, a sum, the latest time and how many texts, as Spark reads them."""
    found = {}
    for name in TABLES:
        number, time, text = LOOKED_AT[name]
        rows = getattr(small.lake, name).read(spark)
        ((count, total, last_us, texts),) = rows.selectExpr(
            "count(*)",
            f"sum(`{number}`)",
            f"unix_micros(max(`{time}`))",
            f"count(distinct `{text}`)",
        ).collect()
        last = None if last_us is None else datetime.fromtimestamp(last_us / 1e6, UTC)
        found[name] = (count, total, last, texts)
    assert found["events"][0] > 100 and found["messages"][0] > 50
    return found


def uri(lake: Lake, name: str) -> str:
    return str(getattr(lake, name).uri)


@pytest.mark.parametrize("name", TABLES)
def test_delta_rs_reads_what_spark_reads(
    small: SmallLake, by_spark: dict[str, Found], name: str
) -> None:
    table = pa.table(DeltaTable(uri(small.lake, name)).to_pyarrow_table())
    assert found_by_duckdb(table, name) == by_spark[name]


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_reads_what_spark_reads(
    small: SmallLake, by_spark: dict[str, Found], name: str
) -> None:
    rows = DeltaTable(uri(small.lake, name)).to_pyarrow_dataset()
    assert found_by_duckdb(rows, name) == by_spark[name]


def found_by_duckdb(rows: Any, name: str) -> Found:
    number, time, text = LOOKED_AT[name]
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        ((count, total, last_us, texts),) = connection.execute(
            f'select count(*), sum("{number}"), epoch_us(max("{time}")),'
            f' count(distinct "{text}") from rows'
        ).fetchall()
    last = None if last_us is None else datetime.fromtimestamp(last_us / 1e6, UTC)
    return count, total, last, texts


@pytest.mark.parametrize("name", TABLES)
def test_polars_reads_what_spark_reads(
    small: SmallLake, by_spark: dict[str, Found], name: str
) -> None:
    number, time, text = LOOKED_AT[name]
    rows = pl.scan_delta(uri(small.lake, name))
    count, total, last, texts = (
        rows.select(
            pl.len(),
            pl.col(number).sum().alias("total"),
            pl.col(time).max().alias("last"),
            pl.col(text).drop_nulls().n_unique().alias("texts"),
        )
        .collect()
        .row(0)
    )
    assert (count, total, last, texts) == (
        by_spark[name][0],
        by_spark[name][1] or 0,
        by_spark[name][2],
        by_spark[name][3],
    )


def test_times_are_in_utc_and_bodies_are_bytes(small: SmallLake) -> None:
    table = pa.table(DeltaTable(uri(small.lake, "messages")).to_pyarrow_table())
    assert table.schema.field("published_at").type == pa.timestamp("us", tz="UTC")
    assert pa.types.is_binary(table.schema.field("body").type)
    frame = pl.read_delta(uri(small.lake, "messages"))
    assert frame.schema["published_at"] == pl.Datetime("us", "UTC")
    assert frame.schema["body"] == pl.Binary
    orders = frame.filter(pl.col("queue") == "orders").sort("seq")
    bodies = [json.loads(body)["n"] for body in orders["body"]]
    assert bodies == list(range(40))


def test_polars_finds_rows_by_any_column(small: SmallLake) -> None:
    rows = pl.scan_delta(uri(small.lake, "messages"))
    acked = rows.filter((pl.col("queue") == "orders") & (pl.col("outcome") == "acked"))
    assert acked.collect().height == 25
    assert rows.filter(pl.col("done_at").is_null()).collect()["ended"].unique().to_list() == [
        "live"
    ]


def test_delta_rs_finds_rows_by_any_column(small: SmallLake) -> None:
    table = DeltaTable(uri(small.lake, "messages"))
    wanted = [("queue", "=", "orders"), ("outcome", "=", "acked")]
    assert pa.table(table.to_pyarrow_table(filters=wanted)).num_rows == 25


def in_catalog(lake: Lake, file: Path, name: str, where: str = "") -> list[dict[str, Any]]:
    """The rows of a table as readers of Iceberg find them, which all find the same."""
    table = iceberg.opened(lake, file).load_table((iceberg.NAME, name))
    scan = table.scan(row_filter=where) if where else table.scan()
    found = sorted(scan.to_arrow().to_pylist(), key=str)
    if not where:
        read = pl.scan_iceberg(table).collect().to_arrow().cast(scan.to_arrow().schema)
        assert sorted(read.to_pylist(), key=str) == found
        counted = scan.to_duckdb(name).execute(f"select count(*) from {name}").fetchall()
        assert counted == [(len(found),)]
    return found


def test_the_catalog_has_the_rows_that_delta_has_whatever_happens_to_the_files(
    small: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    monkeypatch.setattr(upkeep, "FILES_MIN", 1)
    monkeypatch.setattr(iceberg, "KEPT", timedelta(0))
    shutil.copytree(small.root, tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    file = iceberg.default_file(lake)

    def same() -> None:
        for table in lake.tables:
            assert in_catalog(lake, file, table.name) == rows(table), table.name
        some = [row for row in rows(lake.events) if row["offset"] >= 100]
        assert in_catalog(lake, file, "events", "offset >= 100") == some
        live = [row for row in rows(lake.messages) if row["ended"] == "live"]
        assert in_catalog(lake, file, "messages", "ended = 'live'") == live

    first = iceberg.sync(lake, file)
    assert all(each.added == len(getattr(lake, name).files()) for name, each in first.items())
    same()
    assert {(each.added, each.removed) for each in iceberg.sync(lake, file).values()} == {(0, 0)}
    # Erased content is in no file any more, nor does the catalog name one that is gone.
    asked = erasure.Asked(queue="orders", where="outcome = 'acked'")
    erasure.erase(lake, asked, actor="ada", now_ms=1_700_000_000_000)
    same()
    upkeep.compact(lake)
    upkeep.vacuum(lake, 0)
    same()
    for table in lake.tables:
        found = [*Path(lake.root, iceberg.FOLDER, table.name, "metadata").iterdir()]
        # Two versions of the metadata, one list, and a manifest or two.
        assert len(found) <= 6, found
