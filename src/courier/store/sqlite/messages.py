"""Reading stored messages."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import Actor, Message, Origin
from courier.store.sqlite.book import Book
from courier.store.sqlite.line import KEPT, LANE, SEQ_MASK, Line

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
_SET_HEADERS = "UPDATE message SET headers = ? WHERE id = ?"

_encode_json = msgspec.json.Encoder().encode
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
        row = self._row(line, seq, lane)
        return self.read(line, [row], plus=0)[0] if row else None

    def _row(self, line: Line, seq: int, lane: int) -> tuple[Any, ...] | None:
        return self._book.row(_MESSAGE, (line.base | seq, line.message_key(seq, lane)))

    def browse(self, line: Line, after_seq: int, limit: int, *, kept: bool) -> list[Message]:
        return self.read(line, self.rows(line, after_seq, limit, kept=kept), plus=0)

    def rows(self, line: Line, after_seq: int, limit: int, *, kept: bool) -> list[tuple[Any, ...]]:
        """Rows like those of _MESSAGE, by sequence."""
        rows: list[tuple[Any, ...]] = []
        for lane, held in ((0, True), (1, line.held), (KEPT, kept and line.kept)):
            if held:
                bounds = (line.message_key(after_seq, lane), line.message_key(0, lane) + LANE)
                rows += self._book.rows(_BROWSE, (*bounds, limit))
        rows.sort(key=lambda row: row[0] & SEQ_MASK)
        return rows[:limit]

    def find(self, line: Line, message: str) -> Message | None:
        seq = ids.message_seq(message, queue=line.queue.id)
        row = self._anywhere(line, seq) if seq is not None else None
        if row:
            [found] = self.read(line, [row], plus=0)
            made = ids.message_id(
                published_ms=found.published_ms, seq=found.seq, queue=line.queue.id
            )
            if message in (made, found.id):
                return found
        for lane in (0, 1, KEPT):
            low = line.message_key(0, lane)
            key = self._db.execute(_OWN_ID, (message, low, low + LANE)).get
            if key is not None:
                return self.at(line, key & SEQ_MASK, lane)
        return None

    def _anywhere(self, line: Line, seq: int) -> tuple[Any, ...] | None:
        for lane in (0, 1, KEPT):
            row = self._row(line, seq, lane)
            if row:
                return row
        return None

    def rename(self, line: Line, seq: int, name: str, actor: Actor, now_ms: int) -> Message | None:
        row = self._anywhere(line, seq) if 0 < seq <= line.tail else None
        if row is None:
            return None
        key, attempts, state, published_ms, size, content_type, own_id, headers, *rest = row
        headers = _encode_json((_decode_headers(headers) if headers else {}) | {NAME_HEADER: name})
        self._db.execute(_SET_HEADERS, (headers, key))
        self._book.note(
            "renamed",
            line.queue,
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns={
                "seq": seq,
                "own_id": own_id,
                "published_ms": published_ms,
                "size": size,
                "detail": {"name": name},
            },
        )
        row = (key, attempts, state, published_ms, size, content_type, own_id, headers, *rest)
        return self.read(line, [row], plus=0)[0]
