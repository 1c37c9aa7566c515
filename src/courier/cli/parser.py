"""How commands are declared, and the kinds of values their flags take."""

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

from courier import config

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DURATION = "30s, 5m, 2h or 7d; a bare number is seconds"


class Parser(argparse.ArgumentParser):
    """Takes positional arguments and flags in any order.

    As it comes, argparse gives up on an optional positional argument at the first flag:
    `publish QUEUE --json BODY` would not be understood.
    """

    _ordering = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        has_commands = any(action.nargs == argparse.PARSER for action in self._actions)
        if has_commands or self._ordering:
            return super().parse_known_args(args, namespace)
        self._ordering = True  # the next line comes back here, once for each kind
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._ordering = False


def command(
    commands: Commands, name: str, help: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """Declare a command that `run` carries out."""
    parser = commands.add_parser(name, help=help, description=_sentence(help), allow_abbrev=False)
    parser.set_defaults(run=run)
    return parser


def group(commands: Commands, name: str, help: str) -> Commands:
    """Declare a command that is made of further commands."""
    parser = commands.add_parser(name, help=help, description=_sentence(help), allow_abbrev=False)
    return parser.add_subparsers(metavar="COMMAND", required=True)


def seconds(text: str) -> int:
    """A duration in whole seconds."""
    ms = milliseconds(text)
    if ms % 1_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds")
    return ms // 1_000


def milliseconds(text: str) -> int:
    """A duration in milliseconds."""
    ms = config.amount(text + "s" if text.isdecimal() else text, "ms")
    if ms is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as {DURATION}")
    return ms


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        value = config.amount(text, "")
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return value

    return parse


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
