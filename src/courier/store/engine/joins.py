"""Calls of one group that are alike run as one: same verb, same queue, same caller."""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from courier.core.errors import Rejected
from courier.store.sqlite.writer import Writer, _Call

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


class Joined:
    """What one call asks for. `run` answers several that have the same key, each with a value or
    with a Rejected of its own, and raises a Rejected that is about them all. They run when the
    first of them would have, or (`late`) the last."""

    __slots__ = ("key", "late", "run", "what")

    def __init__(
        self,
        key: Hashable,
        what: Any,
        run: Callable[[Sequence[Any]], Coroutine[Any, Any, Sequence[Any]]],
        *,
        late: bool = False,
    ) -> None:
        self.key = key
        self.what = what
        self.run = run
        self.late = late

    def __call__(self) -> Any:
        [answer] = driven(self.run([self.what]))
        if isinstance(answer, Rejected):
            raise answer
        return answer


class JoiningWriter(Writer):
    """Calls of a group are concurrent, so any order of them is right."""

    def _units(self, calls: list[_Call]) -> list[list[_Call]]:
        joined: dict[Hashable, list[_Call]] = {}
        for call in calls:
            if isinstance(call.op, Joined):
                joined.setdefault(call.op.key, []).append(call)
        units: list[list[_Call]] = []
        for call in calls:
            if not isinstance(call.op, Joined):
                units.append([call])
                continue
            those = joined.get(call.op.key, [])
            if those and (not call.op.late or those[-1] is call):
                units.append(joined.pop(call.op.key))
        return units

    def _run(self, unit: list[_Call]) -> None:
        op = unit[0].op
        if isinstance(op, Joined):
            self._run_joined(op, unit)
        else:
            super()._run(unit)

    def _run_joined(self, first: Joined, calls: list[_Call]) -> None:
        try:
            answers = driven(first.run([call.op.what for call in calls]))  # type: ignore[attr-defined]
        except Rejected as error:
            for call in calls:
                # Each gets its own: a traceback belongs to one exception.
                call.error = type(error).__new__(type(error))
                call.error.__dict__.update(error.__dict__)
                call.error.args = error.args
            return
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Rejected):
                call.error = answer
            else:
                call.value = answer
