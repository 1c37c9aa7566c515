"""Spark, started once for all tests of the lake."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from courier.lake.session import session
from tests.lake import lakes


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Tests are many short queries: neither Java's nor Spark's compilers would pay for themselves.
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
