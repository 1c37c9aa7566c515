"""Where Spark looks for `format("courier")`. Can be imported with any PySpark, also one too old."""

from courier.lake.versions import source

DefaultSource = source()
__all__ = ["DefaultSource"]
