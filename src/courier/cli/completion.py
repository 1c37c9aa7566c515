"""`completion`: what a shell offers when somebody presses TAB."""

import argparse
from collections.abc import Sequence

from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.errors import Stop
from courier.cli.parser import Commands, command
from courier.config import ConfigError

# Each asks this command for the words that may stand in place of the last one.
SCRIPTS = {
    "bash": r"""_courier() {
    local IFS=$'\n'
    COMPREPLY=($(courier completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _courier courier""",
    "zsh": r"""#compdef courier
_courier() {
    local -a found
    found=("${(@f)$(courier completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _courier courier""",
    "fish": r"""complete -c courier -a '(
    courier completion fish -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
)'""",
}
_ACCESS = ("data", "tenant", "url", "token", "account")


def add(commands: Commands) -> None:
    completion = command(commands, "completion", "print a completion script for a shell", _run)
    completion.add_argument("shell", metavar="SHELL", choices=SCRIPTS, help=", ".join(SCRIPTS))
    completion.add_argument(
        "words",
        metavar="WORD",
        nargs=argparse.REMAINDER,
        help="print completions of the last one, as the scripts ask",
    )


def _run(args: argparse.Namespace) -> None:
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    found = completions(words) if words else [SCRIPTS[args.shell]]
    print("\n".join(found))


def completions(words: Sequence[str]) -> list[str]:
    """What the last word may become: commands, flags, choices, or names of queues."""
    # Here, because the main module knows this one.
    from courier.cli.main import COMMANDS, parser

    *before, last = words
    if not before:
        return [name for name in (*COMMANDS, "--help", "--version") if name.startswith(last)]
    if before[0] not in COMMANDS:
        return []
    place, before = parser(before[0]), list(before)
    given: dict[str, str] = {}
    pending: argparse.Action | None = None
    positional = 0
    for word in before:
        nested = _commands(place)
        if pending is not None:
            given[pending.dest], pending = word, None
        elif nested is not None and word in nested:
            place, positional = nested[word], 0
        elif word.startswith("-"):
            action = place._option_string_actions.get(word)
            pending = action if action is not None and action.nargs is None else None
        else:
            positional += 1
    found = _values(place, pending, positional, last, given)
    return [word for word in found if word.startswith(last)]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return None


def _values(
    parser: argparse.ArgumentParser,
    pending: argparse.Action | None,
    positional: int,
    last: str,
    given: dict[str, str],
) -> list[str]:
    if pending is None:
        nested = _commands(parser)
        if nested is not None:
            return [*nested, "--help"]
        if last.startswith("-"):
            return list(parser._option_string_actions)
        places = [action for action in parser._actions if not action.option_strings]
        if not places:
            return []
        pending = places[min(positional, len(places) - 1)]
    if pending.choices is not None:
        return list(pending.choices)
    named = parser.prog.startswith("courier queue ") and parser.prog != "courier queue create"
    if pending.dest in ("queue", "dead_letter") or (named and pending.dest == "name"):
        return _queues(given)
    return []


def _queues(given: dict[str, str]) -> list[str]:
    """Names of queues; nothing when no server says them."""
    try:
        asked = argparse.Namespace(**{name: given.get(name) for name in _ACCESS})
        return [each["queue_name"] for each in ApiClient(access(asked)).call("GET", "/queues")]
    except (Stop, ConfigError):
        return []
