"""`key`: credentials and what they allow."""

import argparse
from typing import Any

from courier.cli import output
from courier.cli.client import ApiClient, segment
from courier.cli.errors import Failed
from courier.cli.parser import DURATION, Commands, milliseconds, seconds
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource

_ROUTE = "/tenants/{tenant}/keys"


def _keys(client: ApiClient) -> list[dict[str, Any]]:
    return list(client.operate("GET", f"/tenants/{segment(client.tenant)}/keys")["keys"])


def _read(made: dict[str, Any]) -> dict[str, Any]:
    """A connected app has an id and a secret in place of a token."""
    if made["key"]["kind"] != "connected_app":
        return made
    key = made["key"]
    return {"key": key, "client_id": key["id"], "client_secret": made["token"]}


def _show(made: dict[str, Any]) -> None:
    if "token" in made:
        print(made["token"])
    else:
        output.table(["name", "value"], [(n, made[n]) for n in ("client_id", "client_secret")])


def _resolve(client: ApiClient, args: argparse.Namespace) -> None:
    """The key's id in place of its name."""
    ids = [key["id"] for key in _keys(client) if args.key in (key["id"], key["name"])]
    if not ids:
        raise Failed(f"key '{args.key}' does not exist")
    args.key = ids[0]


def _described(client: ApiClient, args: argparse.Namespace) -> str:
    named = [f" ({key['name']})" for key in _keys(client) if key["id"] == args.id]
    return f"key '{args.id}'{''.join(named)}"


_VERBS = {
    "list": Verb(
        help="list the keys of a tenant", route=f"GET {_ROUTE}", member="keys",
        columns=("id", "name", "hint", "kind", "scopes", "targets", "enabled", "created")),
    "create": Verb(
        help="create a key and print its secret, this once", route=f"POST {_ROUTE}",
        takes=[
            argument("name", metavar="NAME", member="name"),
            argument("--scope", action="append", required=True, metavar="SCOPE", member="scopes",
                     help="read, write, journal, metrics, admin or one such as messages:publish; "
                     "repeatable"),
            argument("--queue", action="append", metavar="NAME", member="targets",
                     help="only for this queue; repeatable"),
            argument("--expires", type=seconds, metavar="TIME", member="expires_in_seconds",
                     help=f"expire after this time: {DURATION}"),
            argument("--connected-app", action="store_const", const="connected_app", member="kind",
                     help="a connected app of Anypoint: an id and a secret in place of a token"),
        ],
        reads=_read, show=_show),
    "rotate": Verb(
        help="give a key another secret and print it, this once",
        route=f"POST {_ROUTE}/{{key}}/rotate",
        takes=[
            argument("key", metavar="NAME", help="name or id of the key"),
            argument("--overlap", type=milliseconds, metavar="TIME", member="overlap_ms",
                     help=f"how long the old secret still works: {DURATION}; default 24h, 0 ends "
                     "it at once"),
        ],
        resolve=_resolve, show=_show),
    "delete": Verb(
        help="delete a key at once, with all its secrets", route=f"DELETE {_ROUTE}/{{id}}",
        takes=[argument("id", metavar="ID")], deletes=_described),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "key", "list, create, rotate and delete the keys of a tenant", _VERBS)
