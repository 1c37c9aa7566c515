"""Attempts to push, as the journal has them: newest first, of one listener or one message."""

from msgspec import Struct

from courier import ids
from courier.core import journal
from courier.core.store import JournalReads
from courier.core.types import Queue, Run

LIMIT_MAX = 1_000
# One answer looks at this many events, everybody's, and says how far it has come.
LOOKED_MAX = 200_000
STEP = 2_000
# Pages are small: decoding one holds up the interpreter.
STEP_BYTES_MAX = 256 << 10
_KINDS = ("pushed", "push_failed")


class Attempt(Struct, frozen=True):
    """`status` is 0 and `error` says why where no answer came. `delay_ms` is until the next one,
    None after a success and after the last attempt.
    """

    offset: int
    at_ms: int
    listener: str
    message: str
    attempt: int
    ok: bool
    status: int
    duration_ms: int
    error: str = ""
    answer: str = ""
    delay_ms: int | None = None


class Attempts(Struct, frozen=True):
    """Older ones are before the offset `next`, None at the end of what is kept."""

    attempts: list[Attempt]
    next: int | None


async def read(
    past: JournalReads,
    queue: Queue,
    *,
    listener: str = "",
    message: str = "",
    before: int | None = None,
    limit: int,
) -> Attempts:
    """Those on the queue, to the listener (id) or of the message (generated id) if it is given."""
    head = await past.head()
    high = head.last + 1 if before is None else min(before, head.last + 1)
    floor = head.first
    if message:
        floor = max(floor, await past.offset_at(ids.message_ms(message) or 0) + 1)
    seq = ids.message_seq(message, queue=queue.id) if message else None
    looked_from = max(floor, high - LOOKED_MAX)
    found: list[Attempt] = []
    while high > looked_from and len(found) < limit:
        low = max(looked_from, high - STEP)
        page = await _between(past, queue.id, low, high)
        wanted = [
            each
            for each in page
            if (not listener or each.listener == listener)
            and (seq is None or ids.message_seq(each.message, queue=queue.id) == seq)
        ]
        found += wanted[::-1]
        high = low
    if len(found) > limit:
        return Attempts(found[:limit], found[limit - 1].offset)
    return Attempts(found, high if high > floor else None)


async def _between(past: JournalReads, queue: str, low: int, high: int) -> list[Attempt]:
    """Attempts of the queue with offsets in [low, high), oldest first."""
    found: list[Attempt] = []
    after = low - 1
    while after < high - 1:
        limit = high - 1 - after
        runs = await past.read(after=after, limit=limit, bytes_max=STEP_BYTES_MAX)
        cut = list(journal.cut(runs, after=after, limit=limit))
        if not cut:
            break
        for run, start, stop in cut:
            after = run.offset + stop - 1
            if run.kind in _KINDS and run.queue == queue:
                found += _attempts(run, start, stop)
    return found


def _attempts(run: Run, start: int, stop: int) -> list[Attempt]:
    names = ("detail", "published_ms", "seq", "attempt", "delay_ms")
    columns = (journal.column(run, name)[start:stop] for name in names)
    return [
        Attempt(
            offset=run.offset + start + place,
            at_ms=run.at_ms,
            listener=detail["listener"],
            message=ids.message_id(published_ms=published_ms, seq=seq, queue=run.queue),
            attempt=attempt,
            ok=run.kind == "pushed",
            status=detail["status"],
            duration_ms=detail["duration_ms"],
            error=detail.get("error", ""),
            answer=detail.get("answer", ""),
            delay_ms=delay_ms if run.kind == "push_failed" else None,
        )
        for place, (detail, published_ms, seq, attempt, delay_ms) in enumerate(
            zip(*columns, strict=True)
        )
    ]
