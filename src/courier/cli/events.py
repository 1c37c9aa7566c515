"""`event`: tell the server of something that happened at a source outside of it."""

import argparse
import sys
from typing import Any

import msgspec

from courier.cli import output
from courier.cli.client import ApiClient, segment
from courier.cli.credentials import access
from courier.cli.errors import Misused
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource

PAYLOAD_BYTES_MAX = 1 << 20


def _send(args: argparse.Namespace) -> None:
    source = {"type": args.source}
    for text in args.field:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misused(f"--field takes NAME=VALUE, not {text!r}")
        if name in source:
            raise Misused(f"--field {name} is given twice, or is set by SOURCE")
        source[name] = value
    wanted: dict[str, Any] = {
        "source": source,
        "event": args.event,
        "payload": _payload(args.payload),
    }
    if args.id is not None:
        wanted["id"] = args.id
    client = ApiClient(access(args))
    told = client.operate("POST", f"/tenants/{segment(client.tenant)}/events", wanted)
    if args.json:
        output.print_json(told)
        return
    line = f"sent to {output.count(told['delivered'], 'subscription')}"
    if told["repeated"]:
        line += f"; {told['repeated']} had it already"
    if told["refused"]:
        line += f"; {told['refused']} could not take it"
    print(line)


def _payload(text: str) -> msgspec.Raw:
    """JSON as it was given, digit for digit."""
    content = text.encode(errors="surrogateescape")
    if text == "-":
        content = sys.stdin.buffer.read(PAYLOAD_BYTES_MAX + 1)
    if len(content) > PAYLOAD_BYTES_MAX:
        raise Misused(f"the payload is longer than {PAYLOAD_BYTES_MAX} bytes")
    try:
        content.decode()
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misused(f"the payload is not JSON: {error}") from error
    return msgspec.Raw(content)


_VERBS = {
    "send": Verb(
        help="send an event to the queues that subscribe to it", run=_send,
        takes=[
            argument("source", metavar="SOURCE", help="type of the source, such as r2"),
            argument("event", metavar="EVENT", help="what happened, such as bucket.created"),
            argument("--field", action="append", default=[], metavar="NAME=VALUE",
                     help="what identifies the source, such as worker_name=shop; repeatable"),
            argument("--payload", default="{}", metavar="JSON",
                     help="details, an object; - reads it from stdin"),
            argument("--id", metavar="ID",
                     help="sending again with the same id stores nothing new for a day"),
        ]),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "event", "send events to the queues that subscribe to them", _VERBS)
