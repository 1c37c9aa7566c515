"""Calls of one group that are alike run as one: same verb, same queue, same caller."""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from courier.core.errors import Rejected

T = TypeVar("T")


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

    def run(self, calls: Sequence[Any]) -> Coroutine[Any, Any, Sequence[Any]]:
        verb, same, _ = self.key
        return verb(calls, *same)

    def __call__(self) -> Any:
        [answer] = driven(self.run([self.what]))
        if isinstance(answer, Rejected):
            raise answer
        return answer


class Alone:
    """What one call asks for that is not joined with others."""

    __slots__ = ("verb",)

    def __init__(self, verb: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.verb = verb

    def __call__(self) -> Any:
        return driven(self.verb())
