"""What a plan did, read from the journal: its events are those of its keys, through the console."""

from collections.abc import AsyncIterator, Sequence

from courier.console.plans import REPLAY_ID, Chosen, Plan, Ranges, add_ranges
from courier.core import journal
from courier.core.slices import Slices
from courier.core.store import Store
from courier.core.types import Run

# How much of the journal is looked through for what one page did.
EVENTS_MAX = 2_000_000
PAGE_EVENTS = 2_000
PAGE_BYTES_MAX = 256 << 10
DIALECT = "console"
_SETTINGS = ("_created", "_updated", "_deleted")


async def read(store: Store, low: int, high: int) -> AsyncIterator[tuple[Run, int, int]]:
    """The runs with offsets in (low, high], each with the part of it that is meant."""
    after, slices = low, Slices()
    while after < high:
        limit = min(PAGE_EVENTS, high - after)
        runs = await store.journal.read(after=after, limit=limit, bytes_max=PAGE_BYTES_MAX)
        cut = list(journal.cut(runs, after=after, limit=limit))
        if not cut:
            return
        for run, start, stop in cut:
            await slices.turn()
            yield run, start, stop
            after = run.offset + stop - 1


async def read_ranges(store: Store, ranges: Ranges) -> AsyncIterator[tuple[Run, int, int]]:
    for first, last in ranges:
        async for found in read(store, first - 1, last):
            yield found


async def of_page(store: Store, plan: Plan, page: Sequence[Chosen]) -> tuple[set[int], Ranges, int]:
    """Sequences that were deleted, offsets of all its events, and the journal's last offset."""
    queue, seqs = page[0].queue, {each.seq for each in page}
    named = {each.id for each in page}
    ended: set[int] = set()
    offsets: Ranges = []
    last = (await store.journal.head()).last
    low = max(plan.after, last - EVENTS_MAX)
    async for run, start, stop in read(store, low, last):
        if run.dialect != DIALECT or run.actor not in plan.actors:
            continue
        if run.kind == "deleted" and run.queue == queue:
            of = journal.column(run, "seq")
            mine = [place for place in range(start, stop) if of[place] in seqs]
            ended |= {of[place] for place in mine}
        elif run.kind == "published":
            mine = [place for place in range(start, stop) if _copies(run, place, plan, named)]
        else:
            continue
        add_ranges(offsets, [run.offset + place for place in mine])
    return ended, offsets, last


async def of_settings(store: Store, plan: Plan) -> Ranges:
    """Offsets of the changes of settings that it made, since `after`."""
    last = (await store.journal.head()).last
    offsets: Ranges = []
    async for run, start, stop in read(store, max(plan.after, last - EVENTS_MAX), last):
        made = run.dialect == DIALECT and run.actor in plan.actors
        if made and run.kind.endswith(_SETTINGS) and not run.kind.startswith("session_"):
            add_ranges(offsets, range(run.offset + start, run.offset + stop))
    return offsets


def _copies(run: Run, place: int, plan: Plan, named: set[str]) -> bool:
    """Whether this is a message that the plan put somewhere."""
    headers, detail = journal.column(run, "headers")[place], journal.column(run, "detail")[place]
    if headers and headers.get(REPLAY_ID) == plan.id:
        return True
    redriven = isinstance(detail, dict) and detail.get("reason") == "redrive"
    return redriven and detail.get("message") in named
