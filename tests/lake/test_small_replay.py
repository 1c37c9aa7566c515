"""Small replays without Spark: the same messages, the same once, and Spark where it is needed."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from courier.cli import main
from courier.lake import replay, small
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.replay import Asked, Plans
from courier.lake.schema import ORDER
from tests.cli.command import Command, clean_environ
from tests.lake.orders import Orders
from tests.lake.running import wait_for
from tests.server import Server

# No Java is found here, so whatever succeeds has not started Spark.
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
MANY = 400
# Flags of commands on a lake; the second one is of those that may start Spark.
WITH_LAKE = {"--lake", "--master"}


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    with Server(tmp_path_factory.mktemp("few")).start() as server:
        yield Orders(spark, server, many=MANY)


@pytest.fixture
def courier(orders: Orders) -> Command:
    return Command("--data", str(orders.server.data))


def _few(orders: Orders, where: str, *, only_samples: bool = False) -> replay.Chosen | None:
    return replay.choose_few(
        orders.lake,
        Asked(queue="orders", where=where),
        tenant=orders.tenant,
        replay="look",
        now_ms=replay.now_ms(),
        only_samples=only_samples,
    )


@pytest.mark.parametrize(
    "where",
    [
        "",
        "data:total::int >= 350",
        "try_cast(data:total as int) < 30 and headers:region::string = 'eu'",
        "outcome = 'buried' and headers:weight::int > 11",
        "body like '%\"n\": 7,%'",
        "(headers:tags[1]::int = 3 or attempts = 1) and data:n::bigint in (3, 4)",
        "published_at > '2020-01-01' and not outcome = 'live'",
        "total_ms between 0 and 100000000 and outcome <> 'acked'",
        "data:nope::string is null and size > 5",
        "headers:region::string = 'us' OR sealed IS NOT NULL",
    ],
)
def test_duckdb_chooses_what_spark_chooses(orders: Orders, where: str) -> None:
    few = _few(orders, where)
    assert few is not None, "Spark is not needed for this"
    assert isinstance(few.rows, pa.Table)
    whole = replay.choose(
        orders.spark,
        orders.lake,
        Asked(queue="orders", where=where),
        tenant=orders.tenant,
        replay="look",
        now_ms=replay.now_ms(),
    )
    assert (few.count, few.bytes, few.first, few.last) == (
        *(whole.count, whole.bytes, whole.first, whole.last),
    )
    assert isinstance(whole.rows, DataFrame)
    theirs = [row.asDict() for row in whole.rows.orderBy(*ORDER).collect()]
    assert [_plain(row) for row in few.rows.to_pylist()] == [_plain(row) for row in theirs]
    samples = _few(orders, where, only_samples=True)
    assert samples is not None and samples.count == few.count
    assert samples.samples() == few.samples()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    at_ms = round(row["published_at"].timestamp() * 1000)
    fixed = {"headers": json.loads(row["headers"]), "body": bytes(row["body"])}
    return {**row, **fixed, "published_at": at_ms}


@pytest.mark.parametrize(
    "where",
    [
        "length(body) > 3",
        "data:total > 5",
        "outcome = 5",
        "seq = '5'",
        "body = 'it\\'s'",
        "body = 'a' 'b'",
        "`group` is null",
        "size / 2 > 1",
        "data:total::int > '5'",
        "outcome = 'live' -- all",
        "outcome = 'live') or (outcome = 'acked'",
        "(outcome = 'live'",
        "true; select 1",
        "nope = 1",
        "\"outcome\" = 'live'",
    ],
)
def test_what_may_mean_something_else_is_left_to_spark(where: str) -> None:
    assert small.condition(where) is None


def test_so_is_a_value_of_which_the_type_does_not_fit(orders: Orders) -> None:
    assert small.condition("headers:region::int = 1") is not None
    assert _few(orders, "headers:region::int = 1") is None
    assert _few(orders, "headers:tags::string = 'x'") is None


ODD = (
    *('{"a":1,"a":2}', '{"a":1} x', '{"a":1}{"a":2}', '{"a":1,"b":NaN}', '{"a":NaN}', '{"a":1,}'),
    *('{"a":1,"b":-Infinity}', '{"a":1,"b":[1,]}', '{"a":1,"b":{"c":1,"c":2}}', '{"a":1}\x00'),
    *('{"a":1}\xa0', '{"a":1}\x0c', '\ufeff{"a":1}', '// c\n{"a":1}', "{'a':1}", '{"a":01}'),
    *('{"a":1,"b":' + "[" * 1_200 + "]" * 1_200 + "}", '{"a":1,"b":' + "9" * 1_500 + "}"),
    *('{"a":1,"' + "k" * 60_000 + '":1}', '{"a":1,"b":"\\ud800"}', '{"a":1,"b":1e400}', "NaN"),
    *('{"a":1,"b":"x\ny"}', '{"a":1,"b":.5}', '\x00{"a":1}', ' \t{"a":1}\r\n', "[1]", "", "1"),
)


def _of_queue(lake: Lake, queue: str, where: str) -> small.Found | None:
    return small.choose(
        lake,
        tenant="t",
        queue=queue,
        since_ms=0,
        until_ms=1 << 43,
        where=where,
        replay="look",
        only_samples=True,
    )


def test_json_that_only_one_of_them_takes_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    at = datetime(2026, 1, 31, tzinfo=UTC)
    known = {"tenant": "t", "outcome": "live", "published_at": at}
    rows = [
        {**known, "queue": f"{n}", "queue_id": f"{n}", "seq": 1, "body": text.encode()}
        for n, text in enumerate(ODD)
    ]
    lake.messages.commit(lake.messages.write_rows(rows, ended="live"))
    texts = spark.createDataFrame([*enumerate(ODD)], "n int, text string")
    theirs = texts.selectExpr("try_parse_json(text) as data").selectExpr("data:a::string = '1'")
    with_spark = [row[0] for row in theirs.collect()]
    few = [_of_queue(lake, f"{n}", "data:a::string = '1'") for n in range(len(ODD))]
    for text, is_meant, found in zip(ODD, with_spark, few, strict=True):
        assert found is None or found[1] == bool(is_meant), text[:50]
    assert {found[1] for found in few if found is not None} == {0, 1}


def test_a_dry_run_and_a_small_replay_need_no_java(orders: Orders, courier: Command) -> None:
    words = ("replay", "--queue", "orders", "--where", "data:n::int < 5")
    shown = courier(*words, "--dry-run", environ=NO_JAVA)
    assert shown.out.startswith("5 messages, ")
    done = courier(*words, "--into", "again", "--id", "small", environ=NO_JAVA)
    assert done.out == "5 messages published to 'again', replay 'small'\n"
    published = orders.published("again")
    assert [json.loads(row["body"])["n"] for row in published] == [0, 1, 2, 3, 4]
    assert {row["headers"]["courier-replay-id"] for row in published} == {"small"}
    # A second time it says so, and Spark finds nothing left of it either.
    again = courier("replay", "--id", "small", environ=NO_JAVA)
    assert again.out == "replay 'small' has published its 5 messages already\n"
    assert len(orders.published("again")) == 5
    # With what only Spark understands, it is Spark that is missing.
    line = courier.attempt(*words[:3], "--where", "length(body) > 1", environ=NO_JAVA)
    assert line.status == 1 and "courier: Spark " in line.err
    # A condition as `lake query` has it is refused before that; one about such a text is not.
    line = courier.attempt(*words[:3], "--where", "data->>'n' = '1'", environ=NO_JAVA)
    assert line.status == 2 and "data->>'total' is data:total::string" in line.err
    shown = courier(*words[:3], "--where", "body = '->>'", "--dry-run", environ=NO_JAVA)
    assert shown.out.startswith("0 messages, ")


# It takes longer to import than all that these commands have to do.
UNIMPORTED = """
import json, sys
sys.modules["pyspark"] = None
from courier.cli.main import main
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
    # The first of them, and asked the most.
    if words[1] == "status":
        assert not {"pyarrow.compute", "pyarrow.dataset", "duckdb"} & {*sys.modules}
"""
# What only looks at a lake or tidies it, as it is given.
WITHOUT_SPARK = {
    "pipeline status": ("--json",),
    "lake tables": ("--json",),
    "lake query": ("select count(*) from messages",),
    "lake views": (),
    "lake catalog": (),
    "lake compact": (),
    "lake vacuum": ("--dry-run",),
    "lake erase": ("--queue", "orders", "--dry-run"),
    "lake drop": ("--before", "400d"),
    "lake erasures": ("--json",),
    "report": ("--out", "/dev/null"),
}


def _commands(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[str, set[str]]]:
    """Every command, and its flags."""
    actions = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    below = [each.choices for each in actions]
    for name, each in below[0].items() if below else ():
        yield from _commands(each, *words, name)
    if not below:
        yield " ".join(words), {*parser._option_string_actions}


def test_commands_that_need_no_spark_do_not_import_it(orders: Orders) -> None:
    asked = {name for name, flags in _commands(main.parser()) if {"--lake"} == flags & WITH_LAKE}
    asked.remove("up")  # which runs `pipeline run`
    assert asked == {*WITHOUT_SPARK}
    replayed = ("replay", "--queue", "orders", "--where", "data:n::int < 2")
    commands = [(*name.split(), *words) for name, words in WITHOUT_SPARK.items()]
    commands += [(*replayed, "--dry-run"), (*replayed, "--into", "unimported")]
    given = [[*words, "--data", str(orders.server.data)] for words in commands]
    done = subprocess.run(
        [sys.executable, "-c", UNIMPORTED, json.dumps(given)],
        env=clean_environ(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(orders.published("unimported")) == 2


@pytest.mark.parametrize("by", ["spark", "small"])
def test_what_was_killed_is_continued_without_spark(orders: Orders, by: str) -> None:
    id, queue = f"mixed-{by}", {"spark": "elsewhere", "small": "pieces"}[by]
    plans, asked = Plans(orders.lake.root), Asked(queue="source", into=queue)
    about: dict[str, Any] = {"tenant": orders.tenant, "replay": id, "now_ms": replay.now_ms()}
    chosen = (
        replay.choose_few(orders.lake, asked, only_samples=False, **about)
        if by == "small"
        else replay.choose(orders.spark, orders.lake, asked, **about)
    )
    assert chosen is not None
    plan = replay.make(plans, id, asked, chosen)
    # A part of it is published, and then it is killed before that is noted.
    [batch] = plans.piece(plan, 0)
    with Client(orders.place) as broker:
        broker.publish(queue, batch.slice(0, 150), once=f"{plan.write_id(0)}/0", first=0)
    told: list[int] = []
    replay.publish(plans, plan, orders.place, report=told.append)
    assert told[-1] == MANY and told == sorted(told)
    bodies = [bytes(row["body"]).decode() for row in orders.published(queue)]
    assert bodies == [f"m{n}" for n in range(MANY)]


def test_a_signal_interrupts_it_with_the_command_that_continues(
    orders: Orders, courier: Command, tmp_path: Path
) -> None:
    words = ["replay", "--queue", "source", "--into", "paced", "--id", "paced", "--rate", "200/s"]
    log = tmp_path / "log"
    with log.open("wb") as said:
        command = [sys.executable, "-m", "courier", *words, "--data", str(orders.server.data)]
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            env={**clean_environ(), **NO_JAVA},
            start_new_session=True,
        )
        with process:
            wait_for(lambda: len(orders.published("paced")) > 0, log.read_text)
            # As supervisors do, which is one request: to the process and to its group.
            os.kill(process.pid, signal.SIGTERM)
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(60) == 130, log.read_text()
    assert "to continue: courier replay --id paced" in log.read_text()
    assert len(orders.published("paced")) < MANY
    courier("replay", "--id", "paced", environ=NO_JAVA)
    bodies = [bytes(row["body"]).decode() for row in orders.published("paced")]
    assert bodies == [f"m{n}" for n in range(MANY)]
