"""`key`: credentials and what they allow."""

import argparse

from courier.cli import output
from courier.cli.asking import add_asking, is_sure
from courier.cli.client import Client, segment
from courier.cli.credentials import access, add_access
from courier.cli.errors import Refused
from courier.cli.parser import DURATION, Commands, command, group, milliseconds, seconds

_COLUMNS = ["id", "name", "hint", "kind", "scopes", "targets", "enabled", "created"]


def add(commands: Commands) -> None:
    keys = group(commands, "key", "list, create, rotate and delete the keys of a tenant")

    listing = command(keys, "list", "list the keys of a tenant", _list)
    output.add_json(listing)
    add_access(listing)

    create = command(keys, "create", "create a key and print its secret, this once", _create)
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        metavar="SCOPE",
        help="read, write, journal, metrics, admin or one such as messages:publish; repeatable",
    )
    create.add_argument(
        "--queue", action="append", metavar="NAME", help="only for this queue; repeatable"
    )
    create.add_argument(
        "--expires", type=seconds, metavar="TIME", help=f"end after this time: {DURATION}"
    )
    create.add_argument(
        "--connected-app",
        action="store_true",
        help="a connected app of Anypoint: an id and a secret in place of a token",
    )
    output.add_json(create)
    add_access(create)

    rotate = command(keys, "rotate", "give a key another secret and print it, this once", _rotate)
    rotate.add_argument("key", metavar="NAME", help="name or id of the key")
    rotate.add_argument(
        "--overlap",
        type=milliseconds,
        metavar="TIME",
        help=f"how long the old secret still works: {DURATION}; default 24h, 0 ends it at once",
    )
    output.add_json(rotate)
    add_access(rotate)

    delete = command(keys, "delete", "delete a key; it opens nothing from then on", _delete)
    delete.add_argument("id", metavar="ID")
    add_asking(delete)
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
    if args.connected_app:
        wanted["kind"] = "connected_app"
    made = client.operate("POST", _keys(client), wanted)
    secret = made.pop("token")
    shown = {"token": secret}
    if args.connected_app:
        shown = {"client_id": made["key"]["id"], "client_secret": secret}
    if args.json:
        output.print_json({**made, **shown})
    elif args.connected_app:
        output.table(["name", "value"], list(shown.items()))
    else:
        print(secret)


def _rotate(args: argparse.Namespace) -> None:
    client = Client(access(args))
    found = client.operate("GET", _keys(client))["keys"]
    ids = [key["id"] for key in found if args.key in (key["id"], key["name"])]
    if not ids:
        raise Refused(f"there is no key '{args.key}'")
    wanted = {} if args.overlap is None else {"overlap_ms": args.overlap}
    made = client.operate("POST", f"{_keys(client)}/{segment(ids[0])}/rotate", wanted)
    if args.json:
        output.print_json(made)
    else:
        print(made["token"])


def _delete(args: argparse.Namespace) -> None:
    client = Client(access(args))
    found = client.operate("GET", _keys(client))["keys"]
    named = [f"key '{args.id}' ({key['name']})" for key in found if key["id"] == args.id]
    what = named[0] if named else f"key '{args.id}'"
    if is_sure(args, args.id, what):
        client.operate("DELETE", f"{_keys(client)}/{segment(args.id)}")
        print(f"deleted {what}")
