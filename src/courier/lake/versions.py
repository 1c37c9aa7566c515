"""Which Spark the lake and the data source need. Can be imported with any."""

import re
from typing import Any

import pyspark

OLDEST = (4, 2)
NEXT = (5, 0)


def problem(version: str) -> str:
    """What is wrong with a version of PySpark, in one sentence; empty if nothing is."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and OLDEST <= (int(found[1]), int(found[2])) < NEXT:
        return ""
    return (
        f"Courier needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer, below {NEXT[0]}, and this is "
        f"{version}: install Courier with its extra, `courier-mq[spark]`"
    )


def source() -> Any:
    """The class behind `format("courier")`, or one that says why there is none."""
    if problem(pyspark.__version__):
        return WrongSpark
    from courier.lake.source import CourierDataSource

    return CourierDataSource


class WrongSpark:
    """Says which Spark is needed when it is used."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(problem(pyspark.__version__))

    @classmethod
    def name(cls) -> str:
        return "courier"
