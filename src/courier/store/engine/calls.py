"""How a verb becomes a call of a group."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from courier.core.errors import StoreDamaged
from courier.store.engine.disk import Disk, Room
from courier.store.engine.engine import Engine
from courier.store.engine.joins import Alone
from courier.store.engine.lines import PushLine, QueueLine

T = TypeVar("T")

# How many numbers are asked for at a time; some cost a statement or two.
STATS_PART_MAX = 200


class Writer(Protocol):
    """Runs calls in groups, each in one transaction, and answers once it is durable."""

    groups: int
    calls: int
    doubts: int

    def submit(self, op: Callable[[], T]) -> "asyncio.Future[T]": ...

    def require_no_doubt(self) -> None:
        """Raises StoreUnavailable while the last commit has failed and may yet be found."""
        ...

    async def current(self) -> None:
        """Until this node knows all that others had written before."""
        ...

    def unseen(self) -> "asyncio.Future[None] | None":
        """See `HealthVerbs`."""
        ...

    async def spread(self) -> None:
        """Until every node knows what this one has written."""
        ...

    async def close(self) -> None: ...


class Calls:
    """Runs verbs in groups."""

    def __init__(self, disk: Disk, room: Room, engine: Engine, writer: Writer) -> None:
        self.disk = disk
        self.room = room
        self.engine = engine
        self.writer = writer

    async def _run(self, verb: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a verb in a group."""
        return await self._counted(self.writer.submit(Alone(verb)))

    async def _counted(self, answer: "asyncio.Future[T]") -> T:
        try:
            return await answer
        except StoreDamaged as error:
            self._note_damage(error)
            raise

    def _note_damage(self, error: StoreDamaged) -> None:
        """Once damage was met the store says so until it is opened again."""
        self.room.met_damage(f"{error.what} {error.key}")

    async def _on(
        self, queue: str, now_ms: int, verb: Callable[[QueueLine], Coroutine[Any, Any, T]]
    ) -> T:
        """Run a verb on a queue: time passes, and the queue must be there."""

        async def run() -> T:
            return await verb(await self.engine.enter(queue, now_ms))

        return await self._run(run)

    async def _on_listener(
        self,
        listener: str,
        now_ms: int,
        verb: Callable[[QueueLine, PushLine], Coroutine[Any, Any, T]],
    ) -> T:
        """Run a verb on a listener: time passes, and the listener and its queue must be there."""

        async def run() -> T:
            return await verb(*await self.engine.enter_pushes(listener, now_ms))

        return await self._run(run)

    async def _in_parts(
        self,
        ids: Sequence[str],
        now_ms: int,
        part: Callable[[Sequence[str]], Coroutine[Any, Any, dict[str, T]]],
    ) -> dict[str, T]:
        """Ask for a few at a time, so that others have their turn between."""
        found: dict[str, T] = {}
        for first in range(0, len(ids), STATS_PART_MAX):
            those = ids[first : first + STATS_PART_MAX]

            async def run(those: Sequence[str] = those) -> dict[str, T]:
                await self.engine.time.pass_time(now_ms)
                return await part(those)

            found |= await self._run(run)
        return found
