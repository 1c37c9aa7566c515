"""Other engines open the lake, on a disk and in a bucket, and find in it what Spark finds."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import courier.lake
from courier.lake import erasure, iceberg, storage, upkeep, views
from courier.lake.catalog import Lake
from courier.lake.tables import LakeError
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
# Rows, a sum, the latest time and how many texts.
Found = tuple[int, int, datetime, int]
Count = Callable[[Lake, str], Found]
CountAll = Callable[[Lake], dict[str, Found]]
PLAIN_DUCKDB = Path(__file__).parents[2] / ".tools" / "duckdb" / "bin" / "python"
SECONDS_MAX = 120


def _counted(name: str, micros: str, quote: str = '"') -> str:
    """The question in SQL; `micros` makes microseconds of a time."""
    number, time, text = (f"{quote}{column}{quote}" for column in LOOKED_AT[name])
    return (
        f"select count(*) as n, sum({number}) as total, {micros.format(time)} as last, "
        f"count(distinct {text}) as texts from {name}"
    )


def _found(count: int, total: int, last_us: int, texts: int) -> Found:
    return count, int(total), datetime.fromtimestamp(last_us / 1e6, UTC), texts


def _delta(lake: Lake, name: str) -> DeltaTable:
    options = storage.delta_options(lake.root)
    return DeltaTable(f"{lake.root}/{name}", storage_options=options)


def _asked_in_duckdb(rows: Any, name: str) -> Found:
    with duckdb.connect() as connection:
        connection.register(name, rows)
        asked = _counted(name, "epoch_us(max({}))")
        return _found(*connection.execute(asked).fetchall()[0])


def _by_spark(spark: SparkSession) -> Count:
    def count(lake: Lake, name: str) -> Found:
        courier.lake.read(spark, name, lake=lake.root).createOrReplaceTempView(name)
        [found] = spark.sql(_counted(name, "unix_micros(max({}))", "`")).collect()
        return _found(*found)

    return count


def _by_delta_rs(lake: Lake, name: str) -> Found:
    number, time, text = LOOKED_AT[name]
    table = _delta(lake, name).to_pyarrow_table(columns=[number, time, text])
    values = {column: table[column].drop_null().to_pylist() for column in (number, time, text)}
    return table.num_rows, sum(values[number]), max(values[time]), len({*values[text]})


def _by_duckdb(lake: Lake, name: str) -> Found:
    return _asked_in_duckdb(_delta(lake, name).to_pyarrow_dataset(), name)


def _by_polars(lake: Lake, name: str) -> Found:
    number, time, text = LOOKED_AT[name]
    rows = pl.scan_delta(f"{lake.root}/{name}", storage_options=storage.delta_options(lake.root))
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
    return count, total, last, texts


def _by_a_sql_client(lake: Lake, name: str) -> Found:
    """DataFusion, as delta-rs has it: SQL, and nothing of ours."""
    asked = QueryBuilder().register(name, _delta(lake, name))
    [row] = pa.table(asked.execute(_counted(name, "max({})"))).to_pylist()
    return row["n"], row["total"], row["last"], row["texts"]


def _by_the_catalog(folder: Path) -> CountAll:
    def count(lake: Lake) -> dict[str, Found]:
        file = folder / "catalog.db"
        iceberg.sync(lake, file)
        catalog = iceberg.opened(lake, file)
        tables = {name: catalog.load_table((iceberg.NAME, name)) for name in TABLES}
        return {name: _asked_in_duckdb(tables[name].scan().to_arrow(), name) for name in TABLES}

    return count


def _asked_in_plain_duckdb(asked: dict[str, Any]) -> dict[str, Found]:
    ran = subprocess.run(
        # By its path: its Python has nothing that the package of these tests wants.
        [PLAIN_DUCKDB, Path(__file__).with_name("plain_duckdb.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr
    return {name: _found(*rows[0]) for name, rows in json.loads(ran.stdout).items()}


def _secret() -> str:
    """What a user of DuckDB says to reach the bucket."""
    place = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    said = {
        "KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "SECRET": os.environ["AWS_SECRET_ACCESS_KEY"],
        "REGION": os.environ["AWS_REGION"],
        "ENDPOINT": place.netloc,
        "URL_STYLE": "path",
    }
    words = ", ".join(f"{name} '{value}'" for name, value in said.items())
    return f"create secret (type s3, {words}, use_ssl false)"


def _by_duckdbs_delta(lake: Lake) -> dict[str, Found]:
    questions = {
        name: _counted(name, "epoch_us(max({}))").replace(
            f"from {name}", f"from delta_scan('{lake.root}/{name}')"
        )
        for name in TABLES
    }
    asked = {"file": ":memory:", "extensions": ["httpfs", "delta"], "first": [_secret()]}
    return _asked_in_plain_duckdb({**asked, "questions": questions})


def _by_the_views(folder: Path) -> CountAll:
    def count(lake: Lake) -> dict[str, Found]:
        file = folder / "views.duckdb"
        views.write(lake, file)
        questions = {name: _counted(name, "epoch_us(max({}))") for name in TABLES}
        asked: dict[str, Any] = {"file": str(file), "extensions": [], "first": []}
        if storage.is_elsewhere(lake.root):
            asked |= {"extensions": ["httpfs"], "first": [_secret()]}
        return _asked_in_plain_duckdb({**asked, "questions": questions})

    return count


def _each(count: Count) -> CountAll:
    return lambda lake: {name: count(lake, name) for name in TABLES}


@pytest.fixture(scope="module")
def expected(spark: SparkSession, small: SmallLake) -> dict[str, Found]:
    """What Spark finds on the disk."""
    found = {name: _by_spark(spark)(small.lake, name) for name in TABLES}
    assert found["events"][0] > 100 and found["messages"][0] > 50
    return found


@pytest.fixture(scope="module")
def in_bucket(small: SmallLake, bucket: str) -> Lake:
    """The same lake in object storage."""
    lake = Lake(f"{bucket}/open")
    system, root = storage.filesystem(lake.root)
    for table in small.lake.tables:
        pafs.copy_files(
            table.uri,
            f"{root}/{table.name}",
            source_filesystem=pafs.LocalFileSystem(),
            destination_filesystem=system,
        )
    return lake


@pytest.mark.parametrize("where", ["disk", "bucket"])
@pytest.mark.parametrize(
    "who",
    [
        *("Spark", "delta-rs", "DuckDB", "DuckDB's Delta", "Polars", "a SQL client"),
        *("the catalog", "the views"),
    ],
)
def test_every_engine_finds_what_spark_finds(
    spark: SparkSession,
    small: SmallLake,
    in_bucket: Lake,
    expected: dict[str, Found],
    tmp_path: Path,
    who: str,
    where: str,
) -> None:
    engines: dict[str, CountAll] = {
        "Spark": _each(_by_spark(spark)),
        "delta-rs": _each(_by_delta_rs),
        "DuckDB": _each(_by_duckdb),
        "DuckDB's Delta": _by_duckdbs_delta,
        "Polars": _each(_by_polars),
        "a SQL client": _each(_by_a_sql_client),
        "the catalog": _by_the_catalog(tmp_path),
        "the views": _by_the_views(tmp_path),
    }
    assert engines[who](small.lake if where == "disk" else in_bucket) == expected


def test_the_views_of_a_bucket_are_a_file_that_has_a_name(in_bucket: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="name it with --out"):
        views.default_file(in_bucket)
    with pytest.raises(LakeError, match="--relative does not work"):
        views.write(in_bucket, tmp_path / "views.duckdb", relative=True)
    assert not [*tmp_path.iterdir()]


def test_times_are_in_utc_and_bodies_are_bytes(small: SmallLake) -> None:
    table = pa.table(DeltaTable(small.lake.messages.uri).to_pyarrow_table())
    assert table.schema.field("published_at").type == pa.timestamp("us", tz="UTC")
    assert pa.types.is_binary(table.schema.field("body").type)
    frame = pl.read_delta(small.lake.messages.uri)
    assert frame.schema["published_at"] == pl.Datetime("us", "UTC")
    assert frame.schema["body"] == pl.Binary
    orders = frame.filter(pl.col("queue") == "orders").sort("seq")
    bodies = [json.loads(body)["n"] for body in orders["body"]]
    assert bodies == list(range(40))


def test_polars_finds_rows_by_any_column(small: SmallLake) -> None:
    rows = pl.scan_delta(small.lake.messages.uri)
    acked = rows.filter((pl.col("queue") == "orders") & (pl.col("outcome") == "acked"))
    assert acked.collect().height == 25
    assert rows.filter(pl.col("done_at").is_null()).collect()["ended"].unique().to_list() == [
        "live"
    ]


def test_delta_rs_finds_rows_by_any_column(small: SmallLake) -> None:
    table = DeltaTable(small.lake.messages.uri)
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
    asked = erasure.ErasureAsked(queue="orders", where="outcome = 'acked'")
    erasure.erase(lake, asked, actor="ada", now_ms=1_700_000_000_000)
    same()
    upkeep.compact(lake)
    upkeep.vacuum(lake, 0)
    same()
    for table in lake.tables:
        found = [*Path(lake.root, iceberg.FOLDER, table.name, "metadata").iterdir()]
        # Two versions of the metadata, one list, and a manifest or two.
        assert len(found) <= 6, found
