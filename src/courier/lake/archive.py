"""Journal -> `events`: every offset once, in order; what is missing is recorded as a gap."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from courier.lake.tables import LakeError, Table

if TYPE_CHECKING:
    from courier.lake.sql import Rows
    from courier.lake.tasks import JournalPages

# A table's transactions are numbered by the last offset in it. So what it has does not depend on
# who wrote it, or on a checkpoint.
APP = "courier"
# The row of `events` that stands for offsets which the journal no longer had: it has the last of
# them. The table's property names them all, so that they are found without reading rows.
GAP = "gap"
GAPS = "courier.gaps"
# The first offset that the table had, once rows were dropped.
BEGIN = "courier.begin"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


@dataclass(frozen=True)
class GapTime:
    """When the events of a gap happened: between the last before it and the first after it."""

    gap: Span
    since: datetime
    until: datetime


def last(table: Table) -> int:
    """The last offset that a table knows of."""
    return table.committed(APP) or 0


def begin(events: Table) -> int:
    """The first offset ever in `events`: 1, unless the journal was trimmed before; 0 for none."""
    return int(events.properties().get(BEGIN) or events.least("offset") or 0)


def gaps(events: Table) -> list[Span]:
    """Offsets that were never in `events`, because the journal had lost them."""
    told = json.loads(events.properties().get(GAPS, "[]"))
    return [Span(after, upto) for after, upto in told if upto <= last(events)]


def gap_times(events: Table) -> list[GapTime]:
    """When events were lost; of gaps that adjoin each other as of one.

    While nothing is known of what came after a gap, it is as if it had no duration.
    """
    whole: list[Span] = []
    for gap in gaps(events):
        adjoins = bool(whole) and whole[-1].upto == gap.after
        whole.append(Span(whole.pop().after if adjoins else gap.after, gap.upto))
    found = []
    for gap in whole:
        since, until = _at(events, gap.after), _at(events, gap.upto + 1)
        # Both are gone once their days were dropped, and the rows of those with them.
        if known := [at for at in (since, until) if at is not None]:
            found.append(GapTime(gap, known[0], max(known)))
    return found


def _at(events: Table, offset: int) -> datetime | None:
    import pyarrow.compute as pc

    rows = events.look(events.files(meets=("offset", offset, offset)), ("offset", "at"))
    times = rows.filter(pc.field("offset") == offset)["at"].to_pylist()
    return times[0] if times else None


def gap_sql(column: str, unit: timedelta, times: Sequence[GapTime]) -> str:
    """SQL for the last offset of a gap whose time a minute or an hour shares; null if it has none.

    `column` is when it began.
    """
    cases = [
        f"when {column} between {sql_time(each.since, unit)} and {sql_time(each.until, unit)} "
        f"then {each.gap.upto}L"
        for each in sorted(times, key=lambda each: -each.gap.upto)
    ]
    return f"case {' '.join(cases)} end" if cases else "null::bigint"


def sql_time(at: datetime, unit: timedelta = timedelta(microseconds=1)) -> str:
    """SQL for a time, or for the beginning of the minute or the hour that it is in."""
    since = (at - _EPOCH) // unit * unit
    return f"timestamp_micros({since // timedelta(microseconds=1)})"


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
    rows: "Rows | JournalPages",
    *,
    after: int,
    batch: int,
    began_ms: int,
    files_max: int,
) -> Span:
    """Add events that follow the offset `after`, the table's last; which offsets they were."""
    written = events.write(rows, batch=batch, files_max=files_max)
    if not written.rows:
        return Span(after, after)
    low, upto = written.range("offset")
    if low != after + 1:
        raise Gap(f"the lake needs event {after + 1} next, and the events read begin with {low}")
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
