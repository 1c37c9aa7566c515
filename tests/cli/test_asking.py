"""Nothing is deleted without a question, where somebody can be asked."""

import argparse
from collections.abc import Iterator

import pytest

from courier.cli.main import parser
from tests.cli.command import Command
from tests.cli.terminal import on_terminal
from tests.server import Server

QUESTION = "Type the name to go on: "
DESTRUCTIVE = ("delete", "purge")


def commands(given: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in given._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield name, child
                yield from commands(child)


def test_every_command_that_deletes_can_be_asked_first() -> None:
    found = [child for name, child in commands(parser()) if name in DESTRUCTIVE]
    assert len(found) >= 4
    for child in found:
        assert {"--yes", "--dry-run"} <= set(child._option_string_actions), child.prog


@pytest.fixture
def full(courier: Command, queue: str) -> str:
    """A queue of three messages."""
    courier("publish", queue, "--lines", stdin=b"x\n" * 3)
    return queue


def held(courier: Command, queue: str) -> int | None:
    """Messages of the queue; None: it is gone."""
    ran = courier.attempt("queue", "show", queue, "--json")
    return ran.json["metrics"]["backlog_count"] if ran.status == 0 else None


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_a_dry_run_says_how_many_and_deletes_nothing(
    courier: Command, full: str, verb: str
) -> None:
    out = courier("queue", verb, full, "--dry-run").out
    assert out.startswith("would delete ") and "3 messages" in out and full in out
    assert held(courier, full) == 3


@pytest.mark.parametrize(("verb", "left"), [("purge", 0), ("delete", None)])
def test_a_script_is_not_asked(courier: Command, full: str, verb: str, left: int | None) -> None:
    assert "3 messages" in courier("queue", verb, full).out
    assert held(courier, full) == left


@pytest.mark.parametrize("verb", ["purge", "delete"])
@pytest.mark.parametrize("answer", ["", "y", "yes", "another"])
def test_another_answer_than_the_name_deletes_nothing(
    server: Server, courier: Command, full: str, verb: str, answer: str
) -> None:
    args = ("queue", verb, full, "--data", str(server.data))
    status, shown = on_terminal(*args, typed=[(QUESTION, answer)])
    assert status == 2 and "nothing was deleted" in shown and "3 messages" in shown
    assert held(courier, full) == 3


@pytest.mark.parametrize(("verb", "left"), [("purge", 0), ("delete", None)])
@pytest.mark.parametrize("sure", ["typed", "--yes"])
def test_the_name_or_yes_deletes(
    server: Server, courier: Command, full: str, verb: str, left: int | None, sure: str
) -> None:
    args = ["queue", verb, full, "--data", str(server.data)]
    if sure == "--yes":
        status, shown = on_terminal(*args, "--yes")
        assert QUESTION not in shown
    else:
        status, shown = on_terminal(*args, typed=[(QUESTION, full)])
    assert status == 0, shown
    assert held(courier, full) == left


def test_deleting_a_tenant_and_a_key_asks_too(
    server: Server, courier: Command, queue_name: str
) -> None:
    courier("tenant", "create", queue_name)
    place = ("--data", str(server.data))
    status, shown = on_terminal("tenant", "delete", queue_name, *place, typed=[(QUESTION, "no")])
    assert status == 2 and "all its queues" in shown
    key = courier("key", "create", "k", "--scope", "read", "--tenant", queue_name, "--json").json
    id = key["key"]["id"]
    of = ("--tenant", queue_name)
    status, shown = on_terminal("key", "delete", id, *of, *place, typed=[(QUESTION, "k")])
    assert status == 2 and f"key '{id}' (k)" in shown
    assert "would delete" in courier("tenant", "delete", queue_name, "--dry-run").out
    courier("tenant", "delete", queue_name, "--yes")
    assert queue_name not in [row[0] for row in courier("tenant", "list").rows]


def test_a_plan_asks_for_the_number_of_messages(
    server: Server, courier: Command, queue: str
) -> None:
    courier("publish", queue, "--lines", stdin=b"x\n" * 120)
    later = courier("queue", "purge", queue, "--dry-run").out.splitlines()[-1]
    run = (*later.split()[-3:], "--data", str(server.data))
    question = "Type 120 to go on: "
    status, shown = on_terminal(*run, typed=[(question, "119")])
    assert status == 2 and "nothing was done" in shown
    assert held(courier, queue) == 120
    status, shown = on_terminal(*run, typed=[(question, "120")])
    assert status == 0, shown
    assert held(courier, queue) == 0
