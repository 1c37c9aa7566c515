"""Publishing by number: of the drafts under one key, none is stored a second time."""

from collections.abc import Sequence

from courier.core.errors import Conflict, NotFound, RowsChanged
from courier.core.types import Actor, Draft
from courier.store.sqlite.book import Book
from courier.store.sqlite.endings import Endings
from courier.store.sqlite.line import Line, PushLine
from courier.store.sqlite.publishing import Publishing, refuse_over

_STORED = """
SELECT count, until_ms, mark FROM rows_stored WHERE subscription = ? AND key = ? AND until_ms > ?
"""
# What begins with a key and a slash sorts before the key and what follows the slash: a 0.
_BELOW = """
SELECT coalesce(sum(count), 0) FROM rows_stored
WHERE subscription = ? AND key >= ? || '/' AND key < ? || '0' AND until_ms > ?
"""
_SAVE = "INSERT OR REPLACE INTO rows_stored VALUES (?, ?, ?, ?, ?)"


class Rows:
    def __init__(self, book: Book, publishing: Publishing, endings: Endings) -> None:
        self._book = book
        self._db = book.db
        self._publishing = publishing
        self._endings = endings

    def stored(self, line: Line, key: str, now_ms: int) -> int:
        return self._known(line, key, now_ms)[0]

    def below(self, line: Line, key: str, now_ms: int) -> int:
        count: int = self._db.execute(_BELOW, (line.no, key, key, now_ms)).get
        return count

    def _known(self, line: Line, key: str, now_ms: int) -> tuple[int, int, bytes | None]:
        """How many drafts are stored under a key, until when that is known, and their mark."""
        count, until_ms, mark = self._book.row(_STORED, (line.no, key, now_ms)) or (0, 0, None)
        return count, until_ms, mark

    def publish(
        self,
        line: Line,
        drafts: Sequence[Draft],
        actor: Actor,
        now_ms: int,
        *,
        key: str,
        first: int,
        until_ms: int,
        bytes_max: int | None,
        listener: str | None,
        marks: Sequence[bytes] | None,
    ) -> int:
        pushes = self._pushes(line, listener)
        count, known_ms, mark = self._known(line, key, now_ms)
        if first > count:
            raise Conflict("rows", key)
        if marks and mark and count - first < len(marks) and marks[count - first] != mark:
            raise RowsChanged(key, count)
        new = drafts[count - first :]
        if new:
            refuse_over(bytes_max, line, new)
            seqs = self._publishing.insert(line, new, actor, now_ms, only=pushes)
            if pushes is not None:
                found = self._endings.standing_at(line, seqs)
                self._endings.end(line, "acked", [found[seq] for seq in seqs], actor, now_ms)
            # A mark is of all drafts of its key, so one that is missing is missing for good.
            mark = marks[-1] if marks is not None and (mark or not count) else None
        if count + len(new):
            values = (line.no, key, count + len(new), max(known_ms, until_ms), mark)
            self._db.execute(_SAVE, values)
            self._book.changed = True
        return len(new)

    def _pushes(self, line: Line, listener: str | None) -> PushLine | None:
        """The line of a listener that hangs on this queue."""
        if listener is None:
            return None
        for pushes in line.push_lines:
            if pushes.id == listener and not pushes.dropped:
                return pushes
        raise NotFound("listener", listener)
