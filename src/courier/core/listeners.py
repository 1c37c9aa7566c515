"""Listeners: where a queue's messages are pushed to."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from courier.clock import Clock
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.store import Store
from courier.core.turns import Turn
from courier.core.types import BROKER, DAY_MS, Actor, AnyRecord, Listener, Liveness, Queue, Secret

LISTENERS_MAX = 100
# A secret that was replaced signs for this long beside the new one.
OLD_SECRET_MS = DAY_MS
SECRETS_MAX = 5
BACKFILL_STEP = 500
BACKFILL_STEPS_MAX = 100


class Backfilled(Struct, frozen=True):
    """How many messages were bound; those after `next_seq` are still to be looked at, if any."""

    bound: int
    next_seq: int | None


def record_name(queue: str, title: str) -> str:
    """Titles are unique on their queue, names of records in their tenant."""
    return f"{queue}/{title}"


class Listeners:
    def __init__(self, store: Store, clock: Clock, turn: Turn) -> None:
        self._store = store
        self._clock = clock
        self._turn = turn

    async def get(self, id: str) -> Listener | None:
        return await self._store.get(Listener, id)

    async def of_queue(self, queue: str, id: str) -> Listener:
        listener = await self.get(id)
        if listener is None or listener.parent != queue:
            raise NotFound("listener", id)
        return listener

    async def create(self, listener: Listener, *, actor: Actor) -> None:
        """Whatever is published from now on is pushed to it."""
        async with self._turn:
            if await self._store.get(Queue, listener.parent) is None:
                raise NotFound("queue", listener.parent)
            others = await self._check_title(listener)
            if len(others) >= LISTENERS_MAX:
                raise OverLimit("listeners of a queue", limit=LISTENERS_MAX, actual=len(others) + 1)
            await self._change(puts=[listener], actor=actor)

    async def update(
        self, queue: str, id: str, edit: Callable[[Listener], Listener], *, actor: Actor
    ) -> Listener:
        """Pushes that are still to be made follow the change."""
        async with self._turn:
            known = await self.of_queue(queue, id)
            listener = edit(known)
            await self._check_title(listener)
            listener = replace(
                listener,
                name=record_name(queue, listener.title),
                modified_ms=self._clock.now_ms(),
            )
            await self._change(puts=[listener], actor=actor)
            return listener

    async def _check_title(self, listener: Listener) -> list[Listener]:
        """The other listeners of the queue; raises Conflict when one has the same title."""
        known = await self._store.scan(Listener, parent=listener.parent)
        others = [each for each in known if each.id != listener.id]
        if any(other.title == listener.title for other in others):
            raise Conflict("listener", listener.title)
        return others

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
        """Let its pushes wait until somebody enables it. One that is gone is none to disable."""
        async with self._turn:
            listener = await self.get(id)
            if listener is not None and not listener.disabled_by:
                now_ms = self._clock.now_ms()
                disabled = replace(listener, disabled_by=by, modified_ms=now_ms)
                await self._change(puts=[disabled], actor=actor)

    async def note_liveness(self, liveness: Liveness) -> None:
        """Write it down, unless its listener is gone and must leave nothing behind."""
        async with self._turn:
            if await self.get(liveness.id) is not None:
                await self._change(puts=[liveness], actor=BROKER)

    async def delete(self, queue: str, id: str, *, actor: Actor) -> None:
        async with self._turn:
            listener = await self.of_queue(queue, id)
            await self._change(drops=await self.with_liveness(listener), actor=actor)

    async def with_liveness(self, *listeners: Listener) -> list[AnyRecord]:
        """All that goes when these listeners do."""
        found: list[AnyRecord] = []
        for listener in listeners:
            found += [listener, *await self._store.scan(Liveness, parent=listener.id)]
        return found

    async def backfill(
        self, listener: Listener, *, since_ms: int, until_ms: int, after_seq: int
    ) -> Backfilled:
        """Also push what was published in [since_ms, until_ms) and is still there.

        Looks at a certain number of messages at most, and says where to go on.
        """
        # What is published from now on is bound already.
        tail = await self._store.tail(listener.parent)
        bound = 0
        for _ in range(BACKFILL_STEPS_MAX):
            more, last = await self._store.backfill(
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

    async def _change(
        self,
        *,
        puts: list[AnyRecord] | None = None,
        drops: list[AnyRecord] | None = None,
        actor: Actor,
    ) -> None:
        now_ms = self._clock.now_ms()
        await self._store.change(puts=puts or [], drops=drops or [], actor=actor, now_ms=now_ms)
