"""How far a lake has come, and how far behind the journal it is."""

from contextlib import suppress
from dataclasses import dataclass

from courier.clock import SystemClock
from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.client import Away, Client, Place, Slice
from courier.lake.tables import Table

DAY_MS = 86_400_000


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
    """Lag is None when the broker does not answer, and days when it cannot tell yet.

    The journal holds the events of `journal_days`, and is full in `journal_days_left`; those that
    are older than `retention_days` may go before. `missing` events were lost for the lake.
    """

    tables: list[Progress]
    lag_offsets: int | None
    lag_seconds: float | None
    journal_days: float | None
    journal_days_left: float | None
    retention_days: float | None
    missing: int


def status(lake: Lake, place: Place) -> Status:
    tables = [_progress(table) for table in lake.tables]
    upto = archive.last(lake.events)
    offsets = seconds = room = None
    with suppress(Away), Client(place) as broker:
        offsets, seconds = _lag(upto, broker)
        room = broker.room()

    def days(name: str) -> float | None:
        return None if room is None else round(room[name] / DAY_MS, 4)

    return Status(
        tables,
        lag_offsets=offsets,
        lag_seconds=seconds,
        journal_days=days("holds_ms"),
        journal_days_left=days("left_ms"),
        retention_days=days("retention_ms"),
        missing=sum(gap.rows for gap in archive.gaps(lake.events)),
    )


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


def _lag(upto: int, broker: Client) -> tuple[int, float]:
    head = broker.head()
    after = max(upto, head.first - 1)
    if after >= head.last:
        return 0, 0.0
    part = Slice(head.epoch, after, after + 1, columns=("at",))
    page, _ = broker.page(part, rows=1)
    at_ms = int(page.column("at")[0].as_py().timestamp() * 1000)
    return head.last - upto, max(0, SystemClock().now_ms() - at_ms) / 1000
