"""Events -> the other tables: each is brought from where it is to where `events` is.

What a table is made of is in the lake already, so it does not matter when it was last written, by
which run, or what became of that run.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from courier.clock import SystemClock
from courier.lake import archive, audit, consumers, erasure, latest, metrics, sql
from courier.lake.archive import APP, GapTime, Span, sql_time
from courier.lake.catalog import LIVE, Lake
from courier.lake.files import File
from courier.lake.session import cores
from courier.lake.tables import Moved, Table, is_few

if TYPE_CHECKING:
    from courier.lake.sql import Rows

# As many events are worked on at a time.
ROWS_MAX = 500_000
# Fewer rows than this are not worth a second file.
FILE_ROWS_MIN = 100_000
TRIES = 5
COMPILED_ROWS_MIN = 50_000
FIFO = "courier.fifo"
# The longest time that a row of a table is about.
UNIT_MAX = timedelta(hours=1)
# How many messages each queue held at the broker after an offset; None if that is not known.
Backlogs = Callable[[int], Mapping[str, int] | None]
# How the rows of some files of a table are read.
Read = Callable[[Table, list[File]], Any]


class Derived:
    """The tables of one lake that are made of its events."""

    def __init__(self, spark: SparkSession, lake: Lake, backlogs: Backlogs) -> None:
        self._spark = spark
        self._lake = lake
        self._backlogs = backlogs
        self._clock = SystemClock()
        self._cores = cores(spark)
        # Live files of `messages` as they were after some offsets: before the last batch, and at
        # the last audit. Of the former, those that the batch is about.
        self._live: dict[int, list[File]] = {}
        self._begin = 0
        self._behind = 0
        self._known: dict[Span, list[File]] = {}
        self._gaps: tuple[list[Span], list[GapTime]] = [], []
        # Rows by the table and the files they are of: several tables are made of the same.
        self._read: dict[tuple[object, ...], Rows] = {}

    def catch_up(self, *, batch: int, began_ms: int, audit: bool) -> None:
        """Bring every table to the last offset of `events`; `audit` only when asked to.

        It costs as much as the others together, and says as much about many batches as about one.
        """
        self._begin = self._begin or archive.begin(self._lake.events)
        self._behind = archive.last(self._lake.events) - archive.last(self._lake.messages)
        for upto in self._stops():
            self._read.clear()
            for table, make in (
                (self._lake.messages, self._messages),
                (self._lake.queue_minutes, self._queue_minutes),
                (self._lake.consumers_hours, self._consumers_hours),
            ):
                self._bring(table, make, upto, batch=batch, began_ms=began_ms)
            if upto - archive.last(self._lake.audit) >= ROWS_MAX:
                self._bring(self._lake.audit, self._audit, upto, batch=batch, began_ms=began_ms)
        if audit:
            upto = archive.last(self._lake.messages)
            self._bring(self._lake.audit, self._audit, upto, batch=batch, began_ms=began_ms)

    def _bring(
        self,
        table: Table,
        make: Callable[[Span, dict[str, str]], None],
        upto: int,
        *,
        batch: int,
        began_ms: int,
    ) -> None:
        """Somebody may compact what is about to be replaced; then it is made of what is there."""
        span = Span(max(archive.last(table), self._begin - 1), upto)
        note = archive.note(batch=batch, span=span, began_ms=began_ms)
        for left in reversed(range(TRIES)):
            try:
                if span.rows > 0:
                    make(span, note)
                return
            except Moved:
                if not left:
                    raise

    def _set_up(self) -> None:
        """Code made for a query is faster on many rows, and takes longer to make than few take."""
        many = self._behind >= COMPILED_ROWS_MIN
        self._spark.conf.set("spark.sql.codegen.wholeStage", "true" if many else "false")
        mode = "FALLBACK" if many else "NO_CODEGEN"
        self._spark.conf.set("spark.sql.codegen.factoryMode", mode)

    def _stops(self) -> Iterator[int]:
        """Offsets that the tables are brought to, one after the other.

        Others are made of `messages` as it was after an offset, so none is left behind it.
        """
        upto = archive.last(self._lake.events)
        tables = (self._lake.messages, self._lake.queue_minutes, self._lake.consumers_hours)
        behind = min(archive.last(table) for table in tables)
        at = archive.last(self._lake.messages)
        if behind < at:
            yield at
        at = max(at, self._begin - 1)
        gaps = archive.gaps(self._lake.events)
        while at < upto:
            at = min(upto, at + ROWS_MAX)
            # There is nothing to work on in a gap, however many offsets it has.
            at = next((gap.upto for gap in gaps if gap.after < at < gap.upto), at)
            yield at

    # --- tables ---

    def _messages(self, span: Span, note: dict[str, str]) -> None:
        table = self._lake.messages
        live = table.files(partition=LIVE)
        audited = archive.last(self._lake.audit)
        self._live = {at: files for at, files in self._live.items() if at == audited}
        self._live[span.after] = live
        gaps = gaps_in(self._lake, span)
        # Any live message may have ended in a gap.
        known = live if gaps else self._concerned(span, live)
        self._known = {span: known}
        read = self._reading(self._files(span), known)
        rows = latest.fold(read(table, known), self._events(read, span), gaps)
        self._put(table, rows, span, note, replaced=known)

    def _queue_minutes(self, span: Span, note: dict[str, str]) -> None:
        table = self._lake.queue_minutes
        low, high = _times(self._files(span))
        low = low.replace(second=0, microsecond=0)
        high = high.replace(second=59, microsecond=999_999)
        gaps, since = self._gap_times(span, low, high)
        around = self._lake.events.files(meets=("at", low, high))
        live = self._lake.messages.files(partition=LIVE)
        known = table.files(meets=("minute", since.replace(minute=0), high.replace(minute=59)))
        read = self._reading(self._files(span), around, live, known)
        times = f"at between {sql_time(low)} and {sql_time(high)}"
        events = sql.where(read(self._lake.events, around), f"{times} and offset <= {span.upto}")
        of_batch = self._events(read, span)
        new = metrics.queue_minutes(events, of_batch, read(self._lake.messages, live), gaps)
        rows = metrics.corrected(read(table, known), new, gaps) if known else new
        self._put(table, rows, span, note, replaced=known)

    def _consumers_hours(self, span: Span, note: dict[str, str]) -> None:
        table = self._lake.consumers_hours
        if span not in self._known:
            self._known = {span: self._concerned(span, self._live_after(span.after))}
        low, high = _times(self._files(span))
        gaps, since = self._gap_times(span, _day(low), high)
        known = table.files(meets=("hour", _day(since), high))
        read = self._reading(self._files(span), self._known[span], known)
        leased = read(self._lake.messages, self._known[span])
        new = consumers.consumers_hours(leased, self._events(read, span), gaps)
        rows = consumers.added(read(table, known), new, gaps) if known else new
        self._put(table, rows, span, note, replaced=known)

    def _audit(self, span: Span, note: dict[str, str]) -> None:
        table, messages = self._lake.audit, self._lake.messages
        days = sorted({file.partition["date"] or "" for file in table.files()})
        last = days[-1] if days else ""
        previous = table.files(partition=last) if last else []
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        # Days do not end again when the clock is set back.
        at = max(now, datetime.fromisoformat(f"{last}T00:00:00Z")) if last else now
        run = audit.AuditRun(int(note["courier.batch"]), span.after, span.upto, at)
        fifo = set(json.loads(table.note().get(FIFO, "[]")))
        fifo |= audit.fifo_queues(self._look(span, audit.FIFO_COLUMNS))
        before, live = self._live_after(span.after), messages.files(partition=LIVE)
        broker = self._backlogs(span.upto)
        read = self._reading(self._files(span), before, live, previous)
        rows = audit.findings(
            read(messages, before) if before else None,
            self._events(read, span),
            read(messages, live),
            read(table, previous),
            run=run,
            broker=broker,
            fifo=fifo,
            erased=erasure.erased(self._lake),
            # The first run of a day tells of every queue, so that no other day is looked at.
            whole=f"{at:%Y-%m-%d}" != last,
        )
        note = {**note, FIFO: json.dumps(sorted(fifo))}
        self._put(table, rows, span, note, replaced=[])
        self._live = {span.upto: messages.files(partition=LIVE)}

    # --- what they are made of, and how they are kept ---

    def _files(self, span: Span) -> list[File]:
        return self._lake.events.files(meets=("offset", span.after + 1, span.upto))

    def _events(self, read: Read, span: Span) -> Any:
        rows = read(self._lake.events, self._files(span))
        return sql.where(rows, f"offset > {span.after} and offset <= {span.upto}")

    def _gap_times(
        self, span: Span, low: datetime, high: datetime
    ) -> tuple[list[GapTime], datetime]:
        """Gaps whose time meets that of the batch, and from when on rows have to say so.

        Rows of before a gap are marked with the batch that is about it, or that tells its end.
        """
        found = []
        for each in self._lost():
            is_new = span.after <= each.gap.upto <= span.upto
            if is_new or (each.since <= high and each.until >= low - UNIT_MAX):
                found.append(each)
                low = min(low, each.since) if is_new else low
        return found, low

    def _lost(self) -> list[GapTime]:
        """When events were lost; looked up once for each gap."""
        gaps = archive.gaps(self._lake.events)
        if not gaps or gaps == self._gaps[0]:
            return self._gaps[1] if gaps else []
        found = archive.gap_times(self._lake.events)
        # What came after the last gap may not be there yet.
        if archive.last(self._lake.events) > gaps[-1].upto:
            self._gaps = gaps, found
        return found

    def _look(self, span: Span, columns: Sequence[str]) -> pa.Table:
        """Columns of the events that decide what Spark is asked for, read here."""
        events = self._lake.events.look(self._files(span), ("offset", *columns))
        offset = pc.field("offset")
        return events.filter((offset > span.after) & (offset <= span.upto))

    def _concerned(self, span: Span, files: list[File]) -> list[File]:
        """Those of some live files that hold messages which the events are about."""
        if not files:
            return []
        ranges = latest.concerned(self._look(span, latest.CONCERNED_COLUMNS))
        return [
            file
            for file in files
            if any(file.meets("published_at", low, high) for low, high in ranges)
        ]

    def _reading(self, *files: list[File]) -> Read:
        """By this process if all that a table is made of is few, else by Spark."""
        return self._by_us if is_few([each for some in files for each in some]) else self._by_spark

    def _by_us(self, table: Table, files: list[File]) -> Any:
        key = ("us", table.name, *(file.path for file in files))
        if key not in self._read:
            self._read[key] = table.here(files)
        return self._read[key]

    def _by_spark(self, table: Table, files: list[File]) -> Any:
        key = ("spark", table.name, *(file.path for file in files))
        if key not in self._read:
            self._set_up()
            self._read[key] = table.read(self._spark, files)
        return self._read[key]

    def _live_after(self, offset: int) -> list[File]:
        """Files of the messages that were live after an offset."""
        if offset < self._begin:
            return []
        if offset not in self._live:
            self._live[offset] = self._lake.messages.files_at(APP, offset, partition=LIVE)
        return self._live[offset]

    def _put(
        self,
        table: Table,
        rows: "Rows",
        span: Span,
        note: dict[str, str],
        *,
        replaced: list[File],
    ) -> None:
        files_max = self._cores if span.rows >= FILE_ROWS_MIN else 1
        made_of = [*self._files(span), *replaced]
        # A row of any table is made of at least one that is in these.
        rows_max = sum(file.rows for file in made_of) if is_few(made_of) else None
        written = table.write(rows, batch=span.upto, files_max=files_max, rows_max=rows_max)
        table.commit(
            written, app=APP, batch=span.upto, after=span.after, removes=replaced, note=note
        )


def gaps_in(lake: Lake, span: Span) -> list[int]:
    """The last offsets of the gaps in a span."""
    ends = (gap.upto for gap in archive.gaps(lake.events))
    return [end for end in ends if span.after < end <= span.upto]


def _times(files: list[File]) -> tuple[datetime, datetime]:
    """When the events of some files happened."""
    return (
        min(file.low["at"] for file in files).astimezone(UTC),
        max(file.high["at"] for file in files).astimezone(UTC),
    )


def _day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
