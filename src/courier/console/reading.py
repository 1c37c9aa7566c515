"""Parts of the journal, page by page, so that nobody is held up."""

from collections.abc import AsyncIterator

from courier.core import journal
from courier.core.slices import Slices
from courier.core.store import StoreReads
from courier.core.types import Run

# Pages are small: decoding one holds up the interpreter.
PAGE_EVENTS = 2_000
PAGE_BYTES_MAX = 256 << 10

# A run, and the part `[start, stop)` of it that is meant.
Part = tuple[Run, int, int]


async def pages(store: StoreReads, low: int, high: int) -> AsyncIterator[list[Part]]:
    """The events with offsets in (low, high], as far as they are kept."""
    after = low
    while after < high:
        limit = min(PAGE_EVENTS, high - after)
        runs = await store.journal.read(after=after, limit=limit, bytes_max=PAGE_BYTES_MAX)
        cut = list(journal.cut(runs, after=after, limit=limit))
        if not cut:
            return
        yield cut
        run, _, stop = cut[-1]
        after = run.offset + stop - 1


async def read(store: StoreReads, low: int, high: int) -> AsyncIterator[Part]:
    """The same, run by run."""
    slices = Slices()
    async for page in pages(store, low, high):
        for part in page:
            await slices.turn()
            yield part
