"""Who a command speaks as: credentials files, the flags that override them, `credentials`."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from courier import config
from courier.cli import output
from courier.cli.errors import Misused
from courier.cli.parser import Commands, command

_API = "/client/v4"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class Access(msgspec.Struct, frozen=True):
    """Where the server is and what to show it. Tokens are empty when there is none."""

    url: str
    tenant: str
    account: str
    token: str
    admin_token: str


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "credentials",
        "show a tenant's addresses, ids and tokens for each API",
        _credentials,
    )
    _add_place(parser)
    form = parser.add_mutually_exclusive_group()
    output.add_json(form)
    form.add_argument("--env", action="store_true", help="print lines for a shell's eval")


def add_access(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that talks to a server."""
    group = parser.add_argument_group("server")
    _add_place(group)
    group.add_argument("--url", help="address of the server, in place of the one in the file")
    group.add_argument("--token", help="token to use, or @FILE to read it from a file")
    group.add_argument("--account", help="account id to use")


def _add_place(group: argparse._ActionsContainer) -> None:
    group.add_argument("--data", metavar="DIR", help="where the credentials file is")
    group.add_argument("--tenant", metavar="NAME", help="act for this tenant")


def access(args: argparse.Namespace) -> Access:
    """Flags win over the tenant's file; the operator's token is in the first tenant's file.

    Raises Misused when neither names a server and a token.
    """
    data = _data(args)
    first = read(data, None) or {}
    own = (read(data, args.tenant) or {}) if args.tenant else first
    api: dict[str, str] = own.get("cloudflare", {})
    admin: dict[str, str] = own.get("admin") or first.get("admin") or {}
    token = _token(args.token) if args.token else ""
    url = args.url or api.get("base_url") or first.get("cloudflare", {}).get("base_url", "")
    if not url or not (token or api or admin):
        raise Misused(
            f"there are no credentials in {_file(data, args.tenant if first else None)}: "
            "start a server with `courier serve`, or give --data, or --url and --token; if servers "
            "share a database, the file is where `courier init` was run"
        )
    return Access(
        url=url.rstrip("/").removesuffix(_API),
        tenant=args.tenant or own.get("tenant", "default"),
        # A token from the command line may belong to another account than the file's.
        account=args.account or ("" if token else api.get("account_id", "")),
        token=token or api.get("api_token", ""),
        admin_token=token or admin.get("token", ""),
    )


def read(data: Path, tenant: str | None) -> dict[str, Any] | None:
    """The credentials of a tenant, or None when there is no such file."""
    file = _file(data, tenant)
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Misused(f"cannot read {file}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Misused(f"{file} is not a credentials file: {error}") from error


def show(credentials: dict[str, Any]) -> None:
    """Print one line for each value, named by its place in the file."""
    output.table(["name", "value"], list(_values(credentials)))


def _values(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _credentials(args: argparse.Namespace) -> None:
    data = _data(args)
    credentials = read(data, args.tenant)
    if credentials is None:
        raise Misused(
            f"there is no {_file(data, args.tenant)}: `courier serve` writes it at its first "
            "start, `courier tenant create` for another tenant"
        )
    if args.json:
        output.print_json(credentials)
    elif args.env:
        print("\n".join(_exports(credentials)))
    else:
        show(credentials)


def _exports(credentials: dict[str, Any]) -> Iterator[str]:
    """Variables named by the place in the file, one that wrangler reads, and the operator's."""
    for name, value in _values(credentials):
        yield f"export {name.upper().replace('.', '_')}={shlex.quote(str(value))}"
        if name == "cloudflare.base_url":
            yield f"export CLOUDFLARE_API_BASE_URL={shlex.quote(str(value))}"
        if name == "anypoint.base_url" and "admin" in credentials:
            yield f"export ADMIN_BASE_URL={shlex.quote(str(value))}"


def _data(args: argparse.Namespace) -> Path:
    return config.load({"data": args.data}).data


def _file(data: Path, tenant: str | None) -> Path:
    if tenant is None or tenant == "default":
        return data / "credentials.json"
    if not _TENANT.fullmatch(tenant):
        raise Misused(f"{tenant!r} is not a tenant's name")
    return data / f"credentials.{quote(tenant, safe='')}.json"


def read_secret(text: str, what: str = "secret") -> str:
    """What was given itself, or what is in the file @FILE."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Misused(f"cannot read the {what} from {text[1:]}: {why}") from error


def _token(given: str) -> str:
    text = read_secret(given, "token")
    if not text.isascii() or not text.isprintable():
        raise Misused("the token contains invalid characters")
    return text
