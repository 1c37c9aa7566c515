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

    Of a folder with lakes of several journals it is that of all, with a column `journal`. Raises
    LakeError, with a sentence, when there is no such table or it is damaged.
    """
    # Executors import this package for less than that.
    from courier.lake import journals
    from courier.lake.catalog import Lake
    from courier.lake.tables import LakeError

    names = [each.name for each in Lake(lake).tables]
    if table not in names:
        raise LakeError(f"there is no table '{table}': a lake has {', '.join(names)}")
    return journals.read(spark, journals.opened(lake), table)
