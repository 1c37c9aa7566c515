"""What the broker is told to be in the lake survives a power cut, and a lost commit is noticed."""

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from courier.lake import archive, pipeline, query, tables, tasks
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.log import HEAD, LOG
from courier.lake.rebuild import rebuild
from courier.lake.tables import Damaged, Table
from tests.clients.cloudflare import CloudflareClient
from tests.lake.commands import Commands
from tests.lake.lakes import SmallLake, place_of, rows
from tests.server import Server

NAMES = ("events", "messages", "queue_minutes", "consumers_hours", "audit")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Disk:
    """Knows what was synced: contents of files, and names in directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[int, tuple[int, int]] = {}
        self._names: dict[int, dict[str, int]] = {}
        sync = os.fsync

        def fsync(handle: int) -> None:
            sync(handle)
            stat = os.fstat(handle)
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path.is_dir():
                self._names[stat.st_ino] = {each.name: each.inode() for each in os.scandir(path)}
            else:
                self._contents[stat.st_ino] = (stat.st_size, stat.st_mtime_ns)

        monkeypatch.setattr(os, "fsync", fsync)

    def after_power_cut(self, source: Path, target: Path) -> Path:
        """A copy of a directory, which has itself survived, with only what was synced."""
        target.mkdir()
        known = self._names.get(source.stat().st_ino, {})
        for each in source.iterdir():
            stat = each.stat()
            if known.get(each.name) != stat.st_ino:
                continue
            if each.is_dir():
                self.after_power_cut(each, target / each.name)
            elif self._contents.get(stat.st_ino) == (stat.st_size, stat.st_mtime_ns):
                shutil.copy(each, target / each.name)
            else:
                (target / each.name).touch()
        return target


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_what_the_broker_is_told_survives_a_power_cut(
    spark: SparkSession,
    fresh_server: Server,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    real = Client.commit

    def telling(broker: Client, name: str, offset: int) -> None:
        copy = Lake(str(disk.after_power_cut(tmp_path / "lake", tmp_path / f"at-{len(told)}")))
        copy.check()
        assert archive.last(copy.events) >= offset
        assert sum(file.rows for file in copy.events.files()) >= offset
        told.append(offset)
        real(broker, name, offset)

    monkeypatch.setattr(Client, "commit", telling)
    monkeypatch.setattr(tables, "CHECKPOINT_COMMITS", 2)
    lake = Lake(str(tmp_path / "lake"))
    with fresh_server.client() as http:
        queue = CloudflareClient(http, "orders")
        for turn in range(3):
            queue.publish_batch([f"message {turn} {n}" for n in range(5)])
            assert queue.ack([each.lease for each in queue.pull(3)]) == 3
            pipeline.once(spark, lake, place_of(fresh_server))
    assert len(told) >= 6 and told[-1] == archive.last(lake.events)
    assert list((tmp_path / "lake").glob(f"*/{LOG}/*.checkpoint.parquet"))
    copy = Lake(str(disk.after_power_cut(tmp_path / "lake", tmp_path / "in-the-end")))
    copy.check()
    for mine, theirs in zip(lake.tables, copy.tables, strict=True):
        assert rows(mine) == rows(theirs)


def test_files_that_tasks_write_survive_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    columns = StructType(
        [
            StructField("offset", LongType()),
            StructField("at", TimestampType()),
            StructField("day", StringType()),
        ]
    )
    options = {"path": f"{tmp_path}/table", "name": "1", "partitionby": '["day"]', "rowsmax": "2"}
    (tmp_path / "table").mkdir()
    writer = tasks.PartsWriter(options, columns)
    schema = pa.schema(
        [("offset", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.string())]
    )
    made = [{"offset": n, "at": NOON, "day": "a" if n % 2 else None} for n in range(7)]
    batch = pa.RecordBatch.from_pylist(made, schema)
    writer.commit([writer.write(iter([batch.slice(0, 3), batch.slice(3)])), None])
    copy = disk.after_power_cut(tmp_path / "table", tmp_path / "copy")
    found = tasks.take(str(copy), "1")
    assert sorted((part.partition["day"] or "", part.rows) for part in found) == [
        ("", 2),
        ("", 2),
        ("a", 1),
        ("a", 2),
    ]
    assert not list(copy.rglob("*.json"))
    for part in found:
        assert (copy / part.path).stat().st_size == part.size


# --- what is lost is noticed ---


@pytest.fixture(scope="module")
def long_lake(small: SmallLake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A copy of the small lake with some more commits, and checkpoints among them."""
    root = tmp_path_factory.mktemp("long") / "lake"
    shutil.copytree(small.root, root, ignore=shutil.ignore_patterns("_*s", "_lock"))
    lake = Lake(str(root))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHECKPOINT_COMMITS", 3)
        for table in lake.tables:
            table.upgrade()
            files = table.files()
            table.commit(table.rewrite(files[:1]), removes=files[:1], same_rows=True)
            for number in range(1, 7):
                table.commit(None, app="more", batch=number)
    return Lake(str(root))


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda content: None,
    "emptied": lambda content: b"",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "cut after a line": lambda content: content.partition(b"\n")[0] + b"\n",
}


def _damaged(file: Path) -> Iterator[str]:
    """The file, once with each damage; it is whole again in the end."""
    whole = file.read_bytes()
    try:
        for name, change in DAMAGES.items():
            content = change(whole)
            if content is None:
                file.unlink()
            elif content.strip() != whole.strip():
                file.write_bytes(content)
            else:
                continue
            yield name
    finally:
        file.write_bytes(whole)


def _answers(root: str) -> list[Any]:
    """What a command would say of all tables: how far each is, and its rows."""
    lake = Lake(root)
    lake.check()
    # One question: each opens DuckDB, and all tables in it.
    counts = ", ".join(f"(select count(*) from {name})" for name in NAMES)
    counted = query.ask(lake, f"select {counts}", limit=1).rows
    return [counted, [(each.upto, each.rows, each.files) for each in query.sizes(lake)]]


@pytest.mark.parametrize("name", NAMES)
def test_damage_of_a_log_is_noticed_or_does_no_harm(long_lake: Lake, name: str) -> None:
    expected = _answers(long_lake.root)
    log = Path(long_lake.root, name, LOG)
    newest = max(log.glob("*.json")).name
    noticed = set()
    for file in sorted(log.iterdir()):
        for damage in _damaged(file):
            try:
                assert _answers(long_lake.root) == expected, f"{file.name} {damage}"
            except Damaged as error:
                assert f"table {name} is damaged: " in str(error) and "\n" not in str(error)
                noticed.add((file.name, damage))
    assert {(newest, damage) for damage in DAMAGES} <= noticed
    assert _answers(long_lake.root) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_or_cut_short_is_noticed(long_lake: Lake, name: str) -> None:
    for file in Path(long_lake.root, name).rglob("*.parquet"):
        if LOG in file.parts or not _used(long_lake, name, file):
            continue
        for _ in _damaged(file):
            with pytest.raises(Damaged, match=f"table {name} is damaged: its file data/"):
                Lake(long_lake.root).check()


def _used(lake: Lake, name: str, file: Path) -> bool:
    table: Table = getattr(lake, name)
    return str(file.relative_to(table.uri)) in {each.path for each in table.files()}


def test_commands_refuse_a_damaged_lake(
    courier: Commands, small: SmallLake, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(small.root, root)
    newest = max((root / "messages" / LOG).glob("*.json"))
    file = Path(small.lake.messages.files()[0].path)
    place = ("--lake", str(root), "--data", str(small.server.data))
    for damaged in (newest, root / "messages" / file):
        for _ in _damaged(damaged):
            for words in (
                ("lake", "query", "select count(*) from events"),
                ("lake", "tables"),
                ("lake", "compact"),
                ("lake", "vacuum"),
                ("pipeline", "run", "--once"),
                ("pipeline", "status"),
                ("pipeline", "rebuild"),
                ("replay", "--queue", "orders", "--dry-run"),
                ("report", "--out", str(tmp_path / "report.html")),
            ):
                status, said, error = courier(*words, *place)
                assert status == 1, (words, said, error)
                assert "table messages is damaged: " in error.splitlines()[-1]
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_table_is_made_again(
    spark: SparkSession, small: SmallLake, tmp_path: Path
) -> None:
    shutil.copytree(small.root, tmp_path / "lake")
    shutil.rmtree(tmp_path / "lake" / "messages")
    lake = Lake(str(tmp_path / "lake"))
    assert "messages" in rebuild(spark, lake)
    lake.check()
    assert rows(lake.messages) == rows(small.lake.messages)


def test_a_lake_without_a_note_of_its_newest_commits_is_read(long_lake: Lake) -> None:
    expected = _answers(long_lake.root)
    for content in (b"", b"{}", b"[]", None):
        for name in NAMES:
            head = Path(long_lake.root, name, HEAD)
            head.unlink() if content is None else head.write_bytes(content)
        assert _answers(long_lake.root) == expected
    for table in long_lake.tables:
        table.sync()
        assert Path(table.uri, HEAD).exists()


# --- what was never reported may be torn ---


@pytest.fixture
def cut_off(tmp_path: Path) -> tuple[Table, int]:
    """A table whose last two commits were not reported when the power went, with a checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHECKPOINT_COMMITS", 3)
        table = Lake(str(tmp_path / "lake")).events
        table.create(epoch="e")
        for number in range(1, 5):
            table.commit(None, app="reported", batch=number)
        head = Path(table.uri, HEAD)
        note = head.read_bytes()
        newest = table.open()
        assert newest is not None
        reported = newest.version()
        for number in range(5, 7):
            table.commit(None, app="reported", batch=number)
        head.write_bytes(note)
    assert _checkpoint(table) in (reported + 1, reported + 2)
    return table, reported


def _checkpoint(table: Table) -> int:
    return max(int(each.name[:20]) for each in Path(table.uri, LOG).glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("checkpoint", ["whole", "emptied", "cut in the middle"])
def test_commits_that_a_power_cut_left_in_parts_are_taken_back(
    cut_off: tuple[Table, int], damage: str, after: int, checkpoint: str
) -> None:
    table, reported = cut_off
    log = Path(table.uri, LOG)
    for name, change in (
        (f"{reported + after:020d}.json", DAMAGES[damage]),
        (f"{_checkpoint(table):020d}.checkpoint.parquet", DAMAGES.get(checkpoint)),
        ("_last_checkpoint", DAMAGES.get(checkpoint)),
    ):
        content = change((log / name).read_bytes()) if change else b""
        if content is None:
            (log / name).unlink()
        elif change:
            (log / name).write_bytes(content)
    table.take_back()
    again = Lake(str(Path(table.uri).parent)).events
    opened = again.open()
    assert opened is not None
    left = reported + after - 1
    assert opened.version() == left
    assert again.commit(None, app="reported", batch=100)
    assert opened.version() == left + 1 and not again._log.damage()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_commit_that_was_reported_is_never_taken_back(
    cut_off: tuple[Table, int], damage: str
) -> None:
    table, reported = cut_off
    log = Path(table.uri, LOG)
    file = log / f"{reported:020d}.json"
    content = DAMAGES[damage](file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)
    for checkpoint in (*log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"):
        checkpoint.unlink()
    before = sorted(each.name for each in log.iterdir())
    table.take_back()
    assert sorted(each.name for each in log.iterdir()) == before
    with pytest.raises(Damaged):
        Lake(str(Path(table.uri).parent)).events.open()
