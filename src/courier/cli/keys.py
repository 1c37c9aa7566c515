"""`key`: credentials and what they allow."""

import argparse

from courier.cli import output
from courier.cli.client import Client, segment
from courier.cli.credentials import access, add_access
from courier.cli.parser import DURATION, Commands, command, group, seconds

_COLUMNS = ["id", "name", "hint", "scopes", "targets", "enabled", "created"]


def add(commands: Commands) -> None:
    keys = group(commands, "key", "list, create and delete the keys of a tenant")

    listing = command(keys, "list", "list the keys of a tenant", _list)
    output.add_json(listing)
    add_access(listing)

    create = command(keys, "create", "create a key and print its token, this once", _create)
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        metavar="SCOPE",
        help="read, write, journal, admin or one scope such as messages:publish; repeatable",
    )
    create.add_argument(
        "--queue", action="append", metavar="NAME", help="only for this queue; repeatable"
    )
    create.add_argument(
        "--expires", type=seconds, metavar="TIME", help=f"end after this time: {DURATION}"
    )
    output.add_json(create)
    add_access(create)

    delete = command(keys, "delete", "delete a key; it opens nothing from then on", _delete)
    delete.add_argument("id", metavar="ID")
    add_access(delete)


def _keys(client: Client) -> str:
    return f"/tenants/{segment(client.tenant)}/keys"


def _list(args: argparse.Namespace) -> None:
    client = Client(access(args))
    found = client.operate("GET", _keys(client))["keys"]
    if args.json:
        output.print_json(found)
        return
    for one in found:
        one["created"] = output.moment(one["created_ms"])
    output.table(_COLUMNS, [[one.get(column) for column in _COLUMNS] for one in found])


def _create(args: argparse.Namespace) -> None:
    client = Client(access(args))
    wanted = {"name": args.name, "scopes": args.scope}
    if args.queue:
        wanted["targets"] = args.queue
    if args.expires is not None:
        wanted["expires_in_seconds"] = args.expires
    made = client.operate("POST", _keys(client), wanted)
    if args.json:
        output.print_json(made)
    else:
        print(made["token"])


def _delete(args: argparse.Namespace) -> None:
    client = Client(access(args))
    client.operate("DELETE", f"{_keys(client)}/{segment(args.id)}")
    print(f"deleted key '{args.id}'")
