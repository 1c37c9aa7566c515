"""Journal -> `events`: every offset once, in order; what is missing is recorded as a gap."""

import json
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from courier.lake.tables import LakeError, Table

# A table's transactions are numbered by the last offset in it. So what it has does not depend on
# who wrote it, or on a checkpoint.
APP = "courier"
# The row of `events` that stands for offsets which the journal no longer had: it has the last of
# them. The table's property names them all, so that they are found without reading rows.
GAP = "gap"
GAPS = "courier.gaps"


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


def gaps(events: Table) -> list[Span]:
    """Offsets that were never in `events`, because the journal had lost them."""
    told = json.loads(events.properties().get(GAPS, "[]"))
    return [Span(after, upto) for after, upto in told if upto <= last(events)]


def pass_gap(events: Table, span: Span, *, pipeline: str, now: datetime) -> None:
    """Go on after offsets that are gone, and record that they are."""
    known = json.loads(events.properties().get(GAPS, "[]"))
    if [span.after, span.upto] not in known:
        # What was to be recorded before a crash was not passed yet, and may have grown.
        passed = [each for each in known if each[1] <= last(events)]
        events.set_properties({GAPS: json.dumps([*passed, [span.after, span.upto]])})
    detail = {
        "first": span.after + 1,
        "last": span.upto,
        "events": span.rows,
        "pipeline": pipeline,
    }
    row = {"offset": span.upto, "at": now, "kind": GAP, "detail": json.dumps(detail)}
    written = events.write_rows([row], date=f"{now:%Y-%m-%d}")
    told = note(batch=0, span=span, began_ms=int(now.timestamp() * 1000))
    events.commit(written, app=APP, batch=span.upto, after=span.after, note=told)


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
