"""Mode `consume`: a query as one consumer of a queue among others.

A micro-batch is a claim: messages leased under a name that the query's checkpoint tells. Asking
for it again, on any machine and after any crash, gives the same messages, until the claim is
acknowledged after the batch's commit.
"""

import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from courier import ids
from courier.clock import SystemClock
from courier.lake.client import ClaimEnded, Client, CourierError, Missing
from courier.lake.options import Options, at_ms
from courier.lake.schema import CLAIMED
from courier.lake.source import VERSION, Columns

CLAIM_ROWS = 10_000
CLAIM_ROWS_MAX = 20_000
PARTITION_ROWS_MIN = 1_000
PARTITIONS_MAX = 16


class Claimed(InputPartition):
    """A part of a claim: `count` messages from number `first` on."""

    def __init__(self, claim: str, first: int, count: int) -> None:
        super().__init__(None)
        self.claim = claim
        self.first = first
        self.count = count


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are claims: {"v", "query": a name, "batch": how many so far, "claim", "rows"}."""

    def __init__(self, asked: Options, schema: StructType) -> None:
        self._asked = asked
        self._columns = Columns.of(schema, CLAIMED)
        self._acked = ""
        self._before: dict[str, str] = {}
        self._held = ""
        self._begun = False
        self._stopped = threading.Event()
        self._until_ms: int | None = None
        self._ends = False

    def initialOffset(self) -> dict[str, Any]:
        return {"v": VERSION, "query": ids.new_id(), "batch": 0, "claim": "", "rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._asked.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends with the batch in which messages come that were not there yet."""
        self._until_ms = SystemClock().now_ms()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Claim the next batch, or find it claimed.

        Spark asks only when the batch that ended with `start` is committed, and may have died
        before it could say so.
        """
        assert start is not None, "Spark passes the offset that it has come to"
        if start.get("v") != VERSION or "claim" not in start:
            raise CourierError(f"this checkpoint is not one of mode consume: {start}")
        self._ack(start["claim"])
        if self._ends:
            return start
        asked = limit.max_rows if isinstance(limit, ReadMaxRows) else CLAIM_ROWS
        count = min(asked, CLAIM_ROWS_MAX)
        claim, rows = self._claim(f"{start['query']}-{start['batch'] + 1}", count)
        if not rows:
            self._ends = self._until_ms is not None
            return start
        self._hold(claim, known=bool(start["claim"]))
        self._ends = self._until_ms is not None and self._newest_ms(claim, rows) > self._until_ms
        return {**start, "batch": start["batch"] + 1, "claim": claim, "rows": rows}

    def _claim(self, name: str, count: int) -> tuple[str, int]:
        queue, lease_ms = self._asked.queue, self._asked.lease_ms
        with Client(self._asked.place) as broker:
            try:
                return name, broker.claim(queue, name, count=count, lease_ms=lease_ms)
            except ClaimEnded:
                # Claimed by a run that died before Spark wrote the claim down: nobody has read it.
                name = f"{name}-{ids.new_id()[:8]}"
                return name, broker.claim(queue, name, count=count, lease_ms=lease_ms)

    def _newest_ms(self, claim: str, rows: int) -> int:
        with Client(self._asked.place) as broker:
            last = broker.claimed(self._asked.queue, claim, first=rows - 1, count=1)
        return at_ms(last.column("published_at")[0].as_py())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """After a crash the batch that was begun is planned again, from its offsets alone."""
        if start["claim"] == end["claim"]:
            return []
        rows = int(end["rows"])
        self._before = {end["claim"]: start["claim"]}
        self._hold(end["claim"], known=True)
        count = self._asked.partitions or max(1, min(PARTITIONS_MAX, rows // PARTITION_ROWS_MIN))
        edges = [rows * n // count for n in range(count + 1)]
        return [
            Claimed(end["claim"], low, high - low) for low, high in pairwise(edges) if high > low
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Claimed)
        first, left = partition.first, partition.count
        with Client(self._asked.place) as broker:
            while left:
                batch = broker.claimed(
                    self._asked.queue,
                    partition.claim,
                    first=first,
                    count=min(left, self._asked.page_rows),
                )
                if not batch.num_rows:
                    raise CourierError(f"claim '{partition.claim}' ends at message {first}")
                yield self._columns.fit(batch.select(list(self._columns.names)))
                first += batch.num_rows
                left -= batch.num_rows

    def commit(self, end: dict[str, Any]) -> None:
        self._ack(end["claim"])

    def _ack(self, claim: str) -> None:
        if not claim or claim == self._acked:
            return
        self._held = ""
        with Client(self._asked.place) as broker:
            try:
                broker.ack(self._asked.queue, claim, after=self._before.get(claim, ""))
            except ClaimEnded:
                raise ClaimEnded(
                    f"a batch of this query is done, and its messages on queue "
                    f"'{self._asked.queue}' went to other consumers before they could be "
                    f"acknowledged (claim '{claim}', lease {self._asked.lease_ms} ms): they will "
                    "be processed twice; start it with a new checkpoint and a longer 'leaseMs'"
                ) from None
            except Missing as error:
                # What was acknowledged is known until the next is; so this never was.
                raise ClaimEnded(
                    f"a batch of this query is done, and the broker no longer knows whether its "
                    f"messages on queue '{self._asked.queue}' were acknowledged ({error}): they "
                    "may have gone to other consumers; start it with a new checkpoint"
                ) from None
        self._acked = claim

    def stop(self) -> None:
        self._stopped.set()

    # --- keeping the lease while a batch runs ---

    def _hold(self, claim: str, *, known: bool) -> None:
        """Extend the claim's lease now and then, until its batch is committed.

        The first one may be `known` from a run that died, and little of its lease be left.
        """
        if self._held == claim:
            return
        at_once = known and not self._begun
        self._held, self._begun = claim, True
        threading.Thread(target=self._keep, args=(claim, at_once), daemon=True).start()

    def _keep(self, claim: str, at_once: bool) -> None:
        lease_ms = self._asked.lease_ms
        wait_s = 0.0 if at_once else lease_ms / 3 / 1000
        while not self._stopped.wait(wait_s) and self._held == claim:
            wait_s = lease_ms / 3 / 1000
            try:
                with Client(self._asked.place) as broker:
                    broker.extend(self._asked.queue, claim, lease_ms=lease_ms)
            except (ClaimEnded, Missing):
                return  # reading or acknowledging it will say so
            except CourierError:
                continue  # a lease may outlast a broker that is away

    def __getstate__(self) -> dict[str, Any]:
        """Executors read; only the driver holds."""
        return {"_asked": self._asked, "_columns": self._columns}
