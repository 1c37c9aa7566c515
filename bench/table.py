"""The one table: rows of text, columns as wide as they need to be."""

import math
from typing import NamedTuple

from bench.figure import Figure

MB = 1_000_000
_HEADINGS = (
    "workload",
    "who",
    "msg/s",
    "p50 ms",
    "p99 ms",
    "server CPU s/1000",
    "client busy",
    "note",
)
_LEFT = (0, 1, 7)


class Row(NamedTuple):
    workload: str
    who: str
    figure: Figure | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        figure = self.figure
        if figure is None:
            return (
                *(self.workload, self.who, ""),
                *(_ms(self.p50_ms), _ms(self.p99_ms), "", ""),
                self.note,
            )
        return (
            *(self.workload, self.who, f"{figure.rate:,.0f}"),
            *(_ms(figure.p50_ms), _ms(figure.p99_ms), f"{figure.cpu_s_per_1000:.4f}"),
            f"{figure.client_busy:.0%}" if figure.client_busy else "",
            self.note,
        )


def _ms(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2f}"


def render(rows: list[Row]) -> str:
    """The rows as a Markdown table; a workload is named once, on its first row."""
    table: list[tuple[str, ...]] = [_HEADINGS]
    before = ""
    for row in rows:
        cells = row.cells()
        table.append(("" if cells[0] == before else cells[0], *cells[1:]))
        before = cells[0]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(_HEADINGS))]
    rule = tuple(
        "-" * width if i in _LEFT else "-" * (width - 1) + ":" for i, width in enumerate(widths)
    )
    table.insert(1, rule)
    return "\n".join(_line(cells, widths) for cells in table)


def side_by_side(rows: list[Row], ours: str) -> str:
    """What a reader wants first: how much faster we are than each other, and on how much CPU."""
    own = {row.workload: row.figure for row in rows if row.who == ours and row.figure}
    told = [f"{ours} beside others: messages per second, and CPU of the server per message\n"]
    for row in rows:
        figure = own.get(row.workload)
        if figure is None or row.figure is None or row.who == ours:
            continue
        rate = figure.rate / row.figure.rate
        cpu = figure.cpu_s_per_1000 / row.figure.cpu_s_per_1000 if row.figure.cpu_s_per_1000 else 0
        told.append(f"{row.workload:16} {row.who:30} {rate:6.2f}x  CPU {cpu:5.2f}x")
    return "\n".join(told)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        cell.ljust(width) if i in _LEFT else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"
