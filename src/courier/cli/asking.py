"""Before anything is deleted: what it would be, and a question on a terminal."""

import argparse
import sys

from courier.cli.errors import Misused


def add_asking(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that deletes something."""
    asking = parser.add_mutually_exclusive_group()
    asking.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    asking.add_argument(
        "--dry-run", action="store_true", help="say what would be deleted, and delete nothing"
    )


def is_sure(args: argparse.Namespace, name: str, what: str, *, asks: str = "") -> bool:
    """Whether to go on with deleting `what`. On a terminal its name has to be typed.

    Raises Misused when something else is. Without a terminal nobody can be asked. `asks` is what
    is said before the question, if nothing is deleted.
    """
    if args.dry_run:
        print(f"would delete {what}")
        return False
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    asked = f"Type {name} to go on: " if asks else "Type the name to go on: "
    print(f"{asks or f'This deletes {what}.'}\n{asked}", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().replace(",", "") != name.replace(",", ""):
        done = "nothing was done" if asks else "nothing was deleted"
        raise Misused(f"that is not {'it' if asks else 'the name'}: {done}")
    return True
