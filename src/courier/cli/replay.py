"""`replay`: publish messages from the lake again."""

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING

from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import Access, access, add_access
from courier.cli.errors import Misused
from courier.cli.lakes import LOCAL, add_spark, failures, interruptible, opened, started
from courier.cli.output import count
from courier.cli.parser import Commands, command

if TYPE_CHECKING:
    from courier.lake.catalog import Lake
    from courier.lake.client import Place
    from courier.lake.replay import Asked, Chosen, Plans, ReplayPlan, Spark

TIME = "as 2026-01-31T12:00:00Z, or how long ago: 30s, 5m, 2h, 7d"
RATE_MAX = 1_000_000
_BODY_SHOWN = 200


def add(commands: Commands) -> None:
    replay = command(commands, "replay", "publish messages from the lake again", _replay)
    replay.add_argument("--queue", help="the queue that they were published to")
    add_choice(replay)
    replay.add_argument("--into", metavar="QUEUE", help="publish to this queue; default: the same")
    replay.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="COLUMN=SQL",
        help="publish with another body, headers, content_type, delay_ms or group",
    )
    replay.add_argument("--id", help="name of the replay; the name of an earlier one continues it")
    add_run(replay)
    add_access(replay)


def add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="TIME", help=f"only what was published since, {TIME}")
    parser.add_argument("--until", metavar="TIME", help="only what was published before")
    parser.add_argument(
        "--where",
        metavar="SQL",
        help="only messages for which this condition of Spark's SQL holds: data:total::int > 100",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=_rate, metavar="N/s", help="most messages per second")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be published")
    add_spark(parser)
    parser.add_argument("--lake", metavar="PATH", help="default: lake in the data directory")


def _rate(text: str) -> int:
    number = text.removesuffix("/s")
    if not (number.isdecimal() and 1 <= int(number) <= RATE_MAX):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of messages per second from 1 to {RATE_MAX}, such as 100/s"
        )
    return int(number)


def tenant_id(who: Access) -> str:
    """The tenant as the lake knows it."""
    return who.account or ApiClient(who).tenant_id(who.tenant)


def _replay(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import replay

        asked = replay.Asked(
            queue=args.queue or "",
            since=args.since or "",
            until=args.until or "",
            where=args.where or "",
            into=args.into or "",
            sets=tuple(args.set),
        )
        who, lake = access(args), opened(args)
        id, now_ms = args.id or replay.new_id(), replay.now_ms()

        def choose(spark: "Spark | None") -> "Chosen | None":
            if not args.queue:
                raise Misused(f"there is no replay '{id}' to continue: a new one needs --queue")
            tenant = tenant_id(who)
            if spark is None:
                return replay.choose_few(
                    lake,
                    asked,
                    tenant=tenant,
                    replay=id,
                    now_ms=now_ms,
                    only_samples=args.dry_run,
                )
            return replay.choose(spark, lake, asked, tenant=tenant, replay=id, now_ms=now_ms)

        def tell_erased() -> None:
            tenant = tenant_id(who)
            if gone := replay.erased(lake, asked, tenant=tenant, now_ms=now_ms):
                told = f"{count(gone, 'message')} of the queue and time were erased"
                print(f"{told}, and cannot be published again", file=sys.stderr)

        if not args.queue and not args.id:
            raise Misused("a replay needs --queue, or the --id of one to continue")
        if args.queue:
            tell_erased()
        carry_out(args, who, lake, asked, id, choose)


def carry_out(
    args: argparse.Namespace,
    who: Access,
    lake: "Lake",
    asked: "Asked",
    id: str,
    choose: Callable[["Spark | None"], "Chosen | None"],
) -> None:
    """Make the plan, or find it, and publish what of it is not published yet.

    Spark starts only to choose: where it is asked for, or where `choose` cannot do without it.
    """
    from courier.lake import replay
    from courier.lake.client import Place

    place = Place(who.url, who.admin_token, who.tenant)
    plans = replay.Plans(lake.root)
    with plans.alone(id):
        plan = replay.find(plans, id, asked)
        if plan is not None and plan.done:
            plans.forget_rows(plan)
            print(f"replay '{id}' has published its {count(plan.total, 'message')} already")
            return
        replay.check(place, plan.queue if plan else asked.into or asked.queue)
        if plan is None:
            replay.check_language(asked)
            _warn(replay.lag(lake, place, asked, now_ms=replay.now_ms()))
            wants_spark = bool(args.remote or args.conf or args.master != LOCAL)
            few = None if wants_spark else choose(None)
            with nullcontext() if few else started(args, lake.root, "replay") as spark:
                chosen = few or choose(spark)
                assert chosen is not None
                if args.dry_run:
                    _show(chosen)
                    return
                plan = replay.make(plans, id, asked, chosen)
        elif args.dry_run:
            left = count(plan.total - plan.before(plan.published), "message")
            print(f"{left} of {plan.total} would be published, or less: one part is begun")
            return
        with interruptible():
            _publish(plans, plan, place, args)


def _warn(behind: int) -> None:
    if behind:
        print(
            f"the lake is {count(behind, 'event')} behind the journal, so the newest messages may "
            "be missing: `courier pipeline run --once` loads them",
            file=sys.stderr,
        )


def _publish(plans: "Plans", plan: "ReplayPlan", place: "Place", args: argparse.Namespace) -> None:
    from courier.lake import replay

    print(
        f"replay '{plan.id}': {count(plan.total, 'message')} to queue '{plan.queue}'",
        file=sys.stderr,
        flush=True,
    )
    progress = output.ProgressBar(f"of {count(plan.total, 'message')}", total=plan.total)
    try:
        replay.publish(plans, plan, place, rate=args.rate, report=progress.at)
    except BaseException:
        progress.end()
        print(f"to continue: {_again(plan, args)}", file=sys.stderr, flush=True)
        raise
    progress.end()
    print(f"{count(plan.total, 'message')} published to '{plan.queue}', replay '{plan.id}'")


def _again(plan: "ReplayPlan", args: argparse.Namespace) -> str:
    """The command that goes on where this one ends."""
    words = ["courier", "replay", "--id", plan.id]
    if plan.listener:
        words = ["courier", "lake", "backfill-listener", "--queue", args.queue]
        words += ["--listener", args.listener, "--id", plan.id]
    for flag in ("rate", "lake", "data", "tenant", "url", "account"):
        if value := getattr(args, flag):
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _show(chosen: "Chosen") -> None:
    """What a replay would publish."""
    print(f"{count(chosen.count, 'message')}, {chosen.bytes} bytes")
    if not chosen.count:
        return
    print(f"published from {_time(chosen.first)} to {_time(chosen.last)}; the first of them:")
    columns = ["published", "content type", "group", "headers", "body"]
    rows = [
        [
            _time(each["published_at"]),
            each["content_type"],
            each["group"],
            each["headers"],
            f"sealed with {each['sealed']}" if each["sealed"] else _text(each["body"]),
        ]
        for each in chosen.samples()
    ]
    output.table(columns, rows)


def _time(at: datetime | None) -> str:
    return "" if at is None else output.moment(int(at.timestamp() * 1_000))


def _text(body: bytearray) -> str:
    shown = body[:_BODY_SHOWN].decode("utf-8", "replace")
    return shown if len(body) <= _BODY_SHOWN else f"{shown}..."
