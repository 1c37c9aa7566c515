"""Messages of a queue, read without leasing: by place, by time, by what they hold."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from courier.core.limits import ANSWER_BYTES_MAX, Allowance
from courier.core.store import Store
from courier.core.types import Message, MessageState, Queue
from courier.words import preview

ROWS = 50
PAGE = 500
# One answer looks at this many messages, or for this long, and says how far it has come.
SEARCHED_MAX = 20_000
SEARCHED_S_MAX = 0.5
SEARCH_CHARACTERS_MAX = 500
BODY_PARSED_BYTES_MAX = 1 << 20
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


class Found(Struct):
    """`next` is where the next page begins, None at the end; `looked` counts messages."""

    rows: list[MessageRow]
    next: int | None = None
    looked: int = 0
    sealed: int = 0
    last_ms: int = 0


class Window(Struct):
    """Messages between two sequences, by sequence. `end` is the last that was looked at, 0 when
    none is left; `cut`: there was no room for the bodies of all of them."""

    messages: list[Message]
    end: int = 0
    cut: bool = False


async def browse(
    store: Store,
    queue: Queue,
    wanted: Wanted,
    row: Callable[[Message], MessageRow],
    *,
    newest: bool,
    after: int,
    now_ms: int,
) -> Found:
    """A page of messages after (or, newest first, before) the sequence `after`."""
    found = Found([])
    until_s = time.perf_counter() + SEARCHED_S_MAX
    limit = PAGE if wanted.searches or wanted.origin else ROWS + 1
    pages, fits = _backwards if newest else forwards, fitting(wanted)
    async for page, place in pages(store, queue, wanted, after, limit, now_ms):
        hits = [message for message in page if fits(message)][: ROWS - len(found.rows)]
        found.rows += [row(message) for message in hits]
        full = len(found.rows) == ROWS and bool(place or hits[-1] is not page[-1])
        looked = page[: page.index(hits[-1]) + 1] if full else page
        found.looked += len(looked)
        if wanted.searches:
            found.sealed += sum([message.sealed is not None for message in looked])
        if looked:
            found.last_ms = looked[-1].published_ms
        if full:
            found.next = found.rows[-1].seq
            break
        if time.perf_counter() > until_s or found.looked >= SEARCHED_MAX:
            found.next = place or None
            break
    return await _with_states(store, queue, found, now_ms)


async def _with_states(store: Store, queue: Queue, found: Found, now_ms: int) -> Found:
    """How each of the rows stands; one that is gone by now has no state."""
    rows = {each.seq: each for each in found.rows}
    for first, last in neighbours(sorted(rows)):
        standing, _ = await store.messages.states(
            queue.id, after_seq=first - 1, before_seq=last + 1, limit=ROWS, now_ms=now_ms
        )
        for each in standing:
            rows[each.seq].state, rows[each.seq].until_ms = each.state, each.until_ms or 0
    return found


async def forwards(
    store: Store, queue: Queue, wanted: Wanted, after: int, limit: int, now_ms: int
) -> AsyncIterator[tuple[list[Message], int]]:
    """Pages of messages by sequence, each with the last sequence that was looked at for it."""
    if wanted.since_ms:
        after = max(after, await first_from(store, queue, wanted.since_ms, now_ms) - 1)
    while True:
        here = await window(store, queue, wanted, after, 1 << 62, limit, now_ms)
        shown = [each for each in here.messages if each.published_ms < wanted.until_ms]
        over = not here.end or len(shown) < len(here.messages)
        yield shown, 0 if over else here.end
        if over:
            return
        after = here.end


async def _backwards(
    store: Store, queue: Queue, wanted: Wanted, before: int, limit: int, now_ms: int
) -> AsyncIterator[tuple[list[Message], int]]:
    """The store reads forwards only, so this looks at windows, and skips what is gone."""
    floor = 0
    if wanted.since_ms:
        floor = await first_from(store, queue, wanted.since_ms, now_ms) - 1
    high = before if before else await store.messages.tail(queue.id) + 1
    if wanted.until_ms < 1 << 62:
        high = min(high, await first_from(store, queue, wanted.until_ms, now_ms))
    width = limit
    while high > floor + 1:
        low = max(floor, high - 1 - width)
        here = await window(store, queue, wanted, low, high, limit, now_ms)
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
            high = await _newest_below(store, queue, low + 1, now_ms) + 1


async def window(
    store: Store, queue: Queue, wanted: Wanted, low: int, high: int, limit: int, now_ms: int
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


async def at(store: Store, queue: Queue, seqs: Sequence[int], now_ms: int) -> Window:
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


async def _newest_below(store: Store, queue: Queue, high: int, now_ms: int) -> int:
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


async def first_from(store: Store, queue: Queue, at_ms: int, now_ms: int) -> int:
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


def fitting(wanted: Wanted) -> Callable[[Message], bool]:
    """Whether a message is wanted; a body that is sealed is not searched."""
    text, path, origin = wanted.text, wanted.path, wanted.origin
    needle = text.encode("utf-8", "surrogatepass")

    def fits(message: Message) -> bool:
        if origin and not (message.origin and message.origin.queue == origin):
            return False
        if path:
            return message.sealed is None and _holds(message, path, text)
        if not text:
            return True
        if message.sealed is not None:
            return False
        if needle in message.body or text in message.id:
            return True
        headers = message.headers
        return headers is not None and any(
            text in name or text in str(value) for name, value in headers.items()
        )

    return fits


def _holds(message: Message, path: str, text: str) -> bool:
    """Whether the JSON body has that value at that path, such as customer.id."""
    if len(message.body) > BODY_PARSED_BYTES_MAX:
        return False
    try:
        value: Any = msgspec.json.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    for step in path.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10:
            if int(step) >= len(value):
                return False
            value = value[int(step)]
        else:
            return False
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return bool(shown == text)


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
