"""`courier lake` and `courier replay`, as far as they go without Spark."""

import csv
import io
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from courier.lake.catalog import Lake
from tests.cli.command import Command

pytestmark = pytest.mark.slow

SEALED = {"offset": 4, "sealed": "key-1"}
AT = datetime(2026, 1, 31, 12, 0, 0, 5_000, tzinfo=UTC)
# No Java is found in these places, so whatever succeeds has not started Spark.
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with four events, and nothing else."""
    root = tmp_path_factory.mktemp("lake")
    for table in Lake(str(root)).tables:
        table.create(epoch="e")
    events = DeltaTable(str(root / "events"))
    rows = [
        {"offset": 1, "at": AT, "kind": "published", "body": b'{"total": 7}', "date": AT.date()},
        {"offset": 2, "at": AT, "kind": "published", "body": b"a\nb", "date": AT.date()},
        {"offset": 3, "at": AT, "kind": "published", "body": b"\xff", "date": AT.date()},
        {**SEALED, "at": AT, "kind": "published", "body": b"{}", "date": AT.date()},
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
        ("events", 4), ("messages", 0), ("queue_minutes", 0), ("consumers_hours", 0), ("audit", 0),
    ]  # fmt: skip
    assert [row[:2] for row in courier("lake", "tables").rows][:2] == [
        ["events", "4"],
        ["messages", "0"],
    ]


def test_a_question_is_answered_as_a_table_as_json_and_as_csv(courier: Command) -> None:
    sql = """select "offset", "at", body, body->>'total' total from events order by 1"""
    time = "2026-01-31T12:00:00.005Z"
    table = courier("lake", "query", sql, environ=NO_JAVA)
    assert table.rows == [
        ["1", time, '{"total": 7}', "7"], ["2", time, "a\\nb", "-"], ["3", time, "-", "-"],
        ["4", time, "-", "-"],
    ]  # fmt: skip
    assert courier("lake", "query", sql, "--json").json[1] == {
        "offset": 2, "at": time, "body": "a\nb", "total": None,
    }  # fmt: skip
    lines = list(csv.reader(io.StringIO(courier("lake", "query", sql, "--csv").out)))
    assert lines == [
        ["offset", "at", "body", "total"], ["1", time, '{"total": 7}', "7"],
        ["2", time, "a\nb", ""], ["3", time, "", ""], ["4", time, "", ""],
    ]  # fmt: skip


def test_a_body_is_text_json_and_bytes(courier: Command) -> None:
    sql = "select body, data->'total' as total, bytes, text(bytes) as made from events order by all"
    shown = courier("lake", "query", sql, "--json").json
    assert [list(row.values()) for row in shown] == [
        ["a\nb", None, "a\nb", "a\nb"],
        ['{"total": 7}', "7", '{"total": 7}', '{"total": 7}'],
        # What is sealed or binary is no text.
        [None, None, "{}", "{}"],
        [None, None, "0xff", None],
    ]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("select offset from events", "offset"),
        ("select kind from events order by offset desc", "offset"),
        ("select max(offset) from events", "offset"),
        ("select kind from events where at > now()", "at"),
        ("select at, kind from events", "at"),
        ("select kind from events order by at", "at"),
        ("select group, count(*) from messages group by group", "group"),
        ("select count(*) from messages group by group", "group"),
    ],
)
def test_a_column_that_is_a_word_of_sql_is_said_to_need_quotes(
    courier: Command, sql: str, word: str
) -> None:
    line = courier.fails(1, "lake", "query", sql)
    assert "syntax error" in line
    assert line.endswith(f"'{word}' is a word of SQL: as a column it needs quotes, \"{word}\"")


def test_another_syntax_error_says_nothing_of_quotes(courier: Command) -> None:
    sql = 'select "offset" from events wher kind = 1 group by 1'
    assert "quotes" not in courier.fails(1, "lake", "query", sql)


@pytest.mark.parametrize("relative", [False, True])
def test_the_views_open_in_plain_duckdb(
    courier: Command, root: Path, tmp_path: Path, relative: bool
) -> None:
    file = root / "made" / "lake.duckdb"
    words = ["--relative"] if relative else []
    said = courier("lake", "views", "--out", str(file), *words).out
    assert said.startswith(f"{file}: events (4), messages (0), ")
    asked = """select "offset", body, body->>'total', data, bytes, date from events order by all"""
    # A process that knows nothing of Courier, and may only read.
    plain = f"""
import duckdb, sys
connection = duckdb.connect({str(file)!r}, read_only=True)
print(connection.execute(sys.argv[1]).fetchall())
print(connection.execute('select * from tables').fetchall())
print(connection.execute('select count(*) from messages').fetchall())
print([column[0] for column in connection.execute('from audit').description][:3])
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", plain, asked],
        cwd=file.parent if relative else tmp_path,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    known = {"date": date}
    rows, tables, count, columns = (
        eval(line.replace("datetime.", ""), known) for line in ran.stdout.splitlines()
    )
    assert rows == [
        (1, '{"total": 7}', "7", '{"total": 7}', b'{"total": 7}', AT.date()),
        (2, "a\nb", None, None, b"a\nb", AT.date()),
        (3, None, None, None, b"\xff", AT.date()),
        (4, None, None, None, b"{}", AT.date()),
    ]
    assert tables[0] == ("events", 4, 0, 0, "") and count == [(0,)]
    assert columns == ["run_at", "batch", "first_offset"]
    # Of DuckDB's formats the one that its releases of years ago read.
    assert int.from_bytes(file.read_bytes()[12:20], "little") == 64


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
        (["lake", "query", "select 1", "--json", "--csv"], 2, "cannot be used with"),
        (["lake", "compact", "nothing"], 2, "is not one of"),
        (["replay", "--rate", "fast"], 2, "'fast' is not a number of messages per second"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    courier: Command, words: list[str], status: int, told: str
) -> None:
    assert told in courier.fails(status, *words)


def test_a_lake_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    courier = Command("--lake", str(tmp_path / "none"))
    for words in (["lake", "tables"], ["lake", "query", "select 1"], ["lake", "views"]):
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
    words = ["pipeline", "rebuild"] if missing == "pyspark" else ["lake", "query", "select 1"]
    ran = courier.attempt(*words, environ={"PYTHONPATH": str(tmp_path)})
    assert ran.status == 2
    assert f"the lake needs {missing}: install Courier with its extra" in ran.err
    # The other commands do without.
    assert Command().attempt("config", environ={"PYTHONPATH": str(tmp_path)}).status == 0


def test_a_replay_needs_a_queue_or_an_id(courier: Command) -> None:
    line = courier.fails(2, "replay", "--url", "http://127.0.0.1:1", "--token", "t")
    assert "a replay needs --queue, or the --id" in line
