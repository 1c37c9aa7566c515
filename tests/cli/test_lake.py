"""`courier lake` and `courier replay`, as far as they go without Spark."""

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from courier.lake.catalog import Lake
from tests.cli.command import Command

pytestmark = pytest.mark.slow

AT = datetime(2026, 1, 31, 12, 0, 0, 5_000, tzinfo=UTC)
# No Java is found in these places, so whatever succeeds has not started Spark.
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three events, and nothing else."""
    root = tmp_path_factory.mktemp("lake")
    for table in Lake(str(root)).tables:
        table.create(epoch="e")
    events = DeltaTable(str(root / "events"))
    rows = [
        {"offset": 1, "at": AT, "kind": "published", "body": b'{"total": 7}', "date": AT.date()},
        {"offset": 2, "at": AT, "kind": "published", "body": b"a\nb", "date": AT.date()},
        {"offset": 3, "at": AT, "kind": "published", "body": b"\xff", "date": AT.date()},
    ]
    schema = pa.schema(events.schema().to_arrow())
    write_deltalake(events, pa.Table.from_pylist(rows, schema=schema), mode="append")
    return root


@pytest.fixture
def courier(root: Path) -> Command:
    return Command("--lake", str(root))


def test_tables_are_listed(courier: Command) -> None:
    shown = courier("lake", "tables", "--json", environ=NO_JAVA).json
    assert [(each["table"], each["rows"]) for each in shown] == [
        ("events", 3), ("messages", 0), ("queue_minutes", 0), ("consumers_hours", 0), ("audit", 0),
    ]  # fmt: skip
    assert [row[:2] for row in courier("lake", "tables").rows][:2] == [
        ["events", "3"],
        ["messages", "0"],
    ]


def test_a_question_is_answered_as_a_table_as_json_and_as_csv(courier: Command) -> None:
    sql = 'select "offset", "at", body, data(body)->\'total\' total from events order by 1'
    time = "2026-01-31T12:00:00.005Z"
    table = courier("lake", "query", sql, environ=NO_JAVA)
    assert table.rows == [
        ["1", time, '{"total": 7}', "7"], ["2", time, "a\\nb", "-"], ["3", time, "0xff", "-"],
    ]  # fmt: skip
    assert courier("lake", "query", sql, "--json").json[1] == {
        "offset": 2, "at": time, "body": "a\nb", "total": None,
    }  # fmt: skip
    lines = list(csv.reader(io.StringIO(courier("lake", "query", sql, "--csv").out)))
    assert lines == [
        ["offset", "at", "body", "total"], ["1", time, '{"total": 7}', "7"],
        ["2", time, "a\nb", ""], ["3", time, "0xff", ""],
    ]  # fmt: skip


def test_more_rows_than_the_limit_are_mentioned(courier: Command) -> None:
    ran = courier("lake", "query", "select kind from events", "--limit", "2")
    assert len(ran.rows) == 2
    assert "more than 2 rows" in ran.err


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["lake", "query", "select nope from events"], 1, '"nope" not found'),
        (["lake", "query", "drop table events"], 1, "one SELECT at a time"),
        (["lake", "query", "from read_text('/etc/passwd')"], 1, "disabled by configuration"),
        (["lake", "query", "select 1", "--limit", "0"], 2, "whole number"),
        (["lake", "query", "select 1", "--json", "--csv"], 2, "not allowed with"),
        (["lake", "compact", "nothing"], 2, "invalid choice"),
        (["replay", "--rate", "fast"], 2, "'fast' is not a number of messages per second"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    courier: Command, words: list[str], status: int, told: str
) -> None:
    assert told in courier.fails(status, *words)


def test_a_lake_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    courier = Command("--lake", str(tmp_path / "none"))
    for words in (["lake", "tables"], ["lake", "query", "select 1"], ["lake", "vacuum"]):
        line = courier.fails(1, *words)
        assert line.startswith("courier: there is no lake at") and "pipeline run" in line


def test_compact_and_vacuum_say_what_they_did(courier: Command) -> None:
    assert "nothing to compact" in courier("lake", "compact").out
    assert "nothing to compact" in courier("lake", "compact", "events").out
    assert "would remove 0 files" in courier("lake", "vacuum", "--dry-run").out


@pytest.mark.parametrize("missing", ["duckdb", "deltalake", "pyspark"])
def test_without_the_extra_the_command_says_what_to_install(
    courier: Command, tmp_path: Path, missing: str
) -> None:
    fault = f"raise ModuleNotFoundError('gone', name={missing!r})\n"
    (tmp_path / f"{missing}.py").write_text(fault)
    ran = courier.attempt("lake", "query", "select 1", environ={"PYTHONPATH": str(tmp_path)})
    assert ran.status == 2
    assert f"the lake needs {missing}: install Courier with its extra" in ran.err
    # The other commands do without.
    assert Command().attempt("config", environ={"PYTHONPATH": str(tmp_path)}).status == 0


def test_a_replay_needs_a_queue_or_an_id(courier: Command) -> None:
    line = courier.fails(2, "replay", "--url", "http://127.0.0.1:1", "--token", "t")
    assert "a replay needs --queue, or the --id" in line
