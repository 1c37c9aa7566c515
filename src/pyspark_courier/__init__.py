"""Where Spark looks for `format("courier")`."""

from courier.lake.source import CourierDataSource as DefaultSource

__all__ = ["DefaultSource"]
