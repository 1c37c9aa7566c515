"""What commands print: aligned tables for people, JSON for programs, progress for the patient."""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from courier import config, words
from courier.clock import SystemClock

# Columns that hold text, which is there to be read.
TEXTS = ("body", "title", "scopes", "targets", "state", "detail", "answer", "headers")
BOLD = "1"
RED = "31"
_GAP = "  "
_SMALLER_UNIT = re.compile(r"(?<=[a-z]) \d+ (s|min|h)\b")
_TEXT_WIDTH_MIN = 10
# On a narrower terminal there is room for the largest unit of a time only.
WIDE = 100
_BAR_WIDTH = 30
_LINE_EVERY = 10_000


JSON_HELP = "print JSON in place of a table"


def add_json(parser: argparse._ActionsContainer, help: str = JSON_HELP) -> None:
    parser.add_argument("--json", action="store_true", help=help)


def print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, lines_max: int = sys.maxsize
) -> None:
    """Print rows below their column names, as many as there are lines for, one at least.

    On a terminal, columns of text are shortened to fit. Nothing else is: ids, leases, tokens and
    addresses are there to be copied. Where they do not fit, a row goes on below, indented.
    """
    shown = [[cell(value) for value in row] for row in rows]
    head = [column.upper() for column in columns]
    right = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    right = right or [False] * len(head)
    widths = [max(map(len, column)) for column in zip(head, *shown, strict=True)]
    lines = [range(len(columns))]
    if sys.stdout.isatty():
        # A name and its value stay together: terminals wrap those well enough.
        lines = _folded(columns, widths) if len(columns) > 2 else lines
        for line in lines:
            for number in [n for n in line if columns[n] in TEXTS]:
                over = sum(widths[n] + len(_GAP) for n in line) - terminal_columns()
                least = min(widths[number], _TEXT_WIDTH_MIN)
                widths[number] = max(least, widths[number] - max(0, over))
                for row in shown:
                    row[number] = shortened(row[number], widths[number])
    for row in (head, *shown[: max(1, lines_max // len(lines) - 1)]):
        for line in lines:
            cells = [_placed(row[n], widths[n], right[n]) for n in line]
            text = (_GAP if line[0] else "") + _GAP.join(cells).rstrip()
            print(styled(text, BOLD, sys.stdout) if row is head else text)


def _folded(columns: Sequence[str], widths: Sequence[int]) -> list[range]:
    """The columns of each line of a row, so that every line fits the terminal if it can."""
    begins, left = [0], terminal_columns()
    for number, width in enumerate(widths):
        least = min(width, _TEXT_WIDTH_MIN) if columns[number] in TEXTS else width
        if least > left and number:
            begins.append(number)
            left = terminal_columns() - len(_GAP)
        left -= least + len(_GAP)
    ends = [*begins[1:], len(widths)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _placed(cell: str, width: int, right: bool) -> str:
    """Numbers stand at the right of their columns."""
    return cell.rjust(width) if right else cell.ljust(width)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Figure) and not isinstance(value, bool)


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def print_text(before: str, text: str) -> None:
    """A line that ends in a text; on a terminal, this is shortened to fit."""
    if sys.stdout.isatty():
        text = shortened(text, max(_TEXT_WIDTH_MIN, terminal_columns() - len(before)))
    print(f"{before}{text}".rstrip())


def sentence(before: str, text: str) -> list[str]:
    """Its lines; on a terminal a long one goes on below, indented, and nothing is cut."""
    whole = f"{before}{cell(text)}"
    if not sys.stdout.isatty():
        return [whole]
    return textwrap.wrap(whole, max(_TEXT_WIDTH_MIN, terminal_columns()), subsequent_indent="  ")


def styled(text: str, style: str, stream: TextIO) -> str:
    """The text in a style, where that is a terminal and nobody minds."""
    styles = stream.isatty() and config.colours_wanted()
    return f"\x1b[{style}m{text}\x1b[0m" if styles else text


def cell(value: object) -> str:
    """A value as one word or line, safe to print: control characters are escaped."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return cell(", ".join(map(str, value)))
    return words.printable(str(value))


def age(ms: int | None) -> str:
    """A time in a list: how long ago it was on a terminal, the time itself elsewhere."""
    return brief(_ago(ms)) if ms and sys.stdout.isatty() else moment(ms)


def brief(text: str) -> str:
    """A length of time in words; on a narrow terminal without its smaller unit."""
    found = _SMALLER_UNIT.search(text) if is_narrow() else None
    return text.replace(found[0], "") if found else text


def _ago(ms: int) -> str:
    return words.ago(ms, SystemClock().now_ms())


def is_narrow() -> bool:
    return sys.stdout.isatty() and terminal_columns() < WIDE


def dated(ms: int | None) -> str:
    """A time on a line of its own: on a terminal also how long ago that was."""
    return f"{moment(ms)} ({_ago(ms)})" if ms and sys.stdout.isatty() else moment(ms)


def moment(ms: int | None) -> str:
    """A time in the one form that times have; nothing for none."""
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


class Figure(str):
    """A number in words; it stands at the right of its column as numbers do."""


class ProgressBar:
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
