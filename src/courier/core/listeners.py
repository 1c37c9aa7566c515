"""Listeners: where a queue's messages are pushed to."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.core.decider import Decider
from courier.core.errors import Conflict, InvalidRequest, NotFound, OverLimit
from courier.core.records import Change, Records
from courier.core.store import PushReads
from courier.core.types import (
    BROKER,
    DAY_MS,
    Actor,
    AnyRecord,
    Listener,
    Liveness,
    Queue,
    Secret,
    Tenant,
)

LISTENERS_MAX = 100
# A secret that was replaced signs for this long beside the new one.
OLD_SECRET_MS = DAY_MS
SECRETS_MAX = 5
BACKFILL_STEP = 500
BACKFILL_STEPS_MAX = 100
RETRIES_MAX = 10_000
RETRY_STEP = 200
MISSED_LOOKED_MAX = 100
# Failed pushes that are read together, each with up to a KiB of what came of it.
MISSED_PAGE = 500
TITLE_RULE = (
    "4 to 64 letters, digits, dots, slashes, underscores and hyphens, "
    "and begin with a letter or digit"
)
_TITLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]{3,63}", re.ASCII)


class Retried(Struct, frozen=True):
    """How many are pushed again; `more`: there are older ones that are not."""

    retried: int
    more: bool


class Backfilled(Struct, frozen=True):
    """How many messages were bound; those after `next_seq` are still to be looked at, if any."""

    bound: int
    next_seq: int | None


async def missed(pushes: PushReads, listener: Listener, *, limit: int, now_ms: int) -> list[str]:
    """`PushVerbs.missed` of many, a page at a time."""
    found: list[str] = []
    before = 0
    while len(found) < limit:
        wanted = min(MISSED_PAGE, limit - len(found))
        page = await pushes.missed(listener.id, limit=wanted, now_ms=now_ms, before_seq=before)
        found += page
        if len(page) < wanted:
            break
        before = ids.message_seq(page[-1], queue=listener.parent) or 0
    return found


def record_name(queue: str, title: str) -> str:
    """Titles are unique on their queue, names of records in their tenant."""
    return f"{queue}/{title}"


def check_title(title: str) -> None:
    """Raises InvalidRequest."""
    if not _TITLE.fullmatch(title):
        raise InvalidRequest("name", f"must have {TITLE_RULE}, not '{title[:80]}'")


class Listeners(Decider):
    def get(self, id: str) -> Listener | None:
        return self._records.get(Listener, id)

    def of_queue(self, queue: str, id: str) -> Listener:
        return _of_queue(self._records, queue, id)

    async def create(self, listener: Listener, *, actor: Actor) -> None:
        """Whatever is published from now on is pushed to it."""

        def decide(records: Records) -> Change[None]:
            records.require(Queue, listener.parent)
            others = _check_title(records, listener)
            if len(others) >= LISTENERS_MAX:
                raise OverLimit("listeners of a queue", limit=LISTENERS_MAX, actual=len(others) + 1)
            return Change(puts=[listener])

        await self._change(decide, actor=actor)

    async def update(
        self, queue: str, id: str, edit: Callable[[Listener], Listener], *, actor: Actor
    ) -> Listener:
        """Pushes that are still to be made follow the change."""

        def decide(records: Records) -> Change[Listener]:
            listener = edit(_of_queue(records, queue, id))
            _check_title(records, listener)
            listener = replace(
                listener,
                name=record_name(queue, listener.title),
                modified_ms=self._clock.now_ms(),
            )
            return Change(puts=[listener], answer=listener)

        return await self._change(decide, actor=actor)

    async def rotate(self, queue: str, id: str, secret: Secret, *, actor: Actor) -> Listener:
        """Sign with a new secret, and for a day with the old one too."""
        now_ms = self._clock.now_ms()

        def rotated(listener: Listener) -> Listener:
            old = [
                replace(each, until_ms=now_ms + OLD_SECRET_MS) if each.until_ms is None else each
                for each in listener.secrets
                if each.until_ms is None or each.until_ms > now_ms
            ]
            return replace(listener, secrets=(secret, *old[: SECRETS_MAX - 1]))

        return await self.update(queue, id, rotated, actor=actor)

    async def disable(self, id: str, by: Literal["user", "gone"], *, actor: Actor) -> None:
        """Let its pushes wait until somebody enables it. No effect if it was deleted."""

        def decide(records: Records) -> Change[None]:
            listener = records.get(Listener, id)
            if listener is None or listener.disabled_by:
                return Change()
            now_ms = self._clock.now_ms()
            return Change(puts=[replace(listener, disabled_by=by, modified_ms=now_ms)])

        await self._change(decide, actor=actor)

    async def note_liveness(self, notes: Sequence[Liveness]) -> None:
        """Write them down; those whose listener is gone must leave nothing behind."""
        now_ms = self._clock.now_ms()

        def decide(records: Records) -> Change[None]:
            puts: list[AnyRecord] = []
            for liveness in notes:
                listener = records.get(Listener, liveness.id)
                if listener is None or records.get(Tenant, listener.tenant) is None:
                    continue
                puts.append(liveness)
                inactive = liveness.state == "inactive"
                if inactive != bool(listener.inactive_ms):
                    # The journal, and so subscribers, hear of this change alone.
                    puts.append(replace(listener, inactive_ms=now_ms if inactive else 0))
            return Change(puts=puts)

        await self._change(decide, actor=BROKER)

    async def delete(self, queue: str, id: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=with_liveness(records, _of_queue(records, queue, id)))

        await self._change(decide, actor=actor)

    async def retry(self, id: str, seq: int) -> bool:
        """Push the message now; False where its push is neither retrying nor exhausted."""
        return await self._store.pushes.retry(id, seq, now_ms=self._clock.now_ms())

    async def retry_failed(self, listener: Listener) -> Retried:
        """Push again, now, what failed and did not succeed since; the newest RETRIES_MAX of it."""
        now_ms = self._clock.now_ms()
        found = await missed(self._store.pushes, listener, limit=RETRIES_MAX + 1, now_ms=now_ms)
        seqs = [ids.message_seq(id, queue=listener.parent) or 0 for id in found[:RETRIES_MAX]]
        retried = 0
        for first in range(0, len(seqs), RETRY_STEP):
            retrying = (
                self._store.pushes.retry(listener.id, seq, now_ms=now_ms)
                for seq in seqs[first : first + RETRY_STEP]
            )
            retried += sum(await asyncio.gather(*retrying))
        return Retried(retried, len(found) > RETRIES_MAX)

    async def next_attempt_ms(self, listener: Listener) -> int | None:
        """When the first of what failed lately is tried again; None: nothing is waiting for it."""
        now_ms = self._clock.now_ms()
        due = []
        verbs = self._store.pushes
        for id in await verbs.missed(listener.id, limit=MISSED_LOOKED_MAX, now_ms=now_ms):
            seq = ids.message_seq(id, queue=listener.parent) or 0
            pushes = await verbs.of_message(listener.parent, seq, now_ms=now_ms)
            due += [p.due_ms for p in pushes if p.listener == listener.id and p.due_ms]
        return min(due, default=None)

    async def backfill(
        self, listener: Listener, *, since_ms: int, until_ms: int, after_seq: int
    ) -> Backfilled:
        """Also push what was published in [since_ms, until_ms) and is still there.

        Looks at a certain number of messages at most, and says where to go on.
        """
        # What is published from now on is bound already.
        tail = await self._store.messages.tail(listener.parent)
        bound = 0
        for _ in range(BACKFILL_STEPS_MAX):
            more, last = await self._store.pushes.backfill(
                listener.id,
                since_ms=since_ms,
                until_ms=until_ms,
                after_seq=after_seq,
                limit=BACKFILL_STEP,
                now_ms=self._clock.now_ms(),
            )
            bound += more
            if not last or last >= tail:
                return Backfilled(bound, None)
            after_seq = last
        return Backfilled(bound, after_seq)


def _of_queue(records: Records, queue: str, id: str) -> Listener:
    listener = records.get(Listener, id)
    if listener is None or listener.parent != queue:
        raise NotFound("listener", id)
    return listener


def _check_title(records: Records, listener: Listener) -> list[Listener]:
    """The other listeners of the queue; raises Conflict when one has the same title."""
    known = records.scan(Listener, parent=listener.parent)
    others = [each for each in known if each.id != listener.id]
    if any(other.title == listener.title for other in others):
        raise Conflict("listener", listener.title)
    return others


def with_liveness(records: Records, *listeners: Listener) -> list[AnyRecord]:
    """All that goes when these listeners do."""
    found: list[AnyRecord] = []
    for listener in listeners:
        found += [listener, *records.scan(Liveness, parent=listener.id)]
    return found
