"""Two pipelines on one lake, where no lock keeps them apart: no event comes twice."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.derived import Derived
from courier.lake.files import Written
from courier.lake.tables import Outrun, Table
from tests.lake.brokers import journal
from tests.lake.lakes import SmallLake


class Slow(Table):
    """The table of a pipeline that another one outruns between its write and its commit."""

    other: Table
    sooner: DataFrame

    def write(self, *args: Any, **kwargs: Any) -> Written:
        written = super().write(*args, **kwargs)
        _append(self.other, self.sooner)
        return written


def _append(events: Table, rows: DataFrame) -> None:
    after = archive.last(events)
    new = rows.where(f"offset > {after}")
    archive.append(events, new, after=after, batch=0, began_ms=0, files_max=1)


@pytest.mark.parametrize("known", [0, 5])
def test_what_another_pipeline_has_brought_meanwhile_is_not_added_again(
    spark: SparkSession, small: SmallLake, tmp_path: Path, known: int
) -> None:
    rows = journal(spark, small.server, endingOffset=20)
    events: Any = Lake(str(tmp_path)).events
    if known:
        _append(events, rows.where(f"offset <= {known}"))
    events.__class__ = Slow
    events.other = Lake(str(tmp_path)).events
    events.sooner = rows.where("offset <= 10")
    with pytest.raises(Outrun, match=f"from {known} to 10 by another pipeline"):
        _append(events, rows)
    events.__class__ = Table
    _append(events, rows)
    found = sorted(row["offset"] for row in events.read(spark).collect())
    assert found == [*range(1, 21)]


def test_nor_is_what_is_made_of_the_events(spark: SparkSession, tmp_path: Path) -> None:
    lake, other = Lake(str(tmp_path)), Lake(str(tmp_path))
    made = Derived(spark, lake, lambda offset: None)
    for table, same in zip(lake.derived, other.derived, strict=True):
        same.create()
        same.commit(None, app=archive.APP, batch=10)
        with pytest.raises(Outrun, match=f"{table.name} was moved from 0 to 10 by another"):
            made._put(table, table.read(spark, []), archive.Span(0, 20), {}, replaced=[])
        assert archive.last(table) == 10
