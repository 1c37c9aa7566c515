"""The Spark side: the journal as a data source, and the lake that is made of it.

Nothing here needs the server or its packages: executors have a URL and a key, and reach the
broker over HTTP.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read"]
# Where `courier serve` keeps its data when nothing else is said.
LAKE = "courier-data/lake"


def read(spark: "SparkSession", table: str, *, lake: str = LAKE) -> "DataFrame":
    """A table of a lake as it is now, in a folder or at s3://bucket/path: any Spark will do.

    Raises LakeError, with a sentence, when there is no such table or it is damaged.
    """
    # Executors import this package for less than that.
    from courier.lake.catalog import Lake
    from courier.lake.tables import LakeError

    found = Lake(lake)
    chosen = [each for each in found.tables if each.name == table]
    if not chosen:
        names = ", ".join(each.name for each in found.tables)
        raise LakeError(f"there is no table '{table}': a lake has {names}")
    found.check()
    if chosen[0].open() is None:
        raise LakeError(f"there is no lake at {lake}: `courier pipeline run` makes one")
    return chosen[0].read(spark)
