"""`journal`: what happened, event by event."""

import argparse
import sys
import time
from typing import Any

import msgspec

from courier.cli import output
from courier.cli.client import Client
from courier.cli.credentials import access, add_access
from courier.cli.errors import Refused
from courier.cli.parser import Commands, command, whole

PAGE_MAX = 1_000
LIMIT_DEFAULT = 100
_POLL_SECONDS = 0.5
_LINE = "{:>9}  {:<24}  {:<16}  {:<20}  {:<32}  {:>7}  "
_HEADER = _LINE.format("OFFSET", "TIME", "EVENT", "QUEUE", "MESSAGE", "ATTEMPT") + "BODY"


def add(commands: Commands) -> None:
    journal = command(commands, "journal", "print events, oldest first", _journal)
    journal.add_argument(
        "--after",
        type=whole(0, 2**62),
        metavar="N",
        help="begin after this offset; default: with the first event kept",
    )
    journal.add_argument(
        "--limit",
        type=whole(1, 2**63 - 1),
        metavar="N",
        help=f"stop after N events; default {LIMIT_DEFAULT}, without end with --follow",
    )
    journal.add_argument("--follow", action="store_true", help="wait for events still to come")
    journal.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    add_access(journal)


def _journal(args: argparse.Namespace) -> None:
    client = Client(access(args))
    # A tenant's own token shows nothing else anyway; the operator's shows everyone's events.
    tenant = _tenant_id(client, args.tenant) if args.tenant and not args.token else None
    left = args.limit or (sys.maxsize if args.follow else LIMIT_DEFAULT)
    head = client.journal_head()
    after = head["first"] - 1 if args.after is None else args.after
    if not args.json:
        print(output.styled(_HEADER, output.BOLD, sys.stdout))
    while True:
        lines, after = client.journal(after=after, limit=PAGE_MAX)
        for line in lines:
            event = msgspec.json.decode(line)
            if tenant in (None, event["tenant"]):
                _print_event(line, event, as_json=args.json)
                left -= 1
            if left == 0:
                return
        sys.stdout.flush()
        # Pages leave out what the token may not see, so an empty one need not be the end.
        if after >= head["last"]:
            if not args.follow:
                return
            time.sleep(_POLL_SECONDS)
            head = client.journal_head()


def _tenant_id(client: Client, name: str) -> str:
    for tenant in client.operate("GET", "/tenants")["tenants"]:
        if tenant["name"] == name:
            found: str = tenant["id"]
            return found
    raise Refused(f"tenant '{name}' does not exist")


def _print_event(line: bytes, event: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(line.decode().rstrip("\n"))
        return
    shown = [
        event["offset"],
        output.moment(event["at_ms"]),
        event["kind"],
        event.get("queue_name"),
        event.get("message_id"),
        event.get("attempt"),
    ]
    body = output.cell(event.get("body", event.get("body_base64")))
    output.print_text(_LINE.format(*map(output.cell, shown)), body)
