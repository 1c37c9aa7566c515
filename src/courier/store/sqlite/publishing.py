"""Storing drafts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core.errors import OverLimit
from courier.core.types import Actor, Draft, Message, Origin, Receipt
from courier.store.sqlite.book import DELAYED, LANE, SEQ_MASK, Book, Line, packed

_INSERT = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_DELIVERY = "INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ONCE = "SELECT message FROM once WHERE subscription = ? AND key = ? AND until_ms > ?"
_SAVE_ONCE = "INSERT OR REPLACE INTO once VALUES (?, ?, ?, ?)"

_encode_json = msgspec.json.Encoder().encode


class Publishing:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._db = book.db

    def check_room(self, line: Line, drafts: Sequence[Draft], bytes_max: int) -> None:
        actual = line.bytes + sum([len(draft.body) for draft in drafts])
        if actual > bytes_max:
            raise OverLimit("queue bytes", limit=bytes_max, actual=actual)

    def publish(self, line: Line, drafts: Sequence[Draft], actor: Actor, now_ms: int) -> Receipt:
        if not drafts:
            return Receipt([], [], self._book.stats(line))
        if any([draft.once_key is not None for draft in drafts]):
            return self._publish_once(line, drafts, actor, now_ms)
        seqs = self.insert(line, drafts, actor, now_ms)
        return Receipt(
            self._ids(line, drafts, seqs, now_ms), [False] * len(drafts), self._book.stats(line)
        )

    def _ids(self, line: Line, drafts: Sequence[Draft], seqs: range, now_ms: int) -> list[str]:
        made = ids.message_ids([(now_ms, seq) for seq in seqs], queue=line.queue.id)
        return [draft.id or id for draft, id in zip(drafts, made, strict=True)]

    def _publish_once(
        self, line: Line, drafts: Sequence[Draft], actor: Actor, now_ms: int
    ) -> Receipt:
        known: list[str | None] = []
        new: list[Draft] = []
        seen: dict[str, int] = {}
        places: list[int] = []  # of each draft among the new ones
        for draft in drafts:
            key = draft.once_key
            first = None
            if key is not None:
                first = self._db.execute(_ONCE, (line.no, key, now_ms)).get
            known.append(first)
            if key in seen:
                places.append(seen[key])
                continue
            if key is not None and first is None:
                seen[key] = len(new)
            places.append(len(new))
            if first is None:
                new.append(draft)
        new_ids: list[str] = []
        if new:
            new_ids = self._ids(line, new, self.insert(line, new, actor, now_ms), now_ms)
        for key, place in seen.items():
            until_ms = now_ms + new[place].once_ms
            self._db.execute(_SAVE_ONCE, (line.no, key, until_ms, new_ids[place]))
        answer: list[str] = []
        repeated: list[bool] = []
        taken: set[int] = set()
        for first, place in zip(known, places, strict=True):
            answer.append(first or new_ids[place])
            repeated.append(first is not None or place in taken)
            if first is None:
                taken.add(place)
        return Receipt(answer, repeated, self._book.stats(line))

    def insert(
        self,
        line: Line,
        drafts: Sequence[Draft],
        actor: Actor,
        now_ms: int,
        origin: Origin | None = None,
    ) -> range:
        """Store drafts; returns their sequences."""
        queue, base, seq = line.queue, line.base, line.tail
        origin_json = _encode_json(origin) if origin else None
        rows: list[tuple[Any, ...]] = []
        held: list[tuple[Any, ...]] = []
        size = 0
        for draft in drafts:
            seq += 1
            body = draft.body
            length = len(body)
            size += length
            delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
            expires_ms = now_ms + draft.ttl_ms if draft.ttl_ms is not None else None
            if expires_ms is not None:
                self._book.touch(line, due_ms=expires_ms)
            headers = _encode_json(draft.headers) if draft.headers is not None else None
            key = base | seq
            if delay_ms:
                due_ms = now_ms + delay_ms
                held.append(
                    (key, DELAYED, 1, 0, due_ms, now_ms, None, None, length, draft.id),
                )
                self._book.touch(line, due_ms=due_ms)
                key |= LANE
            rows.append(
                (
                    key,
                    now_ms,
                    length,
                    draft.content_type,
                    draft.id,
                    headers,
                    draft.group,
                    expires_ms,
                    origin_json,
                    body,
                )
            )
        if len(rows) == 1:
            self._db.execute(_INSERT, rows[0])
        else:
            self._db.executemany(_INSERT, rows)
        if held:
            self._db.executemany(_INSERT_DELIVERY, held)
            line.delayed += len(held)
            line.held += len(held)
        seqs = range(line.tail + 1, seq + 1)
        line.tail = seq
        self._book.added(line, count=len(rows), size=size, now_ms=now_ms)
        delays = {row[0] & SEQ_MASK: row[4] - now_ms for row in held}
        self._note(line, drafts, seqs, delays, origin, size, actor, now_ms)
        return seqs

    def _note(
        self,
        line: Line,
        drafts: Sequence[Draft],
        seqs: range,
        delays: dict[int, int],
        origin: Origin | None,
        size: int,
        actor: Actor,
        now_ms: int,
    ) -> None:
        columns: dict[str, Any] = {
            "seq": list(seqs),
            "published_ms": now_ms,
            "size": [len(draft.body) for draft in drafts],
            "content_type": packed([draft.content_type for draft in drafts]),
            "body": [draft.body for draft in drafts],
        }
        for name, values in (
            ("own_id", [draft.id for draft in drafts]),
            ("headers", [draft.headers for draft in drafts]),
            ("group", [draft.group for draft in drafts]),
        ):
            if values.count(None) != len(values):
                columns[name] = values
        if delays:
            columns["delay_ms"] = [delays.get(seq) for seq in seqs]
        if origin:
            columns["detail"] = msgspec.to_builtins(origin)
        self._book.note(
            "published",
            line.queue,
            count=len(drafts),
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )


def copy_of(message: Message, own_id: str | None, delay_ms: int | None = None) -> Draft:
    return Draft(
        message.body,
        message.content_type,
        message.headers,
        own_id,
        delay_ms,
        group=message.group,
    )
