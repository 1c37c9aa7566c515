"""`courier` that dies where it is told to: python -m tests.lake.killed HOME ARGUMENTS."""

import sys
from collections.abc import Callable
from typing import Any

from courier.cli.main import main
from courier.lake import pipeline, tables, upkeep
from courier.lake.client import Client
from courier.lake.pipeline import LakePipeline
from courier.lake.replay import Plans, ReplayPlan
from courier.lake.tables import Table
from tests.lake.dying import passes

_TABLES = ("events", "messages", "queue_minutes", "consumers_hours", "audit")
_TIMES = ("after the write", "before the commit", "after the commit")
# Points of `pipeline run`. Its source commit tells the broker how far `events` is.
PIPELINE = (
    *(f"{table}: {time}" for table in _TABLES for time in _TIMES),
    "compaction: before the commit",
    "compaction: after the commit",
    "before a batch",
    "before the source commit",
    "after the source commit",
    "before the checkpoint",
)
# Points of `replay`, in the order in which a replay comes to them.
REPLAY = (
    "before the plan is kept",
    "after the plan is kept",
    "after a piece is begun",
    "before a piece is noted",
    "after a piece is noted",
)
# What is seldom or large is frequent and small here, so that each run comes to every point.
AUDIT_EVERY_S = 5.0
UPKEEP_BATCHES = 2
COMPACTED_FILES_MIN = 2
PIECE_ROWS = 100
# Spark makes some of the batches, and some tables of a batch, and this process the others.
FEW_ROWS = 60

# Where a call is on the way: before and after it; no name is no point.
Points = tuple[str, str]


def around(home: str, owner: type, name: str, points: Callable[..., Points]) -> None:
    real = getattr(owner, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        before, after = points(*args, **kwargs)
        passes(home, before)
        result = real(*args, **kwargs)
        passes(home, after)
        return result

    setattr(owner, name, dying)


def writing(table: Table, *_: Any, **__: Any) -> Points:
    return "", f"{table.name}: after the write"


def committing(table: Table, *_: Any, same_rows: bool = False, **__: Any) -> Points:
    about = "compaction" if same_rows else table.name
    return f"{about}: before the commit", f"{about}: after the commit"


def telling(*_: Any, **__: Any) -> Points:
    # A pipeline that starts tells it, too. In a bucket its main thread runs the batches.
    caller = sys._getframe(2)
    if caller.f_code.co_name != "_bring":
        return "", ""
    return "before the source commit", "after the source commit"


def keeping(_: Plans, plan: ReplayPlan) -> Points:
    if plan.began_ms is not None:
        return "", "after a piece is begun"
    if not plan.published:
        return "before the plan is kept", "after the plan is kept"
    return "before a piece is noted", "after a piece is noted"


def watch(home: str) -> None:
    around(home, Table, "write", writing)
    around(home, Table, "commit", committing)
    around(home, Client, "commit", telling)
    around(home, LakePipeline, "_bring", lambda *_: ("before a batch", "before the checkpoint"))
    around(home, Plans, "keep", keeping)
    pipeline.AUDIT_EVERY_S = AUDIT_EVERY_S
    pipeline.UPKEEP_BATCHES = UPKEEP_BATCHES
    upkeep.FILES_MIN = COMPACTED_FILES_MIN
    tables.FEW_ROWS = FEW_ROWS
    (Plans.__init__.__kwdefaults__ or {})["piece_rows"] = PIECE_ROWS


if __name__ == "__main__":
    watch(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
