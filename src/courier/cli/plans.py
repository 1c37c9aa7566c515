"""`plan`: what is or was done to many messages through the console, and its undo."""

import argparse
import time
from typing import Any

from courier.cli import output
from courier.cli.asking import is_sure
from courier.cli.client import ApiClient, segment
from courier.cli.credentials import access
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource

WAIT_SECONDS_MAX = 600.0
_POLL_SECONDS = 0.1
_BUSY = ("choosing", "running")


def _run(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    facts = client.console("GET", f"/plans/{segment(args.id)}")
    title = facts["title"]
    if args.dry_run:
        print(f"would do: {title}")
    elif is_sure(args, facts["confirm"] or "yes", title, asks=f"This is: {title}."):
        _print(run(client, facts))


def _undo(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    made = client.console("POST", f"/plans/{segment(args.id)}/undo", {})["path"]
    facts = waited(client, made)
    if args.json:
        output.print_json(facts)
    else:
        _print(facts)


def make(client: ApiClient, wanted: dict[str, str]) -> dict[str, Any]:
    """A new plan, once its messages are chosen."""
    return waited(client, client.console("POST", "/plans", wanted)["path"])


def run(client: ApiClient, facts: dict[str, Any]) -> dict[str, Any]:
    """Do it, with a progress bar on a terminal."""
    path = f"/plans/{segment(facts['plan']['id'])}/run"
    made = client.console("POST", path, {"confirm": facts["confirm"]})["path"]
    progress = output.ProgressBar("messages", total=facts["plan"]["count"])
    done = waited(client, made, progress)
    progress.end()
    return done


def waited(
    client: ApiClient, path: str, progress: output.ProgressBar | None = None
) -> dict[str, Any]:
    """The facts of a plan that is over, or that takes longer than anybody waits."""
    path = path.removeprefix("/console")
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        facts: dict[str, Any] = client.console("GET", path)
        if facts["state"] not in _BUSY or time.monotonic() > deadline:
            return facts
        if progress is not None:
            progress.at(facts["done"])
        time.sleep(_POLL_SECONDS)


def _print(facts: dict[str, Any]) -> None:
    print(facts["title"])
    if facts["plan"]["problem"]:
        print(f"it stopped: {facts['plan']['problem']}")
    print(f"{facts['state']}: {done_words(facts)}, {facts['left']} to do")
    print_undo(facts)


def done_words(facts: dict[str, Any]) -> str:
    left = f", {facts['skipped']} left alone" if facts["skipped"] else ""
    return f"{facts['done']} done{left}"


def print_undo(facts: dict[str, Any]) -> None:
    if facts["undo"]:
        print(f"undo it with: courier plan undo {facts['plan']['id']}")


_ID = argument("id", metavar="ID")
_VERBS = {
    "list": Verb(help="list the plans of the last 30 days", route="GET /console/plans",
                 member="rows", columns=("id", "title", "state", "made")),
    "show": Verb(help="show what a plan would do or did", route="GET /console/plans/{id}",
                 takes=[_ID], show=_print),
    "run": Verb(help="run a plan, or continue an interrupted one", run=_run, takes=[_ID], asks=True,
                json=False),
    "undo": Verb(help="restore what a plan deleted, or take back what it sent", run=_undo,
                 takes=[_ID]),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "plan", "list, run and undo plans: changes of many messages", _VERBS)
