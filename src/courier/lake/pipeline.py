"""Journal -> lake: a query that brings new events into `events`, and the other tables after it."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from courier import ids
from courier.clock import SystemClock
from courier.lake import archive, checks, tables, upkeep
from courier.lake.archive import Gap
from courier.lake.catalog import Lake
from courier.lake.client import Away, Client, CourierError, Place, Slice
from courier.lake.derived import Derived
from courier.lake.end import End
from courier.lake.latest import ENDS
from courier.lake.schema import EVENTS
from courier.lake.session import cores, is_remote
from courier.lake.storage import is_elsewhere
from courier.lake.tables import LakeError
from courier.lake.tasks import JournalPages

ROWS_MAX = 500_000
# Batches between two runs.
UPKEEP_BATCHES = 20
VACUUM_BATCHES = 720
# How long a batch waits for the broker before the query ends, and is started again.
AWAY_S_MAX = 10
# How long a running batch is waited for when the pipeline is to end.
END_S_MAX = 600.0
POLL_S = 0.2
# A query that fails so often without a batch in between has failed for good.
TRIES = 5
AUDIT_EVERY_S = 60.0
# As many events after a batch may be looked at to know what the broker held at its end.
LATER_MAX = 100_000
ASKED_S_MAX = 5


@dataclass(frozen=True)
class Done:
    """What one batch brought."""

    batch: int
    upto: int
    rows: int
    seconds: float


class Ending(Exception):
    """The pipeline is to end, so a batch is not begun."""


class LakePipeline:
    """One pipeline and the lake it writes. `name` is how the broker knows it."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        place: Place,
        *,
        name: str,
        checkpoint: str = "",
        rows_max: int = ROWS_MAX,
        accept_gap: bool = False,
        report: Callable[[Done], None] = lambda done: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._place = place
        # How the broker is asked in a batch; see `run`.
        self._asked = place
        self._name = name
        self._checkpoint = checkpoint or checks.checkpoint_of(lake, name)
        self._rows_max = rows_max
        self._accept_gap = accept_gap
        self._report = report
        self._say = say
        self._clock = SystemClock()
        self._derived = Derived(spark, lake, self._backlogs)
        self._batches = 0
        self._first = 1
        self._batch_at = 0
        # The first audit comes when there is something to audit, and at the end is the last.
        self._audit_s = time.monotonic() + AUDIT_EVERY_S
        self._failure: Exception | None = None
        self._busy = threading.Lock()
        self.end = End()

    # --- running ---

    def run(self, *, every_ms: int | None) -> None:
        """Bring all there is, or, given a time, whatever comes until `end` is set.

        Those who subscribe to events of pipelines are told that it failed, or that all is there.
        """
        if every_ms is not None:
            self._asked = replace(self._place, away_s_max=AWAY_S_MAX)
        with telling(self._place, self._name, lambda: self._batches):
            self._first = self.check()
            self._go_on(every_ms)
        if every_ms is None:
            upto = archive.last(self._lake.events)
            _tell(self._place, "run.completed", self._name, batches=self._batches, offset=upto)

    def _go_on(self, every_ms: int | None) -> None:
        begun_anew = False
        failed, failed_at = 0, self._batches
        while True:
            try:
                self._query(every_ms)
                return
            except Away as error:
                if every_ms is None:
                    raise
                self._say(f"{error}; waiting for it")
                if not self._wait():
                    return
                self._say(f"{self._place.url} is there again")
            except (CourierError, Gap, checks.Unexplained) as error:
                # If the lake can be gone on from, it may be the checkpoint that cannot; and that
                # has nothing in it which the lake does not know.
                self._first = self.check()
                failed = failed + 1 if failed_at == self._batches else 1
                failed_at = self._batches
                if not begun_anew and "://" not in self._checkpoint:
                    begun_anew = True
                    checks.empty(self._checkpoint)
                    self._say(f"{error}; going on with a new checkpoint")
                elif failed == TRIES or not isinstance(error, checks.Unexplained):
                    raise
                else:
                    self._say(f"{error}; trying again")
                    if self.end.wait(2**failed):
                        return

    def check(self) -> int:
        """The offset to go on with. Raises LakeError or CourierError when that cannot be."""
        return checks.check(
            self._lake,
            self._place,
            name=self._name,
            checkpoint=self._checkpoint,
            accept_gap=self._accept_gap,
        )

    def _query(self, every_ms: int | None) -> None:
        """Bring what comes, until that is all or the pipeline is to end."""
        self._failure = None
        try:
            if is_remote(self._spark) or is_elsewhere(self._checkpoint):
                self._take_turns(every_ms)
            elif not self._stream(every_ms):
                return
            self._settle()
        except Exception as error:
            raise checks.explained(error, self._lake.root) from error

    def _stream(self, every_ms: int | None) -> bool:
        """In batches of a query; False: the last one did not come to an end."""
        query = self._start(every_ms)
        try:
            while query.isActive and not self.end.wait(POLL_S):
                self._settle_in_time()
            if query.isActive and not self._finish(query):
                return False
            error = self._failure or query.exception()
            if error is not None and not self.end.is_set():
                raise error
            return True
        finally:
            if query.isActive:
                query.stop()

    def _take_turns(self, every_ms: int | None) -> None:
        """One batch after the other, for a Spark that would run the batches of a query elsewhere.

        Or for a lake in whose place no checkpoint can be kept: what a query has one for, the lake
        knows.
        """
        batch = int(self._lake.events.note().get("courier.batch", -1)) + 1
        while not self.end.is_set():
            with Client(self._asked) as broker:
                last = broker.head().last
            after = archive.last(self._lake.events) or self._first - 1
            while after < last and not self.end.is_set():
                with self._busy:
                    after = self._bring(batch)
                batch += 1
            if every_ms is None:
                return
            self._settle_in_time()
            self.end.wait(every_ms / 1000)

    def _settle_in_time(self) -> None:
        """Batches come with events; when there are none, the last ones have their audit."""
        if self._audit_s <= time.monotonic() and not self._busy.locked():
            self._settle()

    def _start(self, every_ms: int | None) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("courier")
            .option("url", self._asked.url)
            .option("token", self._asked.token)
            .option("awaySeconds", str(int(self._asked.away_s_max)))
            .option("startingOffset", str(archive.last(self._lake.events) or "earliest"))
            .option("maxRowsPerTrigger", str(self._rows_max))
            .load()
        )
        writer = (
            rows.writeStream.queryName(self._name)
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(self._batch)
        )
        if every_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{every_ms} milliseconds").start()

    def _finish(self, query: StreamingQuery) -> bool:
        """Let the running batch end, and no other begin; False: it does not come to an end.

        What it has not committed does not count.
        """
        if not self._busy.acquire(timeout=END_S_MAX):
            return False
        self._busy.release()
        try:
            query.stop()
        except PySparkException:
            return False
        return True

    def _wait(self) -> bool:
        """Until the broker answers; False: the pipeline is to end."""
        asked = replace(self._place, away_s_max=0)
        while not self.end.wait(POLL_S * 5):
            try:
                with Client(asked) as broker:
                    broker.head()
                return True
            except Away:
                continue
        return False

    # --- one batch ---

    def _batch(self, _: DataFrame, batch: int) -> None:
        """The query says when there is a batch; its rows are read where they are written."""
        try:
            with self._busy:
                if self.end.is_set():
                    raise Ending
                self._bring(batch)
        except Exception as error:
            self._failure = error
            raise

    def _bring(self, batch: int) -> int:
        """Bring the next events into all tables, and return how far it came."""
        began_s, began_ms = time.monotonic(), self._clock.now_ms()
        after = archive.last(self._lake.events) or self._first - 1
        with Client(self._asked) as broker:
            head = broker.head()
            # A batch of the query may end before: then the next one has fewer events.
            part = Slice(head.epoch, after, min(head.last, after + self._rows_max))
            few = _few(broker, part)
            span = archive.append(
                self._lake.events,
                JournalPages(self._spark, self._asked, part) if few is None else few,
                after=after,
                batch=batch,
                began_ms=began_ms,
                files_max=cores(self._spark),
            )
            broker.commit(self._name, span.upto)
        self._batch_at = batch
        self._derived.catch_up(batch=batch, began_ms=began_ms, audit=self._audit_due())
        self._batches += 1
        if self._batches % UPKEEP_BATCHES == 0:
            upkeep.compact(self._lake)
            upkeep.trim_logs(self._lake)
            upkeep.refresh(self._lake)
        if self._batches % VACUUM_BATCHES == 0:
            upkeep.vacuum(self._lake)
        self._report(Done(batch, span.upto, span.rows, time.monotonic() - began_s))
        return span.upto

    def _audit_due(self) -> bool:
        due = time.monotonic() >= self._audit_s
        if due:
            self._audit_s = time.monotonic() + AUDIT_EVERY_S
        return due

    def _settle(self) -> None:
        """Bring what was left behind: tables that a crash kept from it, and the audit."""
        self._audit_due()
        with self._busy:
            now_ms = self._clock.now_ms()
            self._derived.catch_up(batch=self._batch_at, began_ms=now_ms, audit=True)

    def _backlogs(self, offset: int) -> Mapping[str, int] | None:
        """What the broker held after an offset: what it holds now, without what came since.

        None if that is not known: too much has come, or the broker is away.
        """
        try:
            with Client(replace(self._place, away_s_max=ASKED_S_MAX)) as broker:
                return _held(broker, offset)
        except Away:
            return None


@contextmanager
def telling(place: Place, name: str, batches: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Those who subscribe to events of pipelines are told if this one fails."""
    try:
        yield
    except (CourierError, LakeError) as error:
        _tell(place, "run.failed", name, batches=batches(), reason=str(error))
        raise


def _tell(place: Place, event: str, name: str, **about: Any) -> None:
    # A reader that cannot be notified now sees it in the tables.
    with suppress(CourierError), Client(replace(place, away_s_max=0)) as broker:
        broker.tell(event, {"pipeline": name, **about}, id=ids.new_id())


def _held(broker: Client, offset: int) -> Mapping[str, int] | None:
    epoch = broker.head().epoch
    now, held = broker.backlogs()
    if not offset <= now <= offset + LATER_MAX:
        return None
    after = offset
    while after < now:
        kinds = ("published", *ENDS)
        part = Slice(epoch, after, now, columns=("queue_id", "kind"), kinds=kinds)
        page, after = broker.page(part, rows=now - after)
        for queue, kind in zip(page["queue_id"].to_pylist(), page["kind"].to_pylist(), strict=True):
            held[queue] = held.get(queue, 0) + (-1 if kind == "published" else 1)
    return {queue: count for queue, count in held.items() if count}


def _few(broker: Client, part: Slice) -> pa.Table | None:
    """The events, if they are few: read before Spark has planned to."""
    if part.upto - part.after > tables.FEW_ROWS:
        return None
    pages: list[pa.RecordBatch] = []
    after = part.after
    while after < part.upto:
        page, after = broker.page(replace(part, after=after), rows=part.upto - after)
        pages.append(page)
        if sum(each.nbytes for each in pages) > tables.FEW_BYTES:
            return None
    return pa.Table.from_batches(pages, EVENTS.arrow())


def once(spark: SparkSession, lake: Lake, place: Place, *, name: str = "lake") -> None:
    """Bring everything into the lake that is in the journal now."""
    LakePipeline(spark, lake, place, name=name).run(every_ms=None)
