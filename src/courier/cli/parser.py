"""How commands are declared, and the kinds of values their flags take."""

import argparse
import difflib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from courier import config
from courier.cli import examples
from courier.clock import SystemClock

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# How alike two words are, from 0 to 1, for one to be suggested in place of the other.
ALIKE_MIN = 0.75
DURATION = "30s, 5m, 2h or 7d; a bare number is seconds"


class _Help(argparse.HelpFormatter):
    """Examples stay as they are written, so that they can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return text
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Takes positional arguments and flags in any order.

    As it comes, argparse gives up on an optional positional argument at the first flag:
    `publish QUEUE --delay 5m BODY` would not be understood.
    """

    _ordering = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        has_commands = any(action.nargs == argparse.PARSER for action in self._actions)
        if has_commands or self._ordering:
            return super().parse_known_args(args, namespace)
        self._ordering = True  # the next line comes back here, once for each kind
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._ordering = False
        for flag in [word for word in unknown if word.startswith("-")]:
            options = [option for option in self._option_string_actions if option != flag]
            self.error(f"unknown option '{flag}'{meant(flag.partition('=')[0], options)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.nargs == argparse.PARSER and value not in (action.choices or ()):
            close = meant(str(value), action.choices or ())
            self.error(f"unknown command '{value}'{close or f'; see {self.prog} --help'}")
        super()._check_value(action, value)


def meant(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: which of the known words may have been meant."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=ALIKE_MIN)
    return f"; did you mean '{close[0]}'?" if close else ""


def command(
    commands: Commands, name: str, help: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """Declare a command that `run` carries out."""
    parser = commands.add_parser(name, help=help, description=_sentence(help), allow_abbrev=False)
    parser.formatter_class = _Help
    parser.epilog = examples.shown(parser.prog)
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


def date(text: str) -> int:
    """A point in time, in ms."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-01-31T12:00:00Z"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1_000))


def past(text: str) -> int:
    """A point in time, or how long ago that was, in ms."""
    try:
        return date(text)
    except argparse.ArgumentTypeError:
        words = text.removesuffix("ago").strip()
        return max(0, SystemClock().now_ms() - milliseconds(words))


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
