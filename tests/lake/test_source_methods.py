"""Every method of Spark's readers and writers, tried with format("courier")."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from courier.lake.schema import EVENTS
from tests.lake.brokers import bodies, options, queue
from tests.server import Server

FINISHED_S_MAX = 120
# They choose a format, or a table, of their own.
OTHER_FORMATS = {"csv", "jdbc", "json", "orc", "parquet", "table", "text", "xml", "changes"}
# Others choose where the rows go.
OTHER_SINKS = {"foreach", "foreachBatch"}
# Needed to say anything at all.
USED_BY_ALL = {"format", "option", "options"}
TABLES = ("as_table", "to_table")
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

Try = Callable[[Any], object]
# A word of what is said of a method that cannot work; None: it works.
READS: dict[str, tuple[Try, str | None]] = {
    "load": (lambda reader: reader.load("somewhere"), "unknown option 'path'"),
    "schema": (lambda reader: reader.schema("kind string, offset bigint").load(), None),
}
WRITES: dict[str, tuple[Try, str | None]] = {
    "save": (lambda writer: writer.mode("append").save(), None),
    "mode": (lambda writer: writer.mode("overwrite").save(), "cannot be overwritten"),
    "partitionBy": (lambda writer: writer.mode("append").partitionBy("body").save(), "partition"),
    "clusterBy": (lambda writer: writer.mode("append").clusterBy("body").save(), "clustering"),
    "bucketBy": (lambda writer: writer.mode("append").bucketBy(2, "body").save(), "bucketBy"),
    "sortBy": (
        lambda writer: writer.mode("append").bucketBy(2, "body").sortBy("body").save(),
        "sortBy",
    ),
    "saveAsTable": (lambda writer: writer.mode("append").saveAsTable("as_table"), None),
    "insertInto": (lambda writer: writer.insertInto("as_table"), None),
}
STREAM_WRITES: dict[str, tuple[Try, str | None]] = {
    "start": (lambda writer: writer.trigger(availableNow=True).start(), None),
    "queryName": (lambda writer: writer.queryName("x").trigger(availableNow=True).start(), None),
    "outputMode": (
        lambda writer: writer.outputMode("update").trigger(availableNow=True).start(),
        "does not support Update mode",
    ),
    "partitionBy": (
        lambda writer: writer.partitionBy("body").trigger(availableNow=True).start(),
        None,
    ),
    "clusterBy": (
        lambda writer: writer.clusterBy("body").trigger(availableNow=True).start(),
        None,
    ),
    "trigger": (
        lambda writer: writer.trigger(continuous="1 second").start(),
        "does not support continuous processing",
    ),
    "toTable": (lambda writer: writer.trigger(availableNow=True).toTable("to_table"), None),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("methods")).start() as server:
        with queue(server, "in") as it:
            it.publish_batch(["one", "two"])
        yield server


def methods(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        (DataFrameReader, {*READS, *OTHER_FORMATS}),
        (DataStreamReader, {*READS, "name", *OTHER_FORMATS}),
        (DataFrameWriter, {*WRITES, *OTHER_FORMATS}),
        (DataStreamWriter, {*STREAM_WRITES, *OTHER_SINKS}),
    ],
)
def test_no_method_is_left_out(kind: type, tried: set[str]) -> None:
    assert methods(kind) - USED_BY_ALL - tried == set()


def attempt(act: Try, made: Any, word: str | None) -> Any:
    if word is None:
        return act(made)
    with pytest.raises(PySparkException, match=word):
        done = act(made)
        if isinstance(done, DataFrame):
            done.collect()
        elif isinstance(done, StreamingQuery):
            done.awaitTermination(FINISHED_S_MAX)
    return None


@pytest.mark.parametrize("name", READS)
def test_batch_reads(spark: SparkSession, server: Server, name: str) -> None:
    act, word = READS[name]
    rows = attempt(act, spark.read.format("courier").options(**options(server)), word)
    if word is None:
        assert {row.kind for row in rows.collect()} >= {"published", "queue_created"}


@pytest.mark.parametrize("name", [*READS, "name"])
def test_stream_reads(spark: SparkSession, server: Server, tmp_path: Path, name: str) -> None:
    named: tuple[Try, str | None] = (lambda reader: reader.name("events").load(), None)
    act, word = READS.get(name, named)
    if name == "name" and not hasattr(DataStreamReader, "name"):
        return  # older Spark does not have it
    # Spark wants this set before a source may have a name.
    spark.conf.set(NAMED_SOURCES, str(name == "name").lower())
    try:
        rows = attempt(act, spark.readStream.format("courier").options(**options(server)), word)
        if word is None:
            assert finished(rows, tmp_path / "read") > 0
    finally:
        spark.conf.unset(NAMED_SOURCES)


def finished(rows: DataFrame, home: Path) -> int:
    """How many rows a stream brings."""
    writer = rows.writeStream.format("parquet").option("path", str(home / "rows"))
    query = writer.option("checkpointLocation", str(home / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(FINISHED_S_MAX)
    return rows.sparkSession.read.parquet(str(home / "rows")).count()


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[None]:
    """For the methods that write to one. Spark does not pass a table's own options on."""
    for name in TABLES:
        spark.sql(f"create table {name} (body string) using courier")
    yield
    for name in TABLES:
        spark.sql(f"drop table {name}")


@pytest.mark.parametrize("name", WRITES)
def test_batch_writes(spark: SparkSession, server: Server, tables: None, name: str) -> None:
    act, word = WRITES[name]
    into = f"write-{name.lower()}"
    with queue(server, into):
        pass
    writer = spark.sql("select 'one' as body").write.format("courier")
    attempt(act, writer.options(**options(server, queue=into)), word)
    assert bodies(server, into) == (["one"] if word is None else [])


@pytest.mark.parametrize("name", STREAM_WRITES)
def test_stream_writes(
    spark: SparkSession, server: Server, tables: None, tmp_path: Path, name: str
) -> None:
    act, word = STREAM_WRITES[name]
    into = f"stream-{name.lower()}"
    with queue(server, into):
        pass
    rows = spark.readStream.format("courier").options(**options(server, queue="in")).load()
    rows = rows.where("kind = 'published'").selectExpr("cast(body as string) as body")
    writer = rows.writeStream.format("courier").options(**options(server, queue=into))
    query = attempt(act, writer.option("checkpointLocation", str(tmp_path)), word)
    if word is None:
        assert query.awaitTermination(FINISHED_S_MAX)
    assert bodies(server, into) == (["one", "two"] if word is None else [])


def test_a_table_cannot_keep_options_and_a_view_can(spark: SparkSession, server: Server) -> None:
    given = ", ".join(f"{name} '{value}'" for name, value in options(server).items())
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"create table kept using courier options ({given})")
    spark.sql(f"create temporary view kept using courier options ({given})")
    assert spark.table("kept").count() > 0
    spark.catalog.dropTempView("kept")


@pytest.mark.parametrize("nullable", [True, False])
def test_a_schema_of_the_users_own_may_let_every_column_be_null(
    spark: SparkSession, server: Server, nullable: bool
) -> None:
    text = ", ".join(
        f"`{name}` {kind}" + ("" if nullable or name not in EVENTS.required else " not null")
        for name, kind in reversed([*EVENTS.kinds.items()])
    )
    rows = spark.read.format("courier").options(**options(server)).schema(text).load()
    assert rows.columns == [*reversed(EVENTS.names)]
    assert rows.where(" or ".join(f"`{name}` is null" for name in EVENTS.required)).count() == 0
    assert rows.count() > 0


def test_a_column_that_can_be_null_cannot_be_declared_otherwise(
    spark: SparkSession, server: Server
) -> None:
    reader = spark.read.format("courier").options(**options(server))
    with pytest.raises(PySparkException, match="column 'body' can be null"):
        reader.schema("body binary not null").load().collect()
