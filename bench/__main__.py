"""`python -m bench`: one table, then the bars. `python -m bench store`: the store alone."""

import argparse
import sys
import tempfile
from pathlib import Path

from bench import backlog, space, store
from bench.bars import all_bars
from bench.beanstalkd import Beanstalkd
from bench.comparison import compare, say
from bench.courier import Courier
from bench.floor import Floor
from bench.plan import FULL, QUICK, Plan
from bench.redis import Redis
from bench.redis_py import RedisPy
from bench.table import render


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
        return _everything(plan, root, strict=options.strict)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="Measure Courier beside its peers.")
    parser.add_argument(
        "what", nargs="?", choices=("all", "store"), default="all", help="store: without HTTP"
    )
    parser.add_argument("--quick", action="store_true", help="short times and small queues")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("build/bench"),
        help="where all data goes; must be on a real disk for the figures to mean anything",
    )
    return parser.parse_args()


def _everything(plan: Plan, root: Path, *, strict: bool) -> int:
    contestants = (Courier(), Floor(), Redis(), RedisPy(), Beanstalkd())
    comparison = compare(contestants, plan, root)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        say(f"backlog of {plan.many:,}")
        queues = backlog.measure(
            Path(directory), many=plan.many, crowd=plan.crowd, pulls=plan.pulls
        )
    with tempfile.TemporaryDirectory(dir=root) as directory:
        say(f"space of {plan.space:,} messages, twice")
        used = space.measure(Path(directory), messages=plan.space)
    print(render([*comparison.rows, *queues.rows(), *used.rows()]))
    bars = all_bars(comparison, queues)
    print()
    for bar in bars:
        print(bar)
    missed = [bar for bar in bars if not bar.met]
    print(f"\n{len(missed)} of {len(bars)} bars missed" if missed else "\nall bars met")
    return 1 if missed and strict else 0


if __name__ == "__main__":
    sys.exit(main())
