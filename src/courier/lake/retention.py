"""Rows dropped from the lake for good, of whole days: all of them, or those of a queue, a tenant or
of messages that a condition holds for.

Every table loses the days before a chosen one: events that happened then, messages that ended then,
minutes, hours and audits. What is live stays, and so do totals of all time: they are in every day
of the audit, whose last one is never dropped. A record says what was dropped, and by whom.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from courier import ids
from courier.lake import archive, erasure, lock, query, upkeep
from courier.lake.catalog import LIVE, Lake
from courier.lake.erasure import ErasureRecord
from courier.lake.files import File
from courier.lake.tables import LakeError, Moved, Table
from courier.lake.views import quoted

# Of `events`: the first day that is whole.
DROPPED = "courier.dropped"


@dataclass(frozen=True)
class DropAsked:
    """Rows of all days before one such as 2026-01-31; of a queue, of a tenant (id), of messages."""

    before: str
    queue: str = ""
    tenant: str = ""
    where: str = ""


@dataclass(frozen=True)
class Days:
    """What a table has of the rows to drop; of a file that is not dropped whole, its share."""

    table: str
    rows: int
    bytes: int
    files: int


class Choice:
    """Which rows are meant, file by file."""

    def __init__(self, lake: Lake, asked: DropAsked) -> None:
        self._lake = lake
        self._asked = asked
        self._queues = _queues(lake, asked) if asked.queue else None
        self._messages = _messages(lake, asked, self._queues) if asked.where else None

    def found(self, table: Table) -> Iterator[tuple[File, int]]:
        """Files of the days with rows that are meant, and how many."""
        is_partial = bool(self._asked.queue or self._asked.tenant or self._asked.where)
        if self._messages is not None and "seq" not in table.schema.names:
            return  # minutes, hours and audits are of no message
        columns = [n for n in ("tenant", "queue_id", "seq") if n in table.schema.names]
        for file in _files(self._lake, table, self._asked.before):
            count = file.rows
            if is_partial:
                count = pc.sum(self.meant(table.look([file], columns))).as_py() or 0
            if count:
                yield file, count

    def meant(self, rows: pa.Table) -> pa.ChunkedArray:
        """Of each row, whether it is."""
        if self._messages is not None:
            return erasure.are_chosen(rows, self._messages)
        mask = pa.chunked_array([pa.repeat(True, rows.num_rows)])
        if self._asked.tenant:
            mask = pc.and_(mask, pc.equal(rows["tenant"], self._asked.tenant))
        if self._queues is not None:
            named = pa.array(self._queues, pa.string())
            mask = pc.and_(mask, pc.is_in(rows["queue_id"], value_set=named))
        return pc.fill_null(mask, False)


def day_of(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


def chosen(lake: Lake, asked: DropAsked) -> list[Days]:
    """What would be dropped."""
    choice = Choice(lake, asked)
    return [_days(table, list(choice.found(table))) for table in lake.tables]


def drop(lake: Lake, asked: DropAsked, *, actor: str, now_ms: int) -> list[Days]:
    """Drop it; no pipeline may run meanwhile. What a crash leaves, a second run drops."""
    with lock.hold(lake.root):
        erasure.check(lake)
        choice = Choice(lake, asked)
        found = {table: list(choice.found(table)) for table in lake.tables}
        days = {table: _days(table, files) for table, files in found.items()}
        told = {name: value for name, value in asdict(asked).items() if value}
        told["dropped_before"] = told.pop("before")
        record = ErasureRecord(
            id=ids.new_id()[-12:],
            at=erasure.spelled(now_ms),
            actor=actor,
            asked=told,
            messages=days[lake.messages].rows,
            bytes=sum(each.bytes for each in days.values()),
            queues={},
            offset=archive.last(lake.events),
        )
        erasure.keep(lake, record)
        if found[lake.events]:
            # First: from now on nothing is made of the events that are left.
            begin = str(archive.begin(lake.events))
            properties = {DROPPED: max(asked.before, dropped(lake)), archive.BEGIN: begin}
            lake.events.set_properties(properties)
        # `messages` last: a condition is about them, and a second run asks it again.
        for table in sorted(lake.tables, key=lambda each: each is lake.messages):
            _drop(table, choice, found[table])
        erasure.keep(lake, replace(record, done=True))
        upkeep.vacuum(lake, 0, alone=True)
    return [*days.values()]


def dropped(lake: Lake) -> str:
    """The first day of which nothing was dropped; empty if nothing ever was."""
    return lake.events.properties().get(DROPPED, "")


def _drop(table: Table, choice: Choice, found: Sequence[tuple[File, int]]) -> None:
    try:
        if whole := [file for file, count in found if count == file.rows]:
            table.commit(None, removes=whole)
        for file in [file for file, count in found if count < file.rows]:
            rest = table.rewrite([file], lambda rows: rows.filter(pc.invert(choice.meant(rows))))
            table.commit(rest, removes=[file])
    except Moved as error:
        raise LakeError("the lake is being compacted: try again later") from error


def _days(table: Table, found: Sequence[tuple[File, int]]) -> Days:
    return Days(
        table.name,
        rows=sum(count for _, count in found),
        bytes=sum(file.size * count // file.rows for file, count in found),
        files=len(found),
    )


def _files(lake: Lake, table: Table, before: str) -> list[File]:
    (by,) = table.partition_by
    files = table.files()
    last = max((file.partition[by] or "" for file in files), default="")
    # The partition of live messages comes after every day.
    meant = [file for file in files if "" < (file.partition[by] or "") < before]
    return [f for f in meant if table is not lake.audit or f.partition[by] != last]


def _queues(lake: Lake, asked: DropAsked) -> list[str]:
    """The ids of all queues that have, or once had, the name."""
    tenant = f" AND tenant = {quoted(asked.tenant)}" if asked.tenant else ""
    sql = " UNION ".join(
        f"SELECT queue_id FROM {table.name} WHERE queue = {quoted(asked.queue)}{tenant}"
        for table in lake.tables
    )
    found = query.ask(lake, sql, limit=erasure.MESSAGES_MAX)
    if not found.rows:
        raise LakeError(f"nothing in the lake is about a queue '{asked.queue}'")
    return [id for (id,) in found.rows]


def _messages(lake: Lake, asked: DropAsked, queues: list[str] | None) -> erasure.ChosenMessages:
    """Those that ended on the days, and that the condition holds for."""
    query.check_condition(lake, asked.where)
    parts = [f"ended < {quoted(asked.before)}", f"ended <> {quoted(LIVE)}", f"({asked.where}\n)"]
    if asked.tenant:
        parts.append(f"tenant = {quoted(asked.tenant)}")
    if queues is not None:
        parts.append(f"queue_id IN ({', '.join(map(quoted, queues))})")
    return erasure.counted(lake, " AND ".join(parts))
