"""`message`: the life of one message, and why it is late."""

import argparse
import sys
from typing import Any
from urllib.parse import urlsplit

from courier import words
from courier.cli import output
from courier.cli.client import ApiClient, segment
from courier.cli.credentials import access
from courier.cli.errors import Failed
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource
from courier.cli.watching import watched

_COLUMNS = ["time", "after", "event", "queue", "detail"]


def _show(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    path, query = _place(client, args.id, args.queue)

    def show() -> None:
        facts = client.page(path, query, has="life")
        if args.json:
            output.print_json(facts)
        else:
            _print(facts)

    watched(args.watch, show)


def _place(client: ApiClient, id: str, queue: str | None) -> tuple[str, dict[str, str]]:
    """The page of the message. Raises Failed if there is none, or several."""
    if queue is not None:
        return f"/messages/{segment(id)}", {"queue": client.queue(queue)["queue_id"]}
    hits = [
        path
        for _, path in client.page("/find", {"q": id}, has="hits")["hits"]
        if "/messages/" in path
    ]
    if not hits:
        raise Failed(
            f"message '{id}' is on no queue and not in the journal; a finished message is found "
            "by its generated id, as long as the journal has it, and then in the lake"
        )
    if len(hits) > 1:
        raise Failed(f"{len(hits)} queues have a message '{id}': name one with --queue")
    found = urlsplit(hits[0])
    return found.path.removeprefix("/console"), dict([found.query.split("=", 1)])


def _print(facts: dict[str, Any]) -> None:
    life = facts["life"]
    said = facts["why"] or facts["took"] or _last(life)
    print(f"message    {output.cell(facts['id'])}")
    print(f"queue      {output.cell(facts['queue_name'])}")
    print(f"published  {output.cell(output.dated(facts['published_ms']))}")
    if facts["found"]:
        print(f"expires    {output.cell(output.dated(facts['expires_ms']))}")
        print(f"attempts   {facts['attempts']}")
    if facts["body"]:
        text = " ".join(facts["body"]["text"].split())
        output.print_text("body       ", output.cell(text))
    print(f"\n{said}\n")
    rows = [
        [
            output.age(step["at_ms"]),
            output.Figure(words.duration(step["wait_ms"])) if step["wait_ms"] else "",
            step["kind"],
            step["queue_name"],
            detail(step),
        ]
        for step in life["steps"]
    ]
    output.table(_COLUMNS, rows)
    if not life["whole"]:
        print(f"The journal was looked through up to offset {life['upto']}.", file=sys.stderr)
    if life["hidden"]:
        hidden = output.count(life["hidden"], "event")
        print(f"{hidden} on queues that the key does not reach.", file=sys.stderr)


def _last(life: dict[str, Any]) -> str:
    if not (life["whole"] and life["steps"]):
        return "Its end is beyond what was looked at."
    step = life["steps"][-1]
    return f"Its last event is {step['kind']} on queue '{step['queue_name']}'."


def detail(step: dict[str, Any]) -> str:
    """The rest of an event in a few words."""
    who = step["actor_name"] or step["actor"]
    named = {
        "attempt": step["attempt"],
        "to listener": step["listener"],
        "status": step["status"],
        "into": step["into"],
        "": step["reason"] or step["error"],
        "answer": step["answer"],
        "for": words.duration(step["lease_ms"]) if step["lease_ms"] else "",
        "delayed" if step["kind"] == "published" else "next after": (
            words.duration(step["delay_ms"]) if step["delay_ms"] else ""
        ),
        "by": who,
        "via": step["dialect"],
    }
    return ", ".join(f"{name} {value}".strip() for name, value in named.items() if value)


_VERBS = {
    "show": Verb(
        help="show the life of a message, and why it is late", run=_show, watch=True,
        takes=[
            argument("id", metavar="ID", help="the message's id, generated or the publisher's own"),
            argument("--queue", metavar="NAME", help="the queue it is on, if several have its id"),
        ]),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "message", "show the life of a message", _VERBS)
