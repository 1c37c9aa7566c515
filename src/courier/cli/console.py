"""`console`: a link that signs in to the console, once."""

import argparse
import webbrowser

from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument, declare


def _console(args: argparse.Namespace) -> None:
    link: str = ApiClient(access(args)).console_link()
    print(link, flush=True)
    if not args.print:
        webbrowser.open(link)


_CONSOLE = Verb(help="open the console in a browser", run=_console, json=False, takes=[
    argument("--print", action="store_true", help="only print the link"),
])  # fmt: skip


def add(commands: Commands) -> None:
    declare(commands, {"console": _CONSOLE})
