"""Messages of a queue, read without leasing: by place, by time, by what they hold."""

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from courier.console.words import preview
from courier.core.store import Store
from courier.core.types import Message, Queue

ROWS = 50
PAGE = 500
# One answer looks at this many messages, or for this long, and says how far it has come.
SEARCHED_MAX = 20_000
SEARCHED_S_MAX = 0.5
SEARCH_CHARACTERS_MAX = 500
BODY_PARSED_BYTES_MAX = 1 << 20


class MessageRow(Struct):
    id: str
    seq: int
    published_ms: int
    age_ms: int
    attempts: int
    size: int
    body: str
    group: str = ""
    buried_from: str = ""


class Wanted(Struct, frozen=True):
    """Which messages: text in bodies, headers or ids, or `path` = `text` in JSON bodies."""

    text: str = ""
    path: str = ""
    since_ms: int = 0
    until_ms: int = 1 << 62

    @property
    def searches(self) -> bool:
        return bool(self.text or self.path)


class Found(Struct):
    """`next` is where the next page begins, None at the end; `looked` counts messages."""

    messages: list[Message]
    next: int | None = None
    looked: int = 0
    sealed: int = 0
    last_ms: int = 0


async def browse(
    store: Store, queue: Queue, wanted: Wanted, *, newest: bool, after: int, now_ms: int
) -> Found:
    """A page of messages after (or, newest first, before) the sequence `after`."""
    found = Found([])
    until_s = time.perf_counter() + SEARCHED_S_MAX
    limit = PAGE if wanted.searches else ROWS + 1
    pages = _backwards if newest else _forwards
    async for page in pages(store, queue, wanted, after, limit, now_ms):
        for message in page:
            found.looked += 1
            found.last_ms = message.published_ms
            if len(found.messages) == ROWS:
                found.next = found.messages[-1].seq
                return found
            if message.sealed and wanted.searches:
                found.sealed += 1
            elif matches(message, wanted):
                found.messages.append(message)
        late = time.perf_counter() > until_s or found.looked >= SEARCHED_MAX
        if wanted.searches and late:
            found.next = page[-1].seq
            return found
    return found


async def _forwards(
    store: Store, queue: Queue, wanted: Wanted, after: int, limit: int, now_ms: int
) -> AsyncIterator[list[Message]]:
    if wanted.since_ms:
        after = max(after, await first_from(store, queue, wanted.since_ms, now_ms) - 1)
    while True:
        page = await store.browse(queue.id, after_seq=after, limit=limit, now_ms=now_ms)
        shown = [each for each in page if each.published_ms < wanted.until_ms]
        if shown:
            yield shown
        if not page or len(shown) < len(page):
            return
        after = page[-1].seq


async def _backwards(
    store: Store, queue: Queue, wanted: Wanted, before: int, limit: int, now_ms: int
) -> AsyncIterator[list[Message]]:
    """The store browses forwards only, so this looks at windows, and skips what is gone."""
    floor = 0
    if wanted.since_ms:
        floor = await first_from(store, queue, wanted.since_ms, now_ms) - 1
    high = before if before else await store.tail(queue.id) + 1
    if wanted.until_ms < 1 << 62:
        high = min(high, await first_from(store, queue, wanted.until_ms, now_ms))
    while high > floor + 1:
        low = max(floor, high - 1 - limit)
        page = await store.browse(queue.id, after_seq=low, limit=limit, now_ms=now_ms)
        inside = [each for each in page if each.seq < high]
        if inside:
            yield inside[::-1]
            high = low + 1
        else:
            high = await _newest_below(store, queue, low + 1, now_ms) + 1


async def _newest_below(store: Store, queue: Queue, high: int, now_ms: int) -> int:
    """The highest sequence below `high` that the queue has a message of, 0 for none."""
    low, found = 0, 0
    while low + 1 < high:
        middle = (low + high) // 2
        page = await store.browse(queue.id, after_seq=middle - 1, limit=1, now_ms=now_ms)
        if page and page[0].seq < high:
            low = found = page[0].seq
        else:
            high = middle
    return found


async def first_from(store: Store, queue: Queue, at_ms: int, now_ms: int) -> int:
    """The sequence from which on messages were published at that time or later."""
    low, high = 0, await store.tail(queue.id) + 1
    while low + 1 < high:
        middle = (low + high) // 2
        page = await store.browse(queue.id, after_seq=middle - 1, limit=1, now_ms=now_ms)
        if not page or page[0].published_ms >= at_ms:
            high = middle
        else:
            low = page[0].seq
    return high


def matches(message: Message, wanted: Wanted) -> bool:
    if wanted.path:
        return _holds(message, wanted.path, wanted.text)
    if not wanted.text:
        return True
    if wanted.text.encode("utf-8", "surrogatepass") in message.body or wanted.text in message.id:
        return True
    headers = message.headers or {}
    return any(wanted.text in name or wanted.text in str(value) for name, value in headers.items())


def _holds(message: Message, path: str, text: str) -> bool:
    """Whether the JSON body has that value at that path, such as customer.id."""
    if len(message.body) > BODY_PARSED_BYTES_MAX:
        return False
    try:
        value: Any = msgspec.json.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
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
