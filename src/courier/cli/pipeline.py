"""`pipeline`: the journal into the lake, and how far it has come."""

import argparse
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import date
from typing import TYPE_CHECKING

from courier import words
from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import access, add_access
from courier.cli.lakes import (
    SIGNALS,
    add_spark,
    ending_at_once,
    failures,
    lake_root,
    opened,
    started,
)
from courier.cli.parser import DURATION, Commands, command, group, milliseconds, whole

if TYPE_CHECKING:
    from courier.lake.client import Place
    from courier.lake.pipeline import Done

NAME = "lake"
_DAY_MS = 86_400_000
# Those that are made of events alone.
_MADE = ("messages", "queue_minutes", "consumers_hours")
_EVERY_MS = 5_000
_ROWS_MAX = 500_000
# A line for every batch would fill logs; elsewhere than on a terminal there are fewer.
_LINE_EVERY_S = 10.0


def add(commands: Commands) -> None:
    pipeline = group(commands, "pipeline", "load the journal into the lake")
    run = command(pipeline, "run", "load new events into the lake's tables", _run)
    run.add_argument("--once", action="store_true", help="process everything available, then exit")
    run.add_argument(
        "--every",
        type=milliseconds,
        default=_EVERY_MS,
        metavar="TIME",
        help=f"interval between batches ({DURATION}); default 5s",
    )
    run.add_argument(
        "--max-rows",
        type=whole(1, 10**9),
        default=_ROWS_MAX,
        metavar="N",
        help=f"most events of one batch; default {_ROWS_MAX}",
    )
    run.add_argument(
        "--accept-gap",
        action="store_true",
        help="if the journal has lost events, record the gap and go on without them",
    )
    run.add_argument("--checkpoint", metavar="PATH", help="default: _checkpoints/NAME in the lake")
    add_spark(run)
    _add_lake(run)

    status = command(pipeline, "status", "show how far the lake is behind the journal", _status)
    output.add_json(status)
    _add_lake(status)

    rebuild = command(pipeline, "rebuild", "rebuild tables from the events", _rebuild)
    rebuild.add_argument("--table", metavar="NAME", choices=_MADE, help="only this one")
    part = rebuild.add_mutually_exclusive_group()
    part.add_argument("--queue", help="only rows of this queue")
    part.add_argument("--day", type=_day, help="only rows of a day, as 2026-01-31")
    add_spark(rebuild)
    _add_lake(rebuild)

    forget = command(
        pipeline, "forget", "unregister a reader, which the journal waits for", _forget
    )
    forget.add_argument(
        "name", metavar="NAME", help="the reader, as `courier pipeline list` shows it"
    )
    add_access(forget)

    readers = command(pipeline, "list", "list the journal's registered readers", _list)
    output.add_json(readers)
    add_access(readers)


def _add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", metavar="PATH", help="default: lake in the data directory")
    parser.add_argument("--name", default=NAME, help=f"name of the pipeline; default {NAME}")
    parser.add_argument("--token-file", metavar="FILE", help="the same as --token @FILE")
    add_access(parser)


def _run(args: argparse.Namespace) -> None:
    with ending_at_once(), failures(args):
        from courier.lake import checks, java, lock
        from courier.lake.catalog import Lake
        from courier.lake.pipeline import LakePipeline, telling
        from courier.lake.tables import LakeError

        root, place = lake_root(args), _place(args)
        lake = Lake(root)
        checkpoint = args.checkpoint or checks.checkpoint_of(lake, args.name)
        with lock.hold(root):
            # Spark takes its time to start, so what can be checked without it is checked first.
            with telling(place, args.name):
                if not args.remote and java.find() is None:
                    raise LakeError(java.MISSING)
                first = checks.check(
                    lake,
                    place,
                    name=args.name,
                    checkpoint=checkpoint,
                    accept_gap=args.accept_gap,
                )
            lines = _Lines(after=first - 1)
            # Who is asked to end before anything has begun has done what was asked.
            with suppress(KeyboardInterrupt), started(args, root, args.name) as spark:
                pipeline = LakePipeline(
                    spark,
                    lake,
                    place,
                    name=args.name,
                    checkpoint=checkpoint,
                    rows_max=args.max_rows,
                    accept_gap=args.accept_gap,
                    report=lines.batch,
                    say=lines.say,
                )
                # The running batch ends, and then the pipeline.
                pipeline.end.heed(SIGNALS)
                lines.say(f"loading the journal of {place.url} into {root}")
                pipeline.run(every_ms=None if args.once else args.every)
                lines.end()


def _status(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake.status import status

        found = status(opened(args), replace(_place(args), away_s_max=0))
    if args.json:
        output.print_json(asdict(found))
        return
    rows = [
        [each.table, each.batch, each.upto, each.rows, output.age(each.at_ms), each.rows_per_s]
        for each in found.tables
    ]
    output.table(["table", "batch", "offset", "events", "time", "events/s"], rows)
    if found.lag_offsets is None:
        print("the server does not answer, so the lag of the tables is unknown")
    else:
        print(f"{output.count(found.lag_offsets, 'event')} behind, {found.lag_seconds:.1f} s")
    if found.journal_days is not None and found.retention_days is not None:
        holds, left, kept = (
            words.duration(days * _DAY_MS)
            for days in (found.journal_days, found.journal_days_left or 0, found.retention_days)
        )
        print(
            f"at this rate journal_bytes_max holds {holds} of events, and is reached in {left}; "
            f"the retention is {kept}"
        )
        if found.journal_days < found.retention_days:
            print("events will be deleted before their retention ends: raise journal_bytes_max")
    if found.missing:
        print(f"{output.count(found.missing, 'event')} are missing in the lake: see its gaps")


def _forget(args: argparse.Namespace) -> None:
    ApiClient(access(args)).forget_pipeline(args.name)
    print(f"forgot {args.name}")


def _list(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    found, head = client.pipelines(), client.journal_head()
    if args.json:
        output.print_json(found)
        return
    rows = [
        [
            each["name"],
            each["offset"],
            max(0, head["last"] - each["offset"]),
            each["lost"],
            output.age(each["seen_ms"]),
        ]
        for each in found
    ]
    output.table(["pipeline", "offset", "behind", "lost", "seen"], rows)


def _rebuild(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import lock
        from courier.lake.rebuild import RebuildPart, rebuild

        lake = opened(args)
        with lock.hold(lake.root), started(args, lake.root, args.name) as spark:
            for name in rebuild(
                spark, lake, args.table, RebuildPart(args.queue or "", args.day or "")
            ):
                print(f"rebuilt {name}", flush=True)


def _day(text: str) -> str:
    try:
        return f"{date.fromisoformat(text)}"
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2026-01-31") from None


def _place(args: argparse.Namespace) -> "Place":
    from courier.lake.client import Place

    if args.token_file:
        args.token = f"@{args.token_file}"
    who = access(args)
    return Place(who.url, who.admin_token, who.tenant)


class _Lines:
    """What a run shows: a line that changes in place on a terminal, now and then one elsewhere.

    Offsets say how far it came: a batch may break off after its events are in.
    """

    def __init__(self, *, after: int) -> None:
        self._after = self._upto = after
        self._batches = 0
        self._shown_s = float("-inf")
        self._drawn = False

    def say(self, line: str) -> None:
        self._break()
        print(line, file=sys.stderr, flush=True)

    def batch(self, done: "Done") -> None:
        self._batches += 1
        self._upto = done.upto
        rate = done.rows / max(done.seconds, 0.001)
        line = (
            f"batch {done.batch}: {output.count(done.rows, 'event')} up to offset {done.upto} "
            f"in {done.seconds:.1f} s, {rate:.0f}/s"
        )
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width].ljust(width)}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        elif time.monotonic() - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        batches = "1 batch" if self._batches == 1 else f"{self._batches} batches"
        self.say(f"{output.count(self._upto - self._after, 'event')} in {batches}")

    def _break(self) -> None:
        if self._drawn:
            print(file=sys.stderr)
            self._drawn = False
