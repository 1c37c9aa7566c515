"""Mode `consume`: a query as one consumer of a queue among others.

A micro-batch is a claim: messages leased under a name that the query's checkpoint tells. Whoever
asks for it again, on any machine and after any crash, gets the same messages, until the claim is
acknowledged by the batch's commit.
"""

import threading
from collections.abc import Iterator, Sequence
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

from courier.lake.client import Client, CourierError
from courier.lake.options import BadOption, Options
from courier.lake.schema import CLAIMED
from courier.lake.source import VERSION, new_claims

CLAIM_ROWS = 10_000
PARTITION_ROWS_MIN = 1_000
PARTITIONS_MAX = 16


class Claimed(InputPartition):
    """A part of a claim: `count` messages from number `first` on."""

    def __init__(self, name: str, first: int, count: int) -> None:
        super().__init__(None)
        self.name = name
        self.first = first
        self.count = count


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets count claims: {"v", "claims": name of the query's claims, "batch", "rows"}."""

    def __init__(self, asked: Options, schema: StructType) -> None:
        unknown = [name for name in schema.names if name not in CLAIMED.names]
        if unknown:
            raise BadOption(f"a message has no column {', '.join(unknown)}")
        self._asked = asked
        self._columns = list(schema.names)
        self._held: str | None = None
        self._stopped = threading.Event()
        self._only_now = False

    def initialOffset(self) -> dict[str, Any]:
        return {"v": VERSION, "claims": new_claims(), "batch": 0, "rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._asked.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """A query that ends when the queue is empty; others may publish meanwhile."""
        self._only_now = True

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Claim the next batch, or find it claimed."""
        assert start is not None, "Spark passes the offset that it has come to"
        if start.get("v") != VERSION:
            raise CourierError(f"this checkpoint was written by another version: {start}")
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else CLAIM_ROWS
        batch = start["batch"] + 1
        name = _name(start["claims"], batch)
        with Client(self._asked.place) as broker:
            rows = broker.claim(
                self._asked.queue, name, count=count, lease_ms=self._asked.lease_ms
            )
        if not rows:
            return start
        self._hold(name)
        return {"v": VERSION, "claims": start["claims"], "batch": batch, "rows": rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """After a crash the batch that was begun is planned again, from its offsets alone."""
        name, rows = _name(end["claims"], end["batch"]), int(end["rows"])
        self._hold(name)
        count = self._asked.partitions or max(1, min(PARTITIONS_MAX, rows // PARTITION_ROWS_MIN))
        edges = [rows * n // count for n in range(count + 1)]
        return [
            Claimed(name, low, high - low)
            for low, high in zip(edges, edges[1:], strict=False)
            if high > low
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Claimed)
        first, left = partition.first, partition.count
        with Client(self._asked.place) as broker:
            while left:
                batch = broker.claimed(
                    self._asked.queue,
                    partition.name,
                    first=first,
                    count=min(left, self._asked.page_rows),
                )
                yield batch.select(self._columns)
                first += batch.num_rows
                left -= batch.num_rows

    def commit(self, end: dict[str, Any]) -> None:
        self._held = None
        with Client(self._asked.place) as broker:
            broker.ack(self._asked.queue, _name(end["claims"], end["batch"]))

    def stop(self) -> None:
        self._stopped.set()

    # --- keeping the lease while a batch runs ---

    def _hold(self, name: str) -> None:
        """Extend the claim's lease now and then, until its batch is committed."""
        if self._held == name:
            return
        self._held = name
        keeper = threading.Thread(target=self._keep, args=(name,), daemon=True)
        keeper.start()

    def _keep(self, name: str) -> None:
        lease_ms = self._asked.lease_ms
        while not self._stopped.wait(lease_ms / 3 / 1000) and self._held == name:
            try:
                with Client(self._asked.place) as broker:
                    broker.extend(self._asked.queue, name, lease_ms=lease_ms)
            except CourierError:
                return  # reading or committing the claim will say what is wrong

    def __getstate__(self) -> dict[str, Any]:
        """Executors read; only the driver holds."""
        return {"_asked": self._asked, "_columns": self._columns}


def _name(claims: str, batch: int) -> str:
    return f"{claims}-{batch}"
