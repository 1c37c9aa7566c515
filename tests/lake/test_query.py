"""The lake answers questions in SQL without Spark, and lets nobody do anything else."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest

from courier.lake import query
from courier.lake.catalog import Lake
from courier.lake.tables import LakeError
from tests.lake.lakes import SmallLake


@pytest.fixture
def lake(small: SmallLake) -> Iterator[Lake]:
    yield small.lake


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        (
            "select outcome, count(*) from messages where queue = 'orders' group by 1 order by 1",
            [["acked", 25], ["buried", 3], ["live", 12]],
        ),
        (
            "select sum((data(body)->>'total')::int) from messages"
            " where queue = 'orders' and data(body)->>'region' = 'eu' and outcome = 'acked'",
            None,
        ),
        ("select text(body) from messages where queue = 'slow' and seq = 1", [["slow 0"]]),
        ("select count(*) from messages where done_at is null and ended <> 'live'", [[0]]),
        ("select count(*) from messages where published_at < '2020-01-01'", [[0]]),
        ("select count(*) from events where date < '2020-01-01' or \"offset\" < 1", [[0]]),
        ("select text('\\xFF'::blob), data('no JSON'::blob)", [[None, None]]),
    ],
)  # fmt: skip
def test_sql_is_answered(lake: Lake, sql: str, rows: list[list[object]] | None) -> None:
    answer = query.ask(lake, sql, limit=100)
    assert not answer.more
    shown = [[query.plain(value) for value in row] for row in answer.rows]
    if rows is not None:
        assert shown == rows
    else:
        # The 25 that are acked have n = 0 to 24, and every other of them is from the EU.
        assert shown == [[sum(n * 10 for n in range(0, 25, 2))]]


def test_an_answer_ends_at_its_limit(lake: Lake) -> None:
    answer = query.ask(lake, 'select "offset" from events order by 1', limit=3)
    assert (answer.rows, answer.more) == ([[1], [2], [3]], True)
    whole = query.ask(lake, 'select "offset" from events where "offset" < 4 order by 1', limit=3)
    assert (whole.rows, whole.more) == (answer.rows, False)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select nope from messages", 'Referenced column "nope" not found'),
        ("selec 1", "syntax error"),
        ("", "one SELECT at a time"),
        ("select 1; select 2", "one SELECT at a time"),
        ("create table mine (a int)", "one SELECT at a time"),
        ("copy messages to 'messages.csv'", "one SELECT at a time"),
        ("attach 'other.db'", "one SELECT at a time"),
        ("install httpfs", "one SELECT at a time"),
        ("set lock_configuration = false", "one SELECT at a time"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from read_text('/etc/passwd')", "disabled by configuration"),
        ("select * from glob('/etc/*')", "disabled by configuration"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from read_parquet('https://example.invalid/x')", ""),
        ("select date 'infinity'", "cannot be shown"),
        ("select timestamp '290000-01-01'", "cannot be shown"),
        ("select timestamp_ns '2026-01-01 00:00:00.123456789'", "cannot be shown"),
        ("select * from lake", "tables are events, messages, queue_minutes, consumers_hours and"),
    ],
)
def test_whatever_else_is_asked_is_refused_in_a_sentence(lake: Lake, sql: str, told: str) -> None:
    with pytest.raises(LakeError) as refused:
        query.ask(lake, sql, limit=1)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_a_question_is_not_about_stay_unread(lake: Lake) -> None:
    found = query.dataset(lake.messages)
    ended = list(found.get_fragments(ds.field("ended") == "live"))
    assert 0 < len(ended) < len(list(found.get_fragments()))
    late = ds.field("published_at") > ds.scalar(datetime(2100, 1, 1, tzinfo=UTC))
    assert not list(found.get_fragments(late))


def test_the_plan_reads_only_the_columns_and_rows_that_are_asked_for(lake: Lake) -> None:
    sql = "explain select seq from messages where ended = 'live' and queue = 'orders'"
    ((_, plan),) = query.ask(lake, sql, limit=10).rows
    assert "Projections: seq" in plan and "'live'" in plan and "body" not in plan


def test_sizes_are_those_of_the_tables(lake: Lake) -> None:
    sizes = {each.table: each for each in query.sizes(lake)}
    assert list(sizes) == [table.name for table in lake.tables]
    ((last, rows),) = query.ask(lake, 'select max("offset"), count(*) from events', limit=1).rows
    assert (sizes["events"].upto, sizes["events"].rows) == (last, rows)
    assert sizes["messages"].upto == last
    stored = sum(file.size for file in lake.messages.files())
    assert (sizes["messages"].files, sizes["messages"].bytes) == (
        len(lake.messages.files()),
        stored,
    )
