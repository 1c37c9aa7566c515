"""`worker`: where the scripts of worker consumers run."""

import argparse
from pathlib import Path

from courier.cli import output
from courier.cli.client import Client, segment
from courier.cli.credentials import access, add_access
from courier.cli.errors import Misused
from courier.cli.parser import Commands, command, group

_COLUMNS = ["name", "url", "source", "created"]


def add(commands: Commands) -> None:
    workers = group(commands, "worker", "say where the scripts of worker consumers run")

    create = command(
        workers, "add", "say where a script runs, and print what its calls are signed with", _add
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("worker_url", metavar="URL")
    create.add_argument(
        "--secret",
        metavar="SECRET",
        help="sign with this one, whsec_..., or @FILE to read it from a file",
    )
    output.add_json(create)
    add_access(create)

    listing = command(workers, "list", "list the workers of a tenant", _list)
    output.add_json(listing)
    add_access(listing)

    secret = command(workers, "secret", "print what the calls to a worker are signed with", _secret)
    secret.add_argument("name", metavar="NAME")
    add_access(secret)

    remove = command(workers, "remove", "forget where a script runs", _remove)
    remove.add_argument("name", metavar="NAME")
    add_access(remove)


def _workers(client: Client) -> str:
    return f"/tenants/{segment(client.tenant)}/workers"


def _add(args: argparse.Namespace) -> None:
    client = Client(access(args))
    wanted = {"url": args.worker_url}
    if args.secret is not None:
        wanted["secret"] = _given(args.secret)
    made = client.operate("PUT", f"{_workers(client)}/{segment(args.name)}", wanted)
    if args.json:
        output.print_json(made)
    else:
        print(made["secret"])


def _given(secret: str) -> str:
    if not secret.startswith("@"):
        return secret
    try:
        return Path(secret[1:]).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise Misused(f"cannot read the secret from {secret[1:]}: {error}") from error


def _list(args: argparse.Namespace) -> None:
    client = Client(access(args))
    found = client.operate("GET", _workers(client))["workers"]
    if args.json:
        output.print_json(found)
        return
    for one in found:
        one["created"] = output.moment(one["created_ms"])
    output.table(_COLUMNS, [[one[column] for column in _COLUMNS] for one in found])


def _secret(args: argparse.Namespace) -> None:
    client = Client(access(args))
    print(client.operate("GET", f"{_workers(client)}/{segment(args.name)}/secret")["secret"])


def _remove(args: argparse.Namespace) -> None:
    client = Client(access(args))
    client.operate("DELETE", f"{_workers(client)}/{segment(args.name)}")
    print(f"removed worker '{args.name}'")
