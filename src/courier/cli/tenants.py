"""`tenant`: owners of queues and keys."""

import argparse

from courier.cli import credentials, output
from courier.cli.client import ApiClient, segment
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource


def _owned(client: ApiClient, args: argparse.Namespace) -> str:
    found = client.operate("GET", f"/tenants/{segment(args.name)}/keys")["keys"]
    return f"tenant '{args.name}' with {output.count(len(found), 'key')} and all its queues"


_VERBS = {
    "list": Verb(
        help="list all tenants", route="GET /tenants", member="tenants",
        columns=("name", "id", "created")),
    "create": Verb(
        help="create a tenant and print its credentials", route="POST /tenants",
        takes=[
            argument("name", metavar="NAME", member="name"),
            argument("--organization-of", metavar="TENANT", member="beside",
                     help="make it an environment of this tenant's Anypoint organization"),
        ],
        show=lambda made: credentials.show(made["credentials"])),
    "delete": Verb(
        help="delete a tenant with all its queues and keys", route="DELETE /tenants/{name}",
        takes=[argument("name", metavar="NAME")], deletes=_owned),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "tenant", "list, create and delete tenants", _VERBS)
