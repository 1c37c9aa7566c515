"""How a verb of the store becomes a call of a group.

A part of the engine writes its verbs for a line: `on_queue` and `on_listener` make of them what
the core calls, with the id of a queue or of a listener in its place.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from courier.core.errors import StoreDamaged
from courier.store.engine.book import Book
from courier.store.engine.disk import DiskRoom
from courier.store.engine.joins import Alone
from courier.store.engine.lines import PushLine, QueueLine

P = ParamSpec("P")
T = TypeVar("T")

# How many numbers are asked for at a time; some cost a statement or two.
STATS_PART_MAX = 200


class GroupWriter(Protocol):
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


class PassTime(Protocol):
    async def pass_time(self, now_ms: int) -> None:
        """What every verb does first."""
        ...


class GroupRunner:
    """Runs verbs in groups. `writer` and `time` are put in place once the engine is whole."""

    writer: GroupWriter
    time: PassTime

    def __init__(self, book: Book, room: DiskRoom) -> None:
        self.book = book
        self.room = room

    async def run(self, verb: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a verb in a group."""
        try:
            return await self.writer.submit(Alone(verb))
        except StoreDamaged as error:
            self.note_damage(error)
            raise

    def note_damage(self, error: StoreDamaged) -> None:
        """Once damage was met the store says so until it is opened again."""
        self.room.met_damage(f"{error.what} {error.key}")

    async def in_parts(
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
                await self.time.pass_time(now_ms)
                return await part(those)

            found |= await self.run(run)
        return found


class Verbs:
    """A part of the engine that has verbs of the store."""

    def __init__(self, calls: GroupRunner) -> None:
        self.calls = calls


S = TypeVar("S", bound=Verbs)


def on_queue(
    verb: Callable[Concatenate[S, QueueLine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, str, P], Coroutine[Any, Any, T]]:
    """A verb on a queue runs in a group: time passes, and the queue must be there."""

    @wraps(verb)
    async def call(self: S, queue: str, /, *args: P.args, **named: P.kwargs) -> T:
        calls, now_ms = self.calls, cast(int, named["now_ms"])

        async def run() -> T:
            await calls.time.pass_time(now_ms)
            return await verb(self, calls.book.line(queue), *args, **named)

        return await calls.run(run)

    return call


def on_listener(
    verb: Callable[Concatenate[S, QueueLine, PushLine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, str, P], Coroutine[Any, Any, T]]:
    """The same of a verb on a listener and its queue."""

    @wraps(verb)
    async def call(self: S, listener: str, /, *args: P.args, **named: P.kwargs) -> T:
        calls, now_ms = self.calls, cast(int, named["now_ms"])

        async def run() -> T:
            await calls.time.pass_time(now_ms)
            return await verb(self, *calls.book.push_line(listener), *args, **named)

        return await calls.run(run)

    return call


def takes_space(
    verb: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A verb that adds to what is stored raises OutOfSpace below the low-water mark."""

    @wraps(verb)
    async def call(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        self.calls.room.require_space()
        return await verb(self, *args, **named)

    return call
