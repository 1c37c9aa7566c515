"""Content erased from the lake for good: of a person, of a queue, or older than a time.

Of an erased message every table keeps that it was there, so that counts, the audit and a rebuild
stay right; body, headers, group, id and detail are gone from all files, and `detail` names the
erasure in place of what it was. A record of each erasure says what was asked, by whom, and how many
messages it was.
"""

import json
import os
import pwd
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from courier import ids
from courier.lake import archive, lock, query, upkeep, views
from courier.lake.catalog import Lake
from courier.lake.storage import filesystem, put
from courier.lake.tables import LakeError, Moved, Table

FOLDER = "_erasures"
# They are held in memory; erase by day or queue when there are more.
MESSAGES_MAX = 5_000_000
RECORDS_MAX = 100_000
ERASED = "erased"
_CONTENT = ("body", "headers", "group", "message_id")


@dataclass(frozen=True)
class ErasureAsked:
    """Messages of a queue, published before a time, that a condition is true of; all need not."""

    tenant: str = ""
    queue: str = ""
    before_ms: int | None = None
    where: str = ""

    def sql(self) -> str:
        """The condition for the chosen messages that are not erased yet."""
        parts = [f"detail->>'{ERASED}' IS NULL"]
        if self.tenant:
            parts.append(f"tenant = {views.quoted(self.tenant)}")
        if self.queue:
            parts.append(f"queue = {views.quoted(self.queue)}")
        if self.before_ms is not None:
            parts.append(f"published_at < make_timestamptz({self.before_ms * 1000})")
        if self.where:
            parts.append(f"({self.where}\n)")
        return " AND ".join(parts)


@dataclass(frozen=True)
class ErasureRecord:
    """What is known of an erasure afterwards: nothing of what was erased."""

    id: str
    at: str
    actor: str
    asked: Mapping[str, Any]
    messages: int
    bytes: int
    queues: Mapping[str, int]
    offset: int
    done: bool = False


@dataclass(frozen=True)
class ChosenMessages:
    """The messages that are meant: by queue id, their numbers."""

    seqs: Mapping[str, list[int]]
    bytes: int
    first: datetime | None
    last: datetime | None

    @property
    def queues(self) -> dict[str, int]:
        return {queue: len(seqs) for queue, seqs in self.seqs.items()}

    @property
    def messages(self) -> int:
        return sum(self.queues.values())


def choose(lake: Lake, asked: ErasureAsked) -> ChosenMessages:
    """Raises LakeError for a condition that DuckDB does not understand, and for too many."""
    if asked.where:
        query.check_condition(lake, asked.where)
    return counted(lake, asked.sql())


def counted(lake: Lake, condition: str) -> ChosenMessages:
    """The messages that a checked condition holds for. Raises LakeError for too many."""
    sql = f"SELECT queue_id, queue, seq, size, published_at FROM messages WHERE {condition}"
    found = query.ask(lake, sql, limit=MESSAGES_MAX)
    if found.more:
        raise LakeError(
            f"more than {MESSAGES_MAX} messages match: choose fewer with --queue, "
            "--before or --where first"
        )
    seqs: dict[str, list[int]] = {}
    size, times = 0, []
    for queue_id, _, seq, bytes_, at in found.rows:
        seqs.setdefault(queue_id, []).append(seq)
        size += bytes_ or 0
        times.append(at)
    return ChosenMessages(seqs, size, min(times, default=None), max(times, default=None))


def erase(lake: Lake, asked: ErasureAsked, *, actor: str, now_ms: int) -> ErasureRecord:
    """Erase what is meant, now and for good; no pipeline may run meanwhile."""
    with lock.hold(lake.root):
        check(lake)
        chosen = choose(lake, asked)
        record = ErasureRecord(
            id=ids.new_id()[-12:],
            at=spelled(now_ms),
            actor=actor,
            asked={name: value for name, value in asdict(asked).items() if value},
            messages=chosen.messages,
            bytes=chosen.bytes,
            queues=chosen.queues,
            offset=archive.last(lake.events),
        )
        keep(lake, record)
        # `messages` last: what a crash leaves is found there, and chosen again.
        for table in (lake.events, lake.messages):
            _clear(table, chosen, record.id)
        # In a bucket nothing locks a pipeline out, and it may have written content again.
        if {archive.last(table) for table in lake.tables} != {record.offset}:
            raise LakeError("a pipeline is running on the lake: stop it, and erase again")
        record = replace(record, done=True)
        keep(lake, record)
        upkeep.vacuum(lake, 0, alone=True)
    return record


def records(lake: Lake) -> list[ErasureRecord]:
    """All erasures of a lake, the oldest first."""
    found = []
    for info in _listed(lake, FOLDER)[:RECORDS_MAX]:
        if info.base_name.endswith(".json"):
            with filesystem(lake.root)[0].open_input_stream(info.path) as file:
                found.append(ErasureRecord(**json.loads(file.read())))
    return sorted(found, key=lambda each: each.at)


def _listed(lake: Lake, folder: str) -> list[pafs.FileInfo]:
    system, root = filesystem(lake.root)
    return list(system.get_file_info(pafs.FileSelector(f"{root}/{folder}", allow_not_found=True)))


def erased(lake: Lake) -> dict[str, int]:
    """How many messages of each queue were erased, of all time."""
    counts: dict[str, int] = {}
    for record in records(lake):
        for queue, count in record.queues.items():
            counts[queue] = counts.get(queue, 0) + count
    return counts


def count(lake: Lake, *, tenant: str, queue: str, since_ms: int, until_ms: int) -> int:
    """How many messages of a queue that were published in a time were erased."""
    if not records(lake):
        return 0
    sql = (
        f"SELECT count(*) FROM messages WHERE detail->>'{ERASED}' IS NOT NULL "
        f"AND tenant = {views.quoted(tenant)} AND queue = {views.quoted(queue)} "
        f"AND published_at >= make_timestamptz({since_ms * 1000}) "
        f"AND published_at < make_timestamptz({until_ms * 1000})"
    )
    [[found]] = query.ask(lake, sql, limit=1).rows
    return int(found)


def spelled(ms: int) -> str:
    """A time as records have it."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def user() -> str:
    """Who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def check(lake: Lake) -> None:
    """Raises LakeError unless the tables can be changed behind the pipeline's back."""
    if len({archive.last(table) for table in lake.tables}) != 1:
        raise LakeError(
            "the tables are not at the same offset: `courier pipeline run --once` completes them"
        )
    for each in _listed(lake, "_replays"):
        if each.type == pafs.FileType.Directory:
            raise LakeError(
                f"replay '{each.base_name}' has not ended and has a copy of its messages: continue "
                f"it with `courier replay --id {each.base_name}` first"
            )


def keep(lake: Lake, record: ErasureRecord) -> None:
    """From now on the record is this."""
    content = json.dumps(asdict(record), indent=2).encode()
    put(f"{lake.root}/{FOLDER}/{record.id}.json", content)


def _clear(table: Table, chosen: ChosenMessages, erasure: str) -> None:
    """Write the files again that have rows of the chosen messages."""
    for file in table.files():
        keys = table.look([file], ("queue_id", "seq"))
        if not pc.any(are_chosen(keys, chosen)).as_py():
            continue
        written = table.rewrite([file], lambda rows: _cleared(rows, chosen, erasure))
        try:
            table.commit(written, removes=[file])
        except Moved as error:
            raise LakeError("the lake is being compacted: try again when that is done") from error


def _cleared(rows: pa.Table, chosen: ChosenMessages, erasure: str) -> pa.Table:
    """The same rows, those of chosen messages without content."""
    mask = are_chosen(rows, chosen)
    for name in _CONTENT:
        place = rows.column_names.index(name)
        empty = pa.scalar(None, rows.schema.field(name).type)
        rows = rows.set_column(place, rows.schema.field(name), pc.if_else(mask, empty, rows[name]))
    # Of events only the one that has the content tells that it is erased.
    tells = pc.equal(rows["kind"], "published") if "kind" in rows.column_names else mask
    told = json.dumps({ERASED: erasure})
    details = [
        detail if not is_meant else told if is_told else None
        for detail, is_meant, is_told in zip(
            rows["detail"].to_pylist(), mask.to_pylist(), tells.to_pylist(), strict=True
        )
    ]
    field = rows.schema.field("detail")
    made = pa.array(details, field.type)
    return rows.set_column(rows.column_names.index("detail"), field, made)


def are_chosen(rows: pa.Table, chosen: ChosenMessages) -> pa.ChunkedArray:
    """Of each row, whether it is about one of the chosen messages."""
    mask = pa.chunked_array([pa.repeat(False, rows.num_rows)])
    for queue, seqs in chosen.seqs.items():
        of_queue = pc.fill_null(pc.equal(rows["queue_id"], queue), False)
        if pc.any(of_queue).as_py():
            meant = pc.is_in(rows["seq"], value_set=pa.array(seqs, pa.int64()))
            mask = pc.or_(mask, pc.and_(of_queue, meant))
    return mask
