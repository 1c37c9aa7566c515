"""Whole days dropped from the lake for good: rows, not only their content.

Every table loses the days before a chosen one: events that happened then, messages that ended then,
minutes, hours and audits. What is live stays, and so do totals of all time: they are in every day
of the audit, whose last one is never dropped. A record says what was dropped, and by whom.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from courier import ids
from courier.lake import archive, erasure, lock, upkeep
from courier.lake.catalog import Lake
from courier.lake.erasure import ErasureRecord
from courier.lake.files import File
from courier.lake.tables import LakeError, Moved, Table

# Of `events`: the first day that is whole.
DROPPED = "courier.dropped"


@dataclass(frozen=True)
class Days:
    """What a table has of the days to drop."""

    table: str
    rows: int
    bytes: int
    files: int


def day_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


def chosen(lake: Lake, before: str) -> list[Days]:
    """What would be dropped: of all days before one such as 2026-01-31."""
    found = {table.name: _files(lake, table, before) for table in lake.tables}
    return [
        Days(name, sum(f.rows for f in files), sum(f.size for f in files), len(files))
        for name, files in found.items()
    ]


def drop(lake: Lake, before: str, *, actor: str, now_ms: int) -> list[Days]:
    """Drop them; no pipeline may run meanwhile. What a crash leaves, a second run drops."""
    with lock.hold(lake.root):
        erasure.check(lake)
        found = chosen(lake, before)
        sizes = {each.table: each for each in found}
        record = ErasureRecord(
            id=ids.new_id()[-12:],
            at=erasure.spelled(now_ms),
            actor=actor,
            asked={"dropped_before": before},
            messages=sizes[lake.messages.name].rows,
            bytes=sum(each.bytes for each in found),
            queues={},
            offset=archive.last(lake.events),
        )
        erasure.keep(lake, record)
        if sizes[lake.events.name].files:
            # First: from now on nothing is made of the events that are left.
            begin = str(archive.begin(lake.events))
            told = {DROPPED: max(before, dropped(lake)), archive.BEGIN: begin}
            lake.events.set_properties(told)
        for table in lake.tables:
            if files := _files(lake, table, before):
                try:
                    table.commit(None, removes=files)
                except Moved as error:
                    raise LakeError("the lake is being compacted: try again later") from error
        erasure.keep(lake, replace(record, done=True))
        upkeep.vacuum(lake, 0, alone=True)
    return found


def dropped(lake: Lake) -> str:
    """The first day that was not dropped; empty if none was."""
    return lake.events.properties().get(DROPPED, "")


def _files(lake: Lake, table: Table, before: str) -> list[File]:
    (by,) = table.partition_by
    files = table.files()
    last = max((file.partition[by] or "" for file in files), default="")
    # The partition of live messages comes after every day.
    meant = [file for file in files if "" < (file.partition[by] or "") < before]
    return [f for f in meant if table is not lake.audit or f.partition[by] != last]
