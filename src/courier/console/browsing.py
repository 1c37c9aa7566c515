"""Messages of a queue, read without leasing: by place, by time, by what they hold."""

import time
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct

from courier.core.limits import ANSWER_BYTES_MAX, Allowance
from courier.core.matching import Sought, matcher
from courier.core.store import StoreReads
from courier.core.types import Message, MessageState, Queue, Standing
from courier.words import preview

ROWS = 50
PAGE = 500
# One answer looks for this long, and says how far it has come.
SEARCHED_S_MAX = 1.0
SEARCH_CHARACTERS_MAX = 500
# Sequences among which messages of one state are looked for at a time.
WINDOW_MAX = 1 << 20


class MessageRow(Struct):
    """`until_ms` is when its lease or its delay ends, 0 for a message that waits."""

    id: str
    seq: int
    published_ms: int
    age_ms: int
    attempts: int
    size: int
    body: str
    group: str = ""
    buried_from: str = ""
    state: str = ""
    until_ms: int = 0


class Wanted(Struct, frozen=True):
    """Which messages: text in bodies, headers or ids, or `path` = `text` in JSON bodies.

    `state`: only those that stand so. `origin`: only dead letters of the queue with that id.
    """

    text: str = ""
    path: str = ""
    since_ms: int = 0
    until_ms: int = 1 << 62
    state: MessageState | None = None
    origin: str = ""

    @property
    def searches(self) -> bool:
        return bool(self.text or self.path)


class FoundPage(Struct):
    """`next` is where the next page begins, None at the end. Of a search that is not over:
    `share` of the queue, and up to which time."""

    rows: list[MessageRow]
    next: int | None = None
    share: float = 1.0
    last_ms: int = 0


class Window(Struct):
    """Messages between two sequences, by sequence. `end` is the last that was looked at, 0 when
    none is left; `cut`: there was no room for the bodies of all of them."""

    messages: list[Message]
    end: int = 0
    cut: bool = False


async def browse(
    store: StoreReads,
    queue: Queue,
    wanted: Wanted,
    row: Callable[[Message], MessageRow],
    *,
    newest: bool,
    after: int,
    now_ms: int,
) -> FoundPage:
    """A page of messages after (or, newest first, before) the sequence `after`."""
    found = FoundPage([])
    until_s = time.perf_counter() + SEARCHED_S_MAX
    low, high = await _span(store, queue, wanted, now_ms)
    here = (low, min(high, after or high)) if newest else (max(low, after), high)
    limit = PAGE if wanted.origin else ROWS + 1
    async for page, place in pages(
        store, queue, wanted, here, lambda: now_ms, limit=limit, newest=newest
    ):
        hits = page[: ROWS - len(found.rows)]
        found.rows += [row(message) for message in hits]
        if len(found.rows) == ROWS and (place or len(hits) < len(page)):
            found.next = found.rows[-1].seq
            break
        if time.perf_counter() > until_s:
            found.next = place or None
            break
    if wanted.searches and found.next:
        await _say_how_far(store, queue, found, (low, high), now_ms, newest=newest)
    standing = await _standing(store, queue, [each.seq for each in found.rows], now_ms)
    for each in found.rows:
        if each.seq in standing:  # else it is gone by now
            each.state, each.until_ms = standing[each.seq].state, standing[each.seq].until_ms or 0
    return found


async def _span(store: StoreReads, queue: Queue, wanted: Wanted, now_ms: int) -> tuple[int, int]:
    """The sequences between which messages of the wanted time lie."""
    if wanted.since_ms:
        low = await first_from(store, queue, wanted.since_ms, now_ms)
    else:
        page = await store.messages.browse(
            queue.id, after_seq=0, limit=1, now_ms=now_ms, bodies=False
        )
        low = page[0].seq if page else 1
    if wanted.until_ms < 1 << 62:
        return low - 1, await first_from(store, queue, wanted.until_ms, now_ms)
    return low - 1, await store.messages.tail(queue.id) + 1


async def _say_how_far(
    store: StoreReads,
    queue: Queue,
    found: FoundPage,
    span: tuple[int, int],
    now_ms: int,
    *,
    newest: bool,
) -> None:
    assert found.next is not None
    low, high = span
    done = high - found.next if newest else found.next - low
    found.share = min(1.0, done / max(1, high - low - 1))
    page = await store.messages.browse(
        queue.id, after_seq=found.next - 1, limit=1, now_ms=now_ms, bodies=False
    )
    found.last_ms = page[0].published_ms if page else 0


async def _standing(
    store: StoreReads, queue: Queue, seqs: Sequence[int], now_ms: int
) -> dict[int, Standing]:
    found: dict[int, Standing] = {}
    for first, last in neighbours(sorted(seqs)):
        standing, _ = await store.messages.states(
            queue.id, after_seq=first - 1, before_seq=last + 1, limit=PAGE, now_ms=now_ms
        )
        found |= {each.seq: each for each in standing}
    return found


Pages = AsyncIterator[tuple[list[Message], int]]


async def pages(
    store: StoreReads,
    queue: Queue,
    wanted: Wanted,
    span: tuple[int, int],
    clock: Callable[[], int],
    *,
    limit: int,
    newest: bool = False,
) -> Pages:
    """Messages between two sequences that are wanted, whatever their time, by sequence or
    backwards; each page with the sequence it has come to, 0 at the end."""
    how = _found if wanted.searches else _backwards if newest else _forwards
    async for page, place in how(store, queue, wanted, span, clock, limit, newest):
        yield [each for each in page if _is_from(each, wanted.origin)], place


def _is_from(message: Message, origin: str) -> bool:
    return not origin or (message.origin is not None and message.origin.queue == origin)


async def _found(
    store: StoreReads,
    queue: Queue,
    wanted: Wanted,
    span: tuple[int, int],
    clock: Callable[[], int],
    limit: int,
    newest: bool,
) -> Pages:
    low, high = span
    while True:
        page, end = await store.messages.search(
            queue.id,
            Sought(wanted.text, wanted.path),
            after_seq=low,
            before_seq=high,
            limit=limit,
            now_ms=clock(),
            newest=newest,
        )
        if wanted.state and page:
            found = await _standing(store, queue, [each.seq for each in page], clock())
            those = {each.seq for each in found.values() if each.state == wanted.state}
            page = [each for each in page if each.seq in those]
        yield page, end
        if not end:
            return
        low, high = (low, end) if newest else (end, high)


async def _forwards(
    store: StoreReads,
    queue: Queue,
    wanted: Wanted,
    span: tuple[int, int],
    clock: Callable[[], int],
    limit: int,
    newest: bool,
) -> Pages:
    after, high = span
    while True:
        here = await window(store, queue, wanted, after, high, limit, clock())
        over = not 0 < here.end < high - 1
        yield here.messages, 0 if over else here.end
        if over:
            return
        after = here.end


async def _backwards(
    store: StoreReads,
    queue: Queue,
    wanted: Wanted,
    span: tuple[int, int],
    clock: Callable[[], int],
    limit: int,
    newest: bool,
) -> Pages:
    """The store reads forwards only, so this looks at windows, and skips what is gone."""
    floor, high = span
    width = limit
    while high > floor + 1:
        low = max(floor, high - 1 - width)
        here = await window(store, queue, wanted, low, high, limit, clock())
        more = here.cut or 0 < here.end < high - 1
        if more and width > 1:  # what is missing is the newest
            width = max(1, width // 2)
            continue
        # Few stand in a state that is rare, so there the next window is wider.
        width = min(WINDOW_MAX if wanted.state else limit, 2 * width)
        high = low + 1
        if here.messages or wanted.state:
            yield here.messages[::-1], high if high > floor + 1 else 0
        else:
            high = await _newest_below(store, queue, low + 1, clock()) + 1


async def window(
    store: StoreReads, queue: Queue, wanted: Wanted, low: int, high: int, limit: int, now_ms: int
) -> Window:
    """Looks at up to `limit` messages."""
    if wanted.state is None:
        allowance = Allowance(ANSWER_BYTES_MAX)
        page = await store.messages.browse(
            queue.id, after_seq=low, limit=limit, now_ms=now_ms, allowance=allowance
        )
        end = page[-1].seq if page and (len(page) == limit or allowance.cut) else 0
        return Window([each for each in page if each.seq < high], end, allowance.cut)
    standing, end = await store.messages.states(
        queue.id, after_seq=low, before_seq=high, limit=limit, now_ms=now_ms, state=wanted.state
    )
    found = await at(store, queue, [each.seq for each in standing], now_ms)
    found.end = found.messages[-1].seq if found.cut else end
    return found


async def at(store: StoreReads, queue: Queue, seqs: Sequence[int], now_ms: int) -> Window:
    """The messages with these sequences that are still there, as far as there is room."""
    found, allowance = Window([]), Allowance(ANSWER_BYTES_MAX)
    for first, last in neighbours(seqs):
        count = last - first + 1
        page = await store.messages.browse(
            queue.id, after_seq=first - 1, limit=count, now_ms=now_ms, allowance=allowance
        )
        found.messages += [each for each in page if each.seq <= last]
        found.cut = allowance.cut
        if found.cut:
            break
    return found


def neighbours(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last of each run of sequences without a gap."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


async def _newest_below(store: StoreReads, queue: Queue, high: int, now_ms: int) -> int:
    """The highest sequence below `high` that the queue has a message of, 0 for none."""
    low, found = 0, 0
    while low + 1 < high:
        middle = (low + high) // 2
        page = await store.messages.browse(
            queue.id, after_seq=middle - 1, limit=1, now_ms=now_ms, bodies=False
        )
        if page and page[0].seq < high:
            low = found = page[0].seq
        else:
            high = middle
    return found


async def first_from(store: StoreReads, queue: Queue, at_ms: int, now_ms: int) -> int:
    """The sequence from which on messages were published at that time or later."""
    low, high = 0, await store.messages.tail(queue.id) + 1
    while low + 1 < high:
        middle = (low + high) // 2
        page = await store.messages.browse(
            queue.id, after_seq=middle - 1, limit=1, now_ms=now_ms, bodies=False
        )
        if not page or page[0].published_ms >= at_ms:
            high = middle
        else:
            low = page[0].seq
    return high


def fitting(queue: Queue, wanted: Wanted) -> Callable[[Message], bool]:
    """Whether a message is wanted, whatever its time and state."""
    matches = matcher(queue.id, Sought(wanted.text, wanted.path)) if wanted.searches else None

    def fits(message: Message) -> bool:
        return _is_from(message, wanted.origin) and (matches is None or matches(message))

    return fits


def row(message: Message, opened: bytes | None, now_ms: int) -> MessageRow:
    """`opened` is the body in clear, None if the key may not read it."""
    return MessageRow(
        message.id,
        message.seq,
        message.published_ms,
        max(0, now_ms - message.published_ms),
        message.attempts,
        message.size,
        "" if opened is None else preview(opened),
        message.group or "",
        message.origin.queue if message.origin and message.origin.reason else "",
    )
