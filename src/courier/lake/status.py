"""How far a lake has come, and how far behind the journal it is."""

from dataclasses import dataclass

from courier.clock import SystemClock
from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.client import Away, Client, Place, Slice
from courier.lake.tables import Table


@dataclass(frozen=True)
class Progress:
    """The last batch of a table. Counts and times are 0 when there was none."""

    table: str
    batch: int
    upto: int
    rows: int
    at_ms: int
    seconds: float
    rows_per_s: float


@dataclass(frozen=True)
class Status:
    """Lag is None when the broker does not answer."""

    tables: list[Progress]
    lag_offsets: int | None
    lag_seconds: float | None


def status(lake: Lake, place: Place) -> Status:
    tables = [_progress(table) for table in lake.tables]
    offsets, seconds = _lag(archive.last(lake.events), place)
    return Status(tables, offsets, seconds)


def _progress(table: Table) -> Progress:
    note = table.note()
    began_ms = int(note.get("courier.began_ms", 0))
    at_ms = int(note.get("timestamp", 0))
    upto = int(note.get("courier.upto", 0))
    rows = upto - int(note.get("courier.after", 0))
    seconds = max(0, at_ms - began_ms) / 1000
    return Progress(
        table=table.name,
        batch=int(note.get("courier.batch", 0)),
        upto=archive.last(table),
        rows=rows,
        at_ms=at_ms,
        seconds=seconds,
        rows_per_s=round(rows / seconds, 1) if seconds else 0.0,
    )


def _lag(upto: int, place: Place) -> tuple[int | None, float | None]:
    try:
        with Client(place) as broker:
            head = broker.head()
            after = max(upto, head.first - 1)
            if after >= head.last:
                return 0, 0.0
            part = Slice(head.epoch, after, after + 1, columns=("at",))
            page, _ = broker.page(part, rows=1)
    except Away:
        return None, None
    at_ms = int(page.column("at")[0].as_py().timestamp() * 1000)
    return head.last - upto, max(0, SystemClock().now_ms() - at_ms) / 1000
