"""Rows published in bulk under a key: each once, however often they are sent; without Spark."""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from courier.lake.client import Client, RowsDiffer
from courier.lake.options import Options

REQUEST_BYTES = 4 << 20
REQUEST_ROWS = 10_000
# With a rate, a request carries what may be sent in this time: more would come in bursts.
PACE_S = 0.25
_HEADERS = pa.map_(pa.string(), pa.string())


def publish(
    asked: Options,
    run: str,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int,
    report: Callable[[int], None] = lambda rows: None,
) -> int:
    """Publish rows under a key, and count them: by their numbers the broker knows them again.

    `report` is told how many are. Raises RowsDiffer when other rows were published under the key
    before, and publishes no more.
    """
    key = f"{run}/{partition}"
    rows, digest = 0, ""
    pace = Pace(asked.rate)
    parts = (
        part for batch in batches for part in _cut(_typed(batch, asked.content_type), pace.rows_max)
    )
    with Client(asked.place) as broker:
        for part, last in _lasting(parts):
            told = broker.publish(
                asked.queue,
                part,
                once=key,
                first=rows,
                digest=digest,
                last=last,
                listener=asked.listener,
            )
            rows += part.num_rows
            digest = told.digest
            report(rows)
            pace.wait(told.new)
    return rows


def none_beside(asked: Options, run: str, *, rows: int) -> None:
    """Raises RowsDiffer when an earlier run has left rows in partitions that nobody has now.

    The broker may know of fewer than there are: of a write that takes longer than it knows a key.
    """
    with Client(asked.place) as broker:
        known = broker.published_below(asked.queue, run)
    if known > rows:
        raise RowsDiffer(
            f"{known} rows are published to queue '{asked.queue}' under {run}, and this run has "
            f"{rows}: an earlier one had others or other partitions, so some may be published twice"
        )


def _lasting(parts: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Each part, and whether it is the last."""
    held = next(parts, None)
    while held is not None:
        following = next(parts, None)
        yield held, following is None
        held = following


class Pace:
    """No more than `rate` rows per second, of those that are really published."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self.rows_max = REQUEST_ROWS if rate is None else max(1, int(rate * PACE_S))
        self._due_s = time.monotonic()

    def wait(self, rows: int) -> None:
        if self._rate is None or not rows:
            return
        # Time that was lost elsewhere is not made up for: that would be a burst.
        self._due_s = max(self._due_s, time.monotonic() - PACE_S) + rows / self._rate
        time.sleep(max(0.0, self._due_s - time.monotonic()))


def _typed(batch: pa.RecordBatch, content_type: str) -> pa.RecordBatch:
    """As the broker takes it: maps as they come also say whether their values may be null."""
    for place, field in enumerate(batch.schema):
        if pa.types.is_map(field.type) and field.type != _HEADERS:
            batch = batch.set_column(place, field.name, batch.column(place).cast(_HEADERS))
    if not content_type:
        return batch
    kinds = pa.repeat(pa.scalar(content_type), batch.num_rows)
    return batch.append_column("content_type", kinds)


def _cut(batch: pa.RecordBatch, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Parts that one request can carry."""
    if not batch.num_rows:
        return
    row_bytes = max(1, batch.nbytes // batch.num_rows)
    size = max(1, min(rows_max, REQUEST_BYTES // row_bytes))
    for first in range(0, batch.num_rows, size):
        yield batch.slice(first, size)
