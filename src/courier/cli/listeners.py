"""`listener`: where a queue's messages are pushed to, and whether they arrive."""

import argparse
from datetime import UTC, datetime
from typing import Any

from courier.cli import output
from courier.cli.client import Client, segment
from courier.cli.credentials import access, add_access
from courier.cli.parser import DURATION, Commands, command, group, milliseconds

_COLUMNS = ["name", "url", "enabled", "liveness", "open", "missed", "acknowledged", "created"]


def add(commands: Commands) -> None:
    listeners = group(commands, "listener", "look at listeners, and give them the past")

    listing = command(listeners, "list", "list the listeners of a queue", _list)
    listing.add_argument("queue", metavar="QUEUE")
    output.add_json(listing)
    add_access(listing)

    for word, help in (
        ("enable", "let the pushes to a listener go on"),
        ("disable", "let the pushes to a listener wait"),
    ):
        switch = command(listeners, word, help, _switch)
        switch.set_defaults(enabled=word == "enable")
        _add_listener(switch)

    backfill = command(
        listeners, "backfill", "also push to a listener what its queue still holds", _backfill
    )
    _add_listener(backfill)
    backfill.add_argument(
        "--since",
        type=_moment,
        metavar="TIME",
        help=f"only what was published since, as 2026-01-31T12:00:00Z or so long ago: {DURATION}",
    )
    backfill.add_argument(
        "--until",
        type=_date,
        metavar="TIME",
        help="only what was published before, as 2026-01-31T12:00:00Z",
    )


def _add_listener(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("listener", metavar="LISTENER")
    add_access(parser)


def _date(text: str) -> int:
    """A point in time, in ms."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-01-31T12:00:00Z"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1_000))


def _moment(text: str) -> dict[str, int]:
    """A point in time, or a duration before now, as the server wants to be told."""
    try:
        return {"since_ms": _date(text)}
    except argparse.ArgumentTypeError:
        return {"since_ago_ms": milliseconds(text)}


def _path(client: Client, args: argparse.Namespace) -> str:
    return f"/tenants/{segment(client.tenant)}/queues/{segment(args.queue)}/listeners"


def _list(args: argparse.Namespace) -> None:
    client = Client(access(args))
    found = client.operate("GET", _path(client, args))["listeners"]
    if args.json:
        output.print_json(found)
        return
    for one in found:
        one["created"] = output.moment(one["created_ms"])
    output.table(_COLUMNS, [[one.get(column) for column in _COLUMNS] for one in found])


def _switch(args: argparse.Namespace) -> None:
    client = Client(access(args))
    path = f"{_path(client, args)}/{segment(args.listener)}/enabled"
    client.operate("PUT", path, {"enabled": args.enabled})
    print(f"listener '{args.listener}' is {'enabled' if args.enabled else 'disabled'}")


def _backfill(args: argparse.Namespace) -> None:
    client = Client(access(args))
    path = f"{_path(client, args)}/{segment(args.listener)}/backfill"
    wanted: dict[str, Any] = dict(args.since or {})
    if args.until is not None:
        wanted["until_ms"] = args.until
    progress = output.Progress("messages")
    bound = 0
    while True:
        done = client.operate("POST", path, wanted)
        bound += done["bound"]
        progress.at(bound)
        if done["next"] is None:
            break
        wanted["after"] = done["next"]
    progress.end()
    print(f"{output.count(bound, 'message')} will be pushed to '{args.listener}'")
