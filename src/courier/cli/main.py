"""The `courier` command: its parser and its exit status.

0   done
1   the server refused; its message is on stderr
2   the command cannot be run as it was given
3   the server cannot be reached
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from courier import __version__, files
from courier.cli import output
from courier.cli.errors import Stop
from courier.cli.parser import Parser, subcommands
from courier.config import ConfigError
from courier.masking import scrubbed

INTERRUPTED = 130
PIPE_CLOSED = 141
# Command -> the module beside this one that declares it.
COMMANDS = {
    "serve": "serve",
    "init": "serve",
    "config": "serve",
    "up": "up",
    "console": "console",
    "credentials": "credentials",
    "tenant": "tenants",
    "key": "keys",
    "queue": "queues",
    "top": "overview",
    "message": "lives",
    "publish": "messages",
    "pull": "messages",
    "ack": "messages",
    "peek": "messages",
    "redrive": "messages",
    "listener": "listeners",
    "worker": "workers",
    "plan": "plans",
    "event": "events",
    "journal": "journal",
    "pipeline": "pipeline",
    "lake": "lake",
    "replay": "replay",
    "report": "report",
    "store": "store_copy",
    "completion": "completion",
}

# Those that go on loading, or write nothing that an end at any moment would spoil: they heed
# signals themselves when they begin to work, and until then end at once.
LOADING = {"serve", "up", "pipeline", "lake", "replay", "report"}


def parser(command: str = "") -> argparse.ArgumentParser:
    """The command line, for one command alone if it is known which: that is ready much sooner."""
    top = Parser(
        prog="courier",
        description="A self-hosted message broker that speaks existing queue APIs.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"courier {__version__}")
    commands = subcommands(top)
    wanted = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in wanted:
        import_module(f"courier.cli.{module}").add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    # A name or a body may hold characters that this terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    files.be_private()
    given = sys.argv[1:] if argv is None else argv
    if not given:
        parser().print_help()
        return 0
    try:
        args = parser(given[0]).parse_args(given)
        if given[0] not in LOADING and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        args.run(args)
        sys.stdout.flush()
    except Stop as stop:
        return _fail(str(stop), stop.status)
    except ConfigError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; keep Python from complaining once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return 0


def _fail(message: str, status: int) -> int:
    said = scrubbed(message)
    print(output.styled("courier:", output.RED, sys.stderr), said, file=sys.stderr)
    return status
