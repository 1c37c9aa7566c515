"""`--watch`: show something again and again, until somebody has seen enough."""

import argparse
import sys
import time
from collections.abc import Callable

from courier.cli.parser import milliseconds

EVERY_MS = 2_000
EVERY_MS_MIN = 100
_HOME = "\x1b[H\x1b[2J\x1b[3J"


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_every,
        const=EVERY_MS,
        metavar="TIME",
        help="repeat every 2s, or as often as given, until Ctrl-C",
    )


def _every(text: str) -> int:
    every_ms = milliseconds(text)
    if every_ms < EVERY_MS_MIN:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {EVERY_MS_MIN} ms")
    return every_ms


def watched(every_ms: int | None, show: Callable[[], None]) -> None:
    """Show it once, or every so often on a screen of its own. Elsewhere than on a terminal each
    round follows the one before after an empty line.
    """
    while True:
        if every_ms is not None and sys.stdout.isatty():
            print(_HOME, end="")
        show()
        if every_ms is None:
            return
        if not sys.stdout.isatty():
            print()
        sys.stdout.flush()
        time.sleep(every_ms / 1_000)
