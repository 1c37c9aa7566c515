"""Journal -> `events`: every offset once, in order, none missing."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from courier.lake.tables import LakeError, Table

# A table's transactions are numbered by the last offset in it. So what it has does not depend on
# who wrote it, or on a checkpoint.
APP = "courier"


class Gap(LakeError):
    """Events are missing between what the lake has and what came."""


@dataclass(frozen=True)
class Span:
    """Offsets after `after` up to `upto`."""

    after: int
    upto: int

    @property
    def rows(self) -> int:
        return self.upto - self.after


def last(table: Table) -> int:
    """The last offset that a table knows of."""
    return table.committed(APP) or 0


def begin(events: Table) -> int:
    """The first offset in `events`: 1, unless the journal had been trimmed before; 0 for none."""
    return min((int(file.low["offset"]) for file in events.files()), default=0)


def append(
    events: Table,
    rows: DataFrame,
    *,
    first: int,
    batch: int,
    began_ms: int,
    files_max: int,
    upto_max: int | None = None,
) -> Span:
    """Add those of the rows that the table does not have yet; which offsets they were.

    An empty table begins with the offset `first`. `upto_max` bounds the rows' offsets, if known.
    """
    after = last(events)
    new = rows.where(col("offset") > after)
    rows_max = None if upto_max is None else upto_max - (after or first - 1)
    written = events.write(new, batch=batch, files_max=files_max, rows_max=rows_max)
    if not written.rows:
        return Span(after, after)
    low, upto = written.range("offset")
    expected = after + 1 if after else first
    if low != expected:
        raise Gap(
            f"the next event for the lake is {expected}, and what came begins with {low}: "
            "choose another checkpoint with --checkpoint"
        )
    span = Span(low - 1, upto)
    if written.rows != span.rows:
        raise LakeError(
            f"of the offsets {low} to {upto} only {written.rows} can be read: the pipeline "
            "needs the operator's token"
        )
    told = note(batch=batch, span=span, began_ms=began_ms)
    events.commit(written, app=APP, batch=upto, after=after, note=told)
    return span


def note(*, batch: int, span: Span, began_ms: int) -> dict[str, str]:
    """What a commit says about itself."""
    return {
        "courier.batch": str(batch),
        "courier.began_ms": str(began_ms),
        "courier.after": str(span.after),
        "courier.upto": str(span.upto),
    }
