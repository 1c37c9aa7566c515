"""`queue list` and `top`: what every queue holds, and what needs a look."""

import argparse
import shutil
import sys
from typing import Any

from courier import words
from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.parser import Commands
from courier.cli.resources import Argument, Verb, argument, declare
from courier.cli.watching import EVERY_MS, watched

SORTS = ("name", "look", "waiting", "leased", "delayed", "oldest", "in", "out")
PAGE = 1_000
# What `top` says in sentences, and what it leaves room for below its table.
LOOKS_MAX = 5
_SHOWN = ("id", "name", "waiting", "leased", "delayed", "oldest_age_ms", "in_rate", "out_rate",
          "dead_letters", "state", "paused", "frozen")  # fmt: skip
_COLUMNS = ["name", "waiting", "leased", "delayed", "oldest", "in/s", "out/s", "dead", "state"]


def _list(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))

    def show() -> None:
        found = rows(client, args.sort)
        if args.json:
            output.print_json(found)
        else:
            _table(found)

    watched(args.watch, show)


def rows(client: ApiClient, sort: str) -> list[dict[str, Any]]:
    """Every queue of the tenant."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        page = client.page("", {"sort": sort, "after": str(after), "rows": str(PAGE)}, has="rows")
        found += [{name: row[name] for name in _SHOWN} for row in _queues(page)]
        after += len(page["rows"])
        if not page["rows"] or after >= page["matching"]:
            return found


def _queues(page: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in page["rows"] if row["kind"] == "queue"]


def _table(found: list[dict[str, Any]], lines_max: int = sys.maxsize) -> None:
    output.table(_COLUMNS, [_cells(row) for row in found], lines_max=lines_max)


def _cells(row: dict[str, Any]) -> list[object]:
    oldest_ms = row["oldest_age_ms"]
    return [
        row["name"],
        row["waiting"],
        row["leased"],
        row["delayed"],
        output.Figure(output.brief(words.duration(oldest_ms)) if oldest_ms else ""),
        output.Figure(words.rate(row["in_rate"])),
        output.Figure(words.rate(row["out_rate"])),
        row["dead_letters"],
        row["state"],
    ]


def _top(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    screen = sys.stdout.isatty()
    every_ms = EVERY_MS if args.watch is None and screen and not args.json else args.watch

    def show() -> None:
        page = client.page("", {"sort": args.sort, "rows": str(PAGE)}, has="rows")
        if args.json:
            output.print_json(page)
            return
        lines = 2
        held = output.count(page["messages"], "message")
        print(f"{output.count(page['total'], 'queue')}, {held}; tenant {page['tenant']}")
        for look in page["looks"][:LOOKS_MAX]:
            said = output.sentence(f"! {output.cell(look['name'] or 'server')}: ", look["sentence"])
            print(*said, sep="\n")
            lines += len(said)
        print()
        room = shutil.get_terminal_size().lines - lines - 2 if screen else sys.maxsize
        _table(_queues(page), room)

    watched(every_ms, show)


def _sort(default: str) -> Argument:
    return argument("--sort", choices=SORTS, default=default, metavar="COLUMN",
                    help=f"sort by {', '.join(SORTS)}; default {default}")  # fmt: skip


LIST = Verb(help="list the queues of a tenant and what they hold", run=_list, watch=True,
            takes=[_sort("name")])  # fmt: skip
TOP = Verb(help="watch the queues, those with problems first", run=_top, watch=True,
           takes=[_sort("look")])  # fmt: skip


def add(commands: Commands) -> None:
    declare(commands, {"top": TOP})
