"""What a person at a terminal sees: whole ids, help, suggestions, colours."""

import argparse
import re
import shlex

import pytest

from courier.cli.examples import EXAMPLES
from courier.cli.main import parser
from tests.cli.command import Command
from tests.cli.terminal import on_terminal
from tests.house.test_docs import COMMANDS
from tests.server import Server

STYLE = re.compile(r"\x1b\[\d+m")
BODY = "a body that is far too long for the line " * 10


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_leases_and_ids_are_never_cut(
    server: Server, courier: Command, queue: str, columns: int
) -> None:
    courier("publish", queue, BODY)
    args = ("pull", queue, "--lease", "5m", "--data", str(server.data))
    _, shown = on_terminal(*args, columns=columns)
    [row] = STYLE.sub("", shown).splitlines()[1:]
    id, _, _, lease, body = re.split(r" {2,}", row)
    assert body.startswith("a body") and body.endswith("…")
    assert len(row) <= max(columns, len(row) - len(body) + 12)
    courier("ack", queue, lease, "--retry")
    assert courier("peek", queue, "--json").json[0]["id"] == id


def test_tokens_are_never_cut(server: Server, queue_name: str) -> None:
    given = server.credentials
    _, shown = on_terminal("credentials", "--data", str(server.data), columns=40)
    for secret in (given["cloudflare"]["api_token"], given["anypoint"]["client_secret"]):
        assert secret in shown


def test_the_journal_shortens_bodies_alone(server: Server, courier: Command, queue: str) -> None:
    courier("publish", queue, BODY)
    id = courier("peek", queue, "--json").json[0]["id"]
    last = courier("journal", "--limit", "1000000", "--json").out.splitlines()[-1]
    offset = int(re.findall(r'"offset":(\d+)', last)[0])
    args = ("journal", "--after", str(offset - 1), "--data", str(server.data))
    _, shown = on_terminal(*args, columns=140)
    line = shown.splitlines()[-1]
    assert id in line and line.endswith("…") and len(line) <= 140


def test_colours_are_for_terminals_that_want_them(server: Server, courier: Command) -> None:
    args = ("tenant", "list", "--data", str(server.data))
    assert STYLE.search(on_terminal(*args)[1])
    assert not STYLE.search(on_terminal(*args, environ={"NO_COLOR": "1"})[1])
    assert not STYLE.search(on_terminal(*args, environ={"TERM": "dumb"})[1])
    assert not STYLE.search(courier("tenant", "list").out)


def test_courier_alone_is_help() -> None:
    ran = Command()()
    assert ran.out.startswith("usage: courier") and "publish" in ran.out


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["qeue", "list"], "queue"),
        (["queue", "lst"], "list"),
        (["pul", "orders"], "pull"),
        (["pull", "orders", "--cuont", "3"], "--count"),
        (["queue", "create", "orders", "--retntion=7d"], "--retention"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(args: list[str], meant: str) -> None:
    ran = Command().attempt(*args)
    assert ran.status == 2 and f"did you mean '{meant}'?" in ran.err


def test_a_mistyped_queue_gets_a_suggestion(courier: Command, queue: str) -> None:
    line = courier.fails(1, "queue", "show", queue[:-1])
    assert f"did you mean '{queue}'?" in line


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_in_the_help_and_are_understood(name: str) -> None:
    for line in EXAMPLES[name]:
        assert f"\n  {line}\n" in COMMANDS[name].format_help()
        program, *words = shlex.split(line.partition(" <")[0])
        assert program == "courier" and line.startswith(name)
        assert isinstance(parser(words[0]).parse_args(words), argparse.Namespace)
