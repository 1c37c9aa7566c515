"""`python -m bench`: one table, then the bars. With a word: one part, or the store alone."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import (
    aging,
    backlog,
    before,
    console,
    creating,
    growth,
    instructions,
    lake,
    polls,
    pushes,
    receivers,
    space,
    store,
)
from bench.anypoint import Anypoint
from bench.bare import Bare
from bench.bars import (
    BEFORE_ENGINE,
    DIALECTS,
    ENGINE_GAINS,
    Bar,
    aging_bars,
    backlog_bars,
    before_bars,
    console_bars,
    creating_bars,
    dialect_bars,
    freshness_bars,
    growth_bars,
    lake_bars,
    peer_bars,
    poll_bars,
    push_bars,
    receiver_bars,
)
from bench.beanstalkd import Beanstalkd
from bench.comparison import compare, say
from bench.courier import Courier
from bench.floor import Floor
from bench.nats import Nats
from bench.pgmq import Pgmq
from bench.plan import FULL, QUICK, Plan
from bench.rabbitmq import RabbitMQ
from bench.redis import Redis
from bench.redis_py import RedisPy
from bench.sqs import Sqs
from bench.table import Row, render, side_by_side
from bench.workload import WORKLOADS

# What one part of the bench found.
Found = tuple[list[Row], list[Bar]]


def main() -> int:
    options = _options()
    plan = QUICK if options.quick else FULL
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=options.directory.resolve(), ignore_cleanup_errors=True
    ) as directory:
        root = Path(directory)
        if options.what == "store":
            print(render(store.compare(plan, root)))
            return 0
        if options.what == "before":
            beside = before.compare(options.commit, plan, root)
            print(render(beside.rows()))
            return 1 if _judge(before_bars(beside)) and options.strict else 0
        found = [part(plan, root) for part in PARTS[options.what]]
    rows = [row for rows, _ in found for row in rows]
    if any(row.who == Redis.name for row in rows):
        print(side_by_side(rows, Courier.name))
    missed = _judge([bar for _, bars in found for bar in bars])
    print(f"\n{render(rows)}")
    return 1 if missed and options.strict else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="Measure Courier beside its peers.")
    parser.add_argument(
        "what",
        nargs="?",
        choices=sorted([*PARTS, "before", "store"]),
        default="all",
        help="one part alone; no parts of all are store and postgres, without HTTP, and before",
    )
    parser.add_argument(
        "commit", nargs="?", help="of before: the commit that this tree is compared with"
    )
    parser.add_argument("--quick", action="store_true", help="short times and small queues")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("build/bench"),
        help="where all data goes; must be on a real disk for the figures to mean anything",
    )
    options = parser.parse_args()
    if (options.what == "before") != bool(options.commit):
        parser.error("before needs a commit, and nothing else takes one")
    return options


def _peers(plan: Plan, root: Path) -> Found:
    brokers = (Redis(), RedisPy(), Beanstalkd(), RabbitMQ(), Nats(), Pgmq(), Sqs())
    peers = (*brokers, Bare(), Floor())
    comparison = compare((*DIALECTS, *peers), plan, root)
    return comparison.rows, [*peer_bars(comparison), *dialect_bars(comparison)]


def _dialects(plan: Plan, root: Path) -> Found:
    workloads = [workload for workload in WORKLOADS if Anypoint().takes(workload)]
    comparison = compare(DIALECTS, plan, root, workloads)
    return comparison.rows, dialect_bars(comparison)


def _engine(plan: Plan, root: Path) -> Found:
    workloads = [workload for workload in before.MEASURED if workload.name in ENGINE_GAINS]
    found = before.compare(BEFORE_ENGINE, plan, root, workloads)
    return found.rows(), before_bars(found)


def _instructions(plan: Plan, root: Path) -> Found:
    if not instructions.installed():
        say("instructions: not counted, valgrind is not installed")
        return [Row("instructions", "courier", note="valgrind is not installed")], []
    say("instructions")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        counts = instructions.count(Path(directory))
    rows = [Row(count.load.name, "courier", note=str(count)) for count in counts]
    return rows, instructions.bars(counts)


def _creating(plan: Plan, root: Path) -> Found:
    with tempfile.TemporaryDirectory(dir=root) as directory:
        made = creating.compare(Path(directory), plan)
    return made.rows(), creating_bars(made)


def _backlog(plan: Plan, root: Path) -> Found:
    say(f"backlog of {plan.many:,}")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        queues = backlog.measure(
            Path(directory), many=plan.many, crowd=plan.crowd, pulls=plan.pulls
        )
    return queues.rows(), backlog_bars(queues)


def _space(plan: Plan, root: Path) -> Found:
    say(f"space of {plan.space:,} messages, twice")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        return space.measure(Path(directory), messages=plan.space).rows(), []


def _polls(plan: Plan, root: Path) -> Found:
    say(f"{plan.polls:,} long polls")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        held = polls.measure(Path(directory), plan)
    return held.rows(), poll_bars(held)


def _postgres(plan: Plan, root: Path) -> Found:
    from bench import postgres, postgres_apart, postgres_growth
    from bench.postgres_bars import postgres_bars

    found = postgres.measure(plan)
    grown = postgres_growth.measure(plan)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        apart = postgres_apart.measure(plan, Path(directory))
    rows = found.rows() + grown.rows() + apart.rows()
    return rows, postgres_bars(found) + grown.bars() + apart.bars()


def _pushes(plan: Plan, root: Path) -> Found:
    say("pushes")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        made = pushes.measure(Path(directory), plan)
    return made.rows(), push_bars(made)


def _receivers(plan: Plan, root: Path) -> Found:
    say("receivers that are not well")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        found = receivers.measure(Path(directory), plan)
    return found.rows(), receiver_bars(found)


def _console(plan: Plan, root: Path) -> Found:
    say(f"the console, {plan.console_queues:,} queues and {plan.many:,} messages")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        found = console.measure(Path(directory), plan)
    return found.rows(), console_bars(found)


def _lake(plan: Plan, root: Path) -> Found:
    say("the lake")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        lakes = lake.measure_rates(Path(directory), plan)
    return lakes.rows(), lake_bars(lakes)


def _growth(plan: Plan, root: Path) -> Found:
    say("the lake as it grows")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        grown = growth.measure_growth(Path(directory), plan)
    return grown.rows(), growth_bars(grown)


def _aging(plan: Plan, root: Path) -> Found:
    say("the lake as it ages")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        found = aging.measure_aging(Path(directory), plan)
    return found.rows(), aging_bars(found)


def _freshness(plan: Plan, root: Path) -> Found:
    say("how fresh the lake is")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        found = growth.measure_freshness(Path(directory), plan)
    return found.rows(), freshness_bars(found)


PARTS = {
    "aging": [_aging],
    "backlog": [_backlog, _space],
    "console": [_console],
    "creating": [_creating],
    "dialects": [_dialects],
    "engine": [_engine],
    "freshness": [_freshness],
    "growth": [_growth],
    "instructions": [_instructions],
    "lake": [_lake, _growth, _aging, _freshness],
    "peers": [_peers],
    "polls": [_polls],
    "postgres": [_postgres],
    "pushes": [_pushes],
    "receivers": [_receivers],
}
PARTS["all"] = [
    *(_peers, _engine, _instructions, _creating, _backlog, _space, _polls, _pushes, _receivers),
    *(_console, _lake, _growth, _aging, _freshness),
]


def _judge(bars: Sequence[Bar]) -> list[Bar]:
    """Print the bars; those that were missed."""
    print()
    for bar in bars:
        print(bar)
    missed = [bar for bar in bars if not bar.met]
    print(f"\n{len(missed)} of {len(bars)} bars missed" if missed else "\nall bars met")
    return missed


if __name__ == "__main__":
    sys.exit(main())
