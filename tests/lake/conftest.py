"""Spark, started once for all tests of the lake."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from courier.lake.session import session
from tests.lake import lakes
from tests.lake.buckets import bucket_server, variables
from tests.lake.commands import Commands, commands


@pytest.fixture(scope="session", autouse=True)
def storage_variables() -> Iterator[None]:
    """Where object storage will be; known before Spark starts, which hands it to its workers."""
    before = dict(os.environ)
    os.environ.update(variables())
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """An address in object storage that all tests share: each has lakes of its own in it."""
    with bucket_server() as bucket:
        yield bucket


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Tests are many short queries: neither Java's nor Spark's compilers would pay for themselves.
    # Without the slower of Java's two there is little room for what the other compiles, unless
    # asked for: a long run spends a third of its time on making room.
    flags = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    settings = {
        "spark.driver.extraJavaOptions": flags,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    spark = session("tests", master="local[2]", settings=settings)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def small(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[lakes.SmallLake]:
    """A small lake for all to read; see `lakes.mixed_history` for what is in it."""
    with lakes.small_lake(spark, tmp_path_factory.mktemp("small")) as small:
        yield small


@pytest.fixture(scope="session")
def courier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands of one process, which leaves nothing behind when it ends."""
    with commands(tmp_path_factory.mktemp("courier") / "commands") as courier:
        yield courier
