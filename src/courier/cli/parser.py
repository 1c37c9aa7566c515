"""How commands are declared, and the kinds of values their flags take."""

import argparse
import difflib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeAlias

from courier import config
from courier.cli import examples
from courier.cli.errors import Misused
from courier.clock import SystemClock

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# How alike two words are, from 0 to 1, for one to be suggested in place of the other.
ALIKE_MIN = 0.75
DURATION = "30s, 5m, 2h or 7d; a bare number is seconds"
# argparse's words for mistakes, and ours.
_MISTAKES = (
    (r"the following arguments are required: (.*)", r"missing \1"),
    (r"one of the arguments (.*) is required", r"missing one of \1"),
    (r"argument (\S+): not allowed with argument (.*)", r"\1 cannot be used with \2"),
    (r"argument (\S+): ignored explicit argument (.*)", r"\1 takes no value"),
    (r"argument (\S+): expected .*", r"\1 needs a value"),
    (r"argument (\S+): (.*)", r"\1: \2"),
)
_COMMAND_WIDTH = 19


class _Help(argparse.HelpFormatter):
    """Examples stay as they are written, so that they can be copied. Commands have a line each."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        listed = ((each.dest, each.help) for each in action._get_subactions())
        return "".join(f"  {name:{_COMMAND_WIDTH}}{help}\n" for name, help in listed)

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

    def error(self, message: str) -> NoReturn:
        for pattern, words in _MISTAKES:
            if found := re.fullmatch(pattern, message):
                message = found.expand(words)
                break
        see = " See" if message.endswith("?") else "; see"
        raise Misused(f"{message}{see} `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        has_commands = any(action.nargs == argparse.PARSER for action in self._actions)
        if has_commands:
            first = args[0] if args else ""
            if first.startswith("-") and first not in self._option_string_actions:
                self._unknown_option(first)
        keeps_order = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if has_commands or keeps_order or self._ordering:
            return super().parse_known_args(args, namespace)
        self._ordering = True  # the next line comes back here, once for each kind
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._ordering = False
        for flag in [word for word in unknown if word.startswith("-")]:
            self._unknown_option(flag)
        if unknown:
            self.error(f"unknown argument '{unknown[0]}'")
        return found, unknown

    def _unknown_option(self, flag: str) -> NoReturn:
        name = flag.partition("=")[0]
        options = [option for option in self._option_string_actions if option != flag]
        self.error(f"unknown option '{name}'{meant(name, options)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        if action.nargs == argparse.PARSER:
            self.error(f"unknown command '{value}'{meant(str(value), choices)}")
        close = meant(str(value), choices)
        raise argparse.ArgumentError(action, f"'{value}' is not one of {', '.join(choices)}{close}")


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
    return subcommands(parser)


def subcommands(parser: argparse.ArgumentParser) -> Commands:
    """Make a parser one of commands."""
    parser.formatter_class = _Help
    parser.epilog = f"`{parser.prog} COMMAND --help` has the options and examples of each."
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


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
    except argparse.ArgumentTypeError as wrong:
        try:
            ago_ms = milliseconds(text.removesuffix("ago").strip())
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"{wrong}, or as long ago as 10m or 2h") from None
        return max(0, SystemClock().now_ms() - ago_ms)


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
