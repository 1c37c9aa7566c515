"""Where Spark looks for `format("courier_lake")`: the pipeline's way to files."""

from courier.lake.tasks import LakeFiles as DefaultSource

__all__ = ["DefaultSource"]
