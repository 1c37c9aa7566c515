"""`report`: what happened in the queues, as a page to look at."""

import argparse
from pathlib import Path

from courier.cli import output
from courier.cli.errors import Failed
from courier.cli.lake import add_place
from courier.cli.lakes import failures, opened
from courier.cli.parser import Commands, command

TIME = "as 2026-01-31T12:00:00Z, or how long ago: 30s, 5m, 2h, 7d"


def add(commands: Commands) -> None:
    report = command(commands, "report", "write a page with plots of what happened", _report)
    report.add_argument("--queue", metavar="QUEUE", help="only this queue; default: all")
    report.add_argument("--since", metavar="TIME", help=f"what happened since, {TIME}")
    report.add_argument("--until", metavar="TIME", help="what happened before")
    report.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="where to write it; default report.html",
    )
    add_place(report)


def _report(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import report

        made = report.make(opened(args), queue=args.queue, since=args.since, until=args.until)
    try:
        args.out.write_text(made.page, encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot write {args.out}: {error.strerror}") from error
    told = output.count(made.published, "message")
    print(f"{args.out}: {told} published, {made.acked} acked, {len(made.page) // 1_000} KB")
