"""Reading stored messages."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core.types import Message, Origin
from courier.store.sqlite.book import Book
from courier.store.sqlite.line import LANE, SEQ_BITS, SEQ_MASK, Line

_MESSAGE = """
SELECT m.id, coalesce(d.attempt, 0), d.state, m.published_ms, m.size, m.content_type, m.own_id,
    m.headers, m.grp, m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM message AS m LEFT JOIN delivery AS d ON d.id = ? WHERE m.id = ?
"""
_BROWSE = """
SELECT m.id, coalesce(d.attempt, 0), d.state, m.published_ms, m.size, m.content_type, m.own_id,
    m.headers, m.grp, m.expires_ms, m.origin, m.body, m.delay_ms, m.sealed
FROM message AS m LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""
_OWN_ID = "SELECT id FROM message WHERE own_id = ? AND id > ? AND id < ? ORDER BY id LIMIT 1"

_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode
_decode_origin = msgspec.json.Decoder(Origin).decode


class Messages:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._db = book.db

    def read(self, line: Line, rows: Sequence[tuple[Any, ...]], *, plus: int) -> list[Message]:
        """Messages from rows like those of _MESSAGE; `plus` is added to their attempts."""
        made = ids.message_ids([(row[3], row[0] & SEQ_MASK) for row in rows], queue=line.queue.id)
        return [
            Message(
                key & SEQ_MASK,
                own_id or id,
                published_ms,
                body,
                content_type,
                _decode_headers(headers) if headers else None,
                group,
                expires_ms,
                _decode_origin(origin) if origin else None,
                attempts + plus,
                delay_ms,
                sealed,
            )
            for (
                (
                    key,
                    attempts,
                    _,
                    published_ms,
                    _,
                    content_type,
                    own_id,
                    headers,
                    group,
                    expires_ms,
                    origin,
                    body,
                    delay_ms,
                    sealed,
                ),
                id,
            ) in zip(rows, made, strict=True)
        ]

    def at(self, line: Line, seq: int, lane: int) -> Message | None:
        keys = (line.base | seq, line.message_key(seq, lane))
        row = self._book.row(_MESSAGE, keys)
        return self.read(line, [row], plus=0)[0] if row else None

    def browse(self, line: Line, after_seq: int, limit: int) -> list[Message]:
        rows: list[tuple[Any, ...]] = []
        for lane in (0, 1) if line.held else (0,):
            low = line.base | lane << SEQ_BITS
            rows += self._book.rows(_BROWSE, (low | after_seq, low + LANE, limit))
        rows.sort(key=lambda row: row[0] & SEQ_MASK)
        return self.read(line, rows[:limit], plus=0)

    def find(self, line: Line, message: str) -> Message | None:
        seq = ids.message_seq(message, queue=line.queue.id)
        if seq is not None:
            for lane in (0, 1):
                found = self.at(line, seq, lane)
                if found and found.id == message:
                    return found
        bounds = (message, line.base, line.base + 2 * LANE)
        key = self._db.execute(_OWN_ID, bounds).get
        return None if key is None else self.at(line, key & SEQ_MASK, key >> SEQ_BITS & 1)
