"""The lines of all listeners: those that are there, and those whose pushes are being ended."""

from collections.abc import Iterable, Mapping
from typing import Any

import apsw
import msgspec

from courier.core.types import Listener
from courier.store.sqlite.line import Line, PushLine

_LINES = """
SELECT no, listener, count, leased, exhausted, missed, acknowledged, last_success_ms,
    last_failure_ms, dropped
FROM subscription WHERE listener <> '' ORDER BY no
"""
_SAVE = """
UPDATE subscription
SET count = ?, leased = ?, exhausted = ?, missed = ?, acknowledged = ?, last_success_ms = ?,
    last_failure_ms = ?
WHERE no = ?
"""


class PushLines:
    """`live` has them by listener, `dropped` and `by_no` by number."""

    def __init__(self, db: apsw.Cursor) -> None:
        self._db = db
        self.listeners: dict[str, Listener] = {}
        self.live: dict[str, PushLine] = {}
        self.dropped: dict[int, PushLine] = {}
        self.by_no: dict[int, PushLine] = {}

    def reload(self, lines: Mapping[str, Line]) -> None:
        """Everything from the tables; `lines` are those of queues, dropped ones included."""
        self.live, self.dropped, self.by_no = {}, {}, {}
        rows: list[tuple[Any, ...]] = self._db.execute(_LINES).fetchall()
        for no, id, *numbers, dropped in rows:
            if dropped is None:
                pushes = PushLine(no, self.listeners[id])
            else:
                pushes = PushLine(no, msgspec.json.decode(dropped, type=Listener))
            self.open(pushes, lines.get(pushes.listener.parent))
            if dropped is not None:
                self.drop(pushes)
            pushes.open, pushes.in_flight, pushes.exhausted, pushes.missed = numbers[:4]
            pushes.acknowledged, pushes.last_success_ms, pushes.last_failure_ms = numbers[4:]

    def open(self, pushes: PushLine, line: Line | None) -> None:
        self.live[pushes.id] = self.by_no[pushes.no] = pushes
        if line:
            self.attach(pushes, line)

    def attach(self, pushes: PushLine, line: Line) -> None:
        pushes.line = line
        line.push_lines.append(pushes)
        line.push_lines.sort(key=_place)

    def keep(self, listener: Listener) -> None:
        """Remember a listener, as it is now."""
        self.listeners[listener.id] = listener
        pushes = self.live.get(listener.id)
        if pushes:
            pushes.listener = listener
            if pushes.line:
                pushes.line.push_lines.sort(key=_place)

    def drop(self, pushes: PushLine) -> None:
        """Its listener is gone."""
        pushes.dropped = True
        del self.live[pushes.id]
        self.dropped[pushes.no] = pushes
        if pushes.line:
            pushes.line.push_lines.sort(key=_place)

    def forget(self, pushes: PushLine) -> None:
        """Nothing is left of it."""
        del self.by_no[pushes.no]
        self.dropped.pop(pushes.no, None)
        self.live.pop(pushes.id, None)
        if pushes.line:
            pushes.line.push_lines.remove(pushes)

    def save(self, touched: Iterable[PushLine]) -> None:
        for pushes in touched:
            self._db.execute(
                _SAVE,
                (
                    pushes.open,
                    pushes.in_flight,
                    pushes.exhausted,
                    pushes.missed,
                    pushes.acknowledged,
                    pushes.last_success_ms,
                    pushes.last_failure_ms,
                    pushes.no,
                ),
            )


def _place(pushes: PushLine) -> tuple[bool, int, str, str]:
    """In the order of their listeners' creation, those that are gone last."""
    listener = pushes.listener
    return pushes.dropped, listener.created_ms, listener.name, listener.id
