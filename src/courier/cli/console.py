"""`console`: a link that signs in to the console, once."""

import argparse
import webbrowser

from courier.cli.client import ApiClient
from courier.cli.credentials import access, add_access
from courier.cli.parser import Commands, command


def add(commands: Commands) -> None:
    console = command(commands, "console", "open the console in a browser", _console)
    console.add_argument("--print", action="store_true", help="only print the link")
    add_access(console)


def _console(args: argparse.Namespace) -> None:
    link: str = ApiClient(access(args)).console_link()
    print(link, flush=True)
    if not args.print:
        webbrowser.open(link)
