"""How a verb of the store becomes a call of a group, and how a group is run: calls that are alike
(the same verb, queue and caller) as one.

A part of the engine writes its verbs for a line: `on_queue` and `on_listener` make of them what
the core calls, with the id of a queue or of a listener in its place.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from courier.core.errors import Rejected, StoreDamaged, StoreUnavailable
from courier.store.engine.book import Book
from courier.store.engine.disk import DiskRoom
from courier.store.engine.lines import PushLine, QueueLine

P = ParamSpec("P")
T = TypeVar("T")

# How many numbers are asked for at a time; some cost a statement or two.
STATS_PART_MAX = 200
# Longest time that further calls are waited for while they keep coming.
GATHER_S_MAX = 0.005
# The calls of a group hold the loop together; after so much work the rest is the next group's.
GROUP_S_MAX = 0.03
# Longest time that callers of a commit in doubt wait for a true answer.
DOUBT_S_MAX = 5.0
DOUBT_RETRY_S = 0.1
# Most calls that wait while a commit is in doubt.
WAITING_MAX = 10_000


def driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end what never waits: on an embedded disk nothing inside a group does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("a group of an embedded disk waited for something")


class Later:
    """Instead of an answer: the call is run again, in the next group."""


LATER = Later()


# A verb, what it is given beside the calls, and whatever else keeps calls apart.
Key = tuple[Callable[..., Coroutine[Any, Any, Sequence[Any]]], tuple[Hashable, ...], Hashable]


class Joined:
    """What one call asks for. The verb answers several that have the same key, each with a value or
    with a Rejected of its own, and raises a Rejected that is about them all; all but the first may
    be LATER. They run when the first of them would have, or (`late`) after all others."""

    __slots__ = ("key", "late", "what")

    def __init__(self, key: Key, what: Any, *, late: bool = False) -> None:
        self.key = key
        self.what = what
        self.late = late


# What one call asks for; unless it has joined, by itself. A verb that raises Rejected must not have
# written anything.
Op = Callable[[], Coroutine[Any, Any, T]] | Joined


class GroupCall:
    """`alone`: no other call shares its transaction."""

    __slots__ = ("alone", "error", "future", "op", "value")

    def __init__(self, op: Op[Any], future: "asyncio.Future[Any]") -> None:
        self.op = op
        self.alone = False
        self.future = future
        self.value: Any = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)

    def forget(self) -> None:
        """What came of it has not happened: it is to run once more."""
        self.error = self.value = None


def take(waiting: "deque[GroupCall]", calls_max: int) -> list[GroupCall]:
    """The calls of the next group."""
    if len(waiting) <= calls_max and not any([call.alone for call in waiting]):
        calls = [call for call in waiting if not call.future.cancelled()]
        waiting.clear()
        return calls
    calls = []
    while waiting and len(calls) < calls_max:
        if waiting[0].alone and calls:
            break
        call = waiting.popleft()
        if not call.future.cancelled():
            calls.append(call)
        if call.alone:
            break
    return calls


def put_back(calls: Sequence[GroupCall], waiting: "deque[GroupCall]") -> None:
    """Each of them runs once more, by itself."""
    for call in reversed(calls):
        call.forget()
        call.alone = True
        waiting.appendleft(call)


def is_of_one_call(error: BaseException) -> bool:
    """One bad call must not fail its neighbours; a disk that is away fails them all."""
    return isinstance(error, StoreDamaged) or not isinstance(error, StoreUnavailable)


def refuse(calls: Sequence[GroupCall], error: BaseException) -> None:
    """All of them, also those that were rejected: by a state that is no longer true."""
    for call in calls:
        call.error = error
        call.answer()


def units(calls: Sequence[GroupCall]) -> list[list[GroupCall]]:
    """What is run at a time, in order. Calls of a group are concurrent, so any is right."""
    joined: dict[Hashable, list[GroupCall]] = {}
    found: list[list[GroupCall]] = []
    late: list[list[GroupCall]] = []
    last: Hashable = None
    those: list[GroupCall] = []
    for call in calls:
        op = call.op
        if not isinstance(op, Joined):
            found.append([call])
            continue
        # Most are like the one before, and it costs less to compare a key than to look it up.
        if op.key != last:
            last = op.key
            if last not in joined:
                joined[last] = []
                (late if op.late else found).append(joined[last])
            those = joined[last]
        those.append(call)
    return found + late


async def run_unit(calls: Sequence[GroupCall]) -> list[GroupCall]:
    """Run what is one, and note what came of it; those of the calls that are for the next group."""
    op = calls[0].op
    try:
        if isinstance(op, Joined):
            verb, same, _ = op.key
            return _share(calls, await verb([call.op.what for call in calls], *same))  # type: ignore[union-attr]
        calls[0].value = await op()
    except Rejected as error:
        _reject(calls, error)
    return []


def answer(calls: Sequence[GroupCall]) -> None:
    """What they are about is durable."""
    for call in calls:
        call.answer()


def _share(calls: Sequence[GroupCall], answers: Sequence[Any]) -> list[GroupCall]:
    """Each call of a unit gets its own answer. Returns those that are for the next group."""
    later: list[GroupCall] = []
    for call, answer in zip(calls, answers, strict=True):
        if isinstance(answer, Rejected):
            call.error = answer
        elif answer is LATER:
            later.append(call)
        else:
            call.value = answer
    return later


def _reject(calls: Sequence[GroupCall], error: Rejected) -> None:
    """All of them are rejected. Each gets its own error: a traceback belongs to one exception."""
    for call in calls:
        call.error = type(error).__new__(type(error))
        call.error.__dict__.update(error.__dict__)
        call.error.args = error.args


class GroupWriter(Protocol):
    """Runs calls in groups, each in one transaction, and answers once it is durable."""

    groups: int
    calls: int
    doubts: int

    def submit(self, op: Op[T]) -> "asyncio.Future[T]": ...

    def require_no_doubt(self) -> None:
        """Raises StoreUnavailable while the last commit has failed and may yet be found."""
        ...

    async def current(self) -> None:
        """Until this node knows all that others had written before."""
        ...

    async def kept(self, last: int) -> None:
        """Until the journal stays as it is up to this offset, whatever happens to a machine."""
        ...

    def unseen(self) -> "asyncio.Future[None] | None":
        """See `HealthVerbs`."""
        ...

    async def spread(self) -> None:
        """Until every node knows what this one has written."""
        ...

    async def close(self) -> None: ...


class GroupRunner:
    """What verbs need to run in groups. `writer` and `pass_time`, which every verb awaits first,
    are put in place once the engine is whole."""

    writer: GroupWriter
    pass_time: Callable[[int], Coroutine[Any, Any, None]]

    def __init__(self, book: Book, room: DiskRoom) -> None:
        self.book = book
        self.room = room

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
                await self.pass_time(now_ms)
                return await part(those)

            found |= await self.writer.submit(run)
        return found


class Verbs:
    """A part of the engine that has verbs of the store."""

    def __init__(self, calls: GroupRunner) -> None:
        self.calls = calls
        self._book = calls.book


S = TypeVar("S", bound=Verbs)


def on_queue(
    verb: Callable[Concatenate[S, QueueLine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, str, P], Coroutine[Any, Any, T]]:
    """A verb on a queue runs in a group: time passes, and the queue must be there."""

    @wraps(verb)
    async def call(self: S, queue: str, /, *args: P.args, **named: P.kwargs) -> T:
        calls, now_ms = self.calls, cast(int, named["now_ms"])

        async def run() -> T:
            await calls.pass_time(now_ms)
            return await verb(self, calls.book.line(queue), *args, **named)

        return await calls.writer.submit(run)

    return call


def on_listener(
    verb: Callable[Concatenate[S, QueueLine, PushLine, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, str, P], Coroutine[Any, Any, T]]:
    """The same of a verb on a listener and its queue."""

    @wraps(verb)
    async def call(self: S, listener: str, /, *args: P.args, **named: P.kwargs) -> T:
        calls, now_ms = self.calls, cast(int, named["now_ms"])

        async def run() -> T:
            await calls.pass_time(now_ms)
            return await verb(self, *calls.book.push_line(listener), *args, **named)

        return await calls.writer.submit(run)

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
