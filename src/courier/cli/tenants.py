"""`tenant`: owners of queues and keys."""

import argparse

from courier.cli import credentials, output
from courier.cli.asking import add_asking, is_sure
from courier.cli.client import Client, segment
from courier.cli.credentials import access, add_access
from courier.cli.parser import Commands, command, group


def add(commands: Commands) -> None:
    tenants = group(commands, "tenant", "list, create and delete tenants")

    listing = command(tenants, "list", "list all tenants", _list)
    output.add_json(listing)
    add_access(listing)

    create = command(tenants, "create", "create a tenant and print its credentials", _create)
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--organization-of",
        metavar="TENANT",
        help="make it an environment of this tenant's Anypoint organization",
    )
    output.add_json(create)
    add_access(create)

    delete = command(tenants, "delete", "delete a tenant with all its queues and keys", _delete)
    delete.add_argument("name", metavar="NAME")
    add_asking(delete)
    add_access(delete)


def _list(args: argparse.Namespace) -> None:
    found = Client(access(args)).operate("GET", "/tenants")["tenants"]
    if args.json:
        output.print_json(found)
    else:
        rows = [[one["name"], one["id"], output.moment(one["created_ms"])] for one in found]
        output.table(["name", "id", "created"], rows)


def _create(args: argparse.Namespace) -> None:
    wanted = {"name": args.name}
    if args.organization_of is not None:
        wanted["beside"] = args.organization_of
    made = Client(access(args)).operate("POST", "/tenants", wanted)
    if args.json:
        output.print_json(made)
    else:
        credentials.show(made["credentials"])


def _delete(args: argparse.Namespace) -> None:
    client = Client(access(args))
    path = f"/tenants/{segment(args.name)}"
    keys = output.count(len(client.operate("GET", f"{path}/keys")["keys"]), "key")
    if is_sure(args, args.name, f"tenant '{args.name}' with {keys} and all its queues"):
        client.operate("DELETE", path)
        print(f"deleted tenant '{args.name}' with {keys} and all its queues")
