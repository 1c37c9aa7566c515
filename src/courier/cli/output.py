"""What commands print: aligned tables for people, JSON for programs, progress for the patient."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

_GAP = "  "
_BAR_WIDTH = 30
_LINE_EVERY = 10_000


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their column names. On a terminal, lines end at its right edge."""
    shown = [[column.upper() for column in columns]]
    shown += [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print_line(_GAP.join(map(str.ljust, row, widths)).rstrip())


def print_line(line: str) -> None:
    if sys.stdout.isatty():
        line = line[: shutil.get_terminal_size().columns]
    print(line)


def cell(value: object) -> str:
    """A value as one word or line, safe to print: control characters are escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return cell(", ".join(map(str, value)))
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))


def moment(ms: int | None) -> str:
    """A time as people read it; nothing for none."""
    if not ms:
        return ""
    whole, part = divmod(ms, 1_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:03}Z"


def duration(seconds: int) -> str:
    """Seconds in the largest unit that leaves no rest."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Progress:
    """How far long work has come: a bar on a terminal, now and then a line elsewhere."""

    def __init__(self, what: str, *, total: int = 0) -> None:
        self._what = what
        self._total = total
        self._line_next = _LINE_EVERY
        self._drawn = False

    def at(self, done: int, *, part: int | None = None) -> None:
        """`done` things are done; `part` of the total, when that is counted in other units."""
        if sys.stderr.isatty():
            print(
                f"\r{self._bar(done if part is None else part)}{done} {self._what}",
                end="",
                file=sys.stderr,
                flush=True,
            )
            self._drawn = True
        elif done >= self._line_next:
            print(f"{done} {self._what}", file=sys.stderr, flush=True)
            self._line_next = done - done % _LINE_EVERY + _LINE_EVERY

    def end(self) -> None:
        if self._drawn:
            print(file=sys.stderr)

    def _bar(self, part: int) -> str:
        if not self._total:
            return ""
        filled = min(_BAR_WIDTH, part * _BAR_WIDTH // self._total)
        return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] "
