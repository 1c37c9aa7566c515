"""Spark, started once for all tests of the lake."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from courier.lake.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session("tests", master="local[2]")
    yield spark
    spark.stop()
