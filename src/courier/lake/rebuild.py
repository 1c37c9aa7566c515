"""Tables made again from `events`: all of their rows, those of a queue, or those of a day.

A part is replaced in one commit. Rows of other queues or days stay as they are, byte for byte where
they are in other files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from courier.lake import archive, consumers, latest, metrics, retention
from courier.lake.archive import APP, Span
from courier.lake.catalog import LIVE, Lake
from courier.lake.derived import gaps_in
from courier.lake.files import File
from courier.lake.session import cores
from courier.lake.tables import LakeError, Table


@dataclass(frozen=True)
class RebuildPart:
    """Rows of one queue, by its name now or before; of one day, as 2026-01-31; or all."""

    queue: str = ""
    day: str = ""

    def __bool__(self) -> bool:
        return bool(self.queue or self.day)


ALL = RebuildPart()


def rebuild(
    spark: SparkSession, lake: Lake, only: str | None = None, part: RebuildPart = ALL
) -> Iterator[str]:
    """Make tables again, each in one commit; the names of those that are done."""
    upto = archive.last(lake.events)
    made = (lake.messages, lake.queue_minutes, lake.consumers_hours)
    names = [table.name for table in made]
    if only is not None and only not in names:
        raise LakeError(f"'{only}' cannot be rebuilt: {', '.join(names)} can")
    if (only or part) and any(archive.last(table) != upto for table in made):
        raise LakeError("tables are behind events: rebuild all of them, or run the pipeline")
    if first := retention.dropped(lake):
        raise LakeError(f"events before {first} were dropped: nothing can be rebuilt without them")
    maker = _Maker(spark, lake, part, upto)
    for table in made:
        if only in (None, table.name):
            replaced = maker.files(table)
            rows = maker.rows(table)
            if part.queue and replaced:
                others = table.read(spark, replaced).where(~col("queue_id").isin(maker.queues))
                rows = others.unionByName(rows.select(others.columns))
            written = table.write(rows, batch=upto, files_max=cores(spark))
            # A table that is behind catches up with this.
            app = APP if archive.last(table) < upto else ""
            table.commit(written, app=app, batch=upto, removes=replaced)
            yield table.name


class _Maker:
    """What the rows of a part are made of, and the files that they are in."""

    def __init__(self, spark: SparkSession, lake: Lake, part: RebuildPart, upto: int) -> None:
        self._spark = spark
        self._lake = lake
        self._part = part
        self._events = lake.events.read(spark).where(f"offset <= {upto}")
        self._gaps = gaps_in(lake, Span(0, upto))
        self._gap_times = archive.gap_times(lake.events)
        self.queues: list[str] = []
        if part.queue:
            named = self._events.where(col("queue") == part.queue)
            self.queues = [row[0] for row in named.select("queue_id").distinct().collect()]
            if not self.queues:
                raise LakeError(f"no event of the lake is about a queue '{part.queue}'")
            self._events = self._events.where(col("queue_id").isin(self.queues))

    def rows(self, table: Table) -> DataFrame:
        makers: dict[Table, Callable[[], DataFrame]] = {
            self._lake.messages: self._messages,
            self._lake.queue_minutes: self._queue_minutes,
            self._lake.consumers_hours: self._consumers_hours,
        }
        return makers[table]()

    def files(self, table: Table) -> list[File]:
        """Those that hold rows of the part."""
        if self._part.day:
            return table.files(partition=self._part.day)
        found = table.files()
        if not self.queues:
            return found
        return [
            file
            for file in found
            if set(pc.unique(table.look([file], ("queue_id",))["queue_id"]).to_pylist())
            & {*self.queues}
        ]

    def _messages(self) -> DataFrame:
        rows: DataFrame = latest.fold(self._nothing(), self._lives(), self._gaps)
        return rows.where(col("ended") == self._part.day) if self._part.day else rows

    def _queue_minutes(self) -> DataFrame:
        live = self._lake.messages.read(self._spark, self._lake.messages.files(partition=LIVE))
        if self.queues:
            live = live.where(col("queue_id").isin(self.queues))
        if not self._part.day:
            events = self._events
            all_of_them: DataFrame = metrics.queue_minutes(events, events, live, self._gap_times)
            return all_of_them
        # What was held is counted back from now, so all later events have a part in it.
        of_day = self._events.where(col("date") == self._part.day)
        ((first,),) = of_day.selectExpr("min(offset)").collect()
        later = self._events.where(col("offset") >= (first or 0))
        rows: DataFrame = metrics.queue_minutes(of_day, later, live, self._gap_times)
        return rows.where(col("date") == self._part.day)

    def _consumers_hours(self) -> DataFrame:
        nothing, lives = self._nothing(), self._lives()
        rows: DataFrame = consumers.consumers_hours(nothing, lives, self._gap_times)
        return rows.where(col("date") == self._part.day) if self._part.day else rows

    def _lives(self) -> DataFrame:
        """All events of the messages that something happened to."""
        if not self._part.day:
            return self._events
        touched = self._events.where((col("date") == self._part.day) & col("seq").isNotNull())
        return self._events.join(touched.select(*latest.KEY).distinct(), [*latest.KEY], "left_semi")

    def _nothing(self) -> DataFrame:
        return self._lake.messages.read(self._spark, [])
