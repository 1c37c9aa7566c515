"""Storing drafts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from courier import ids
from courier.core.errors import OverLimit
from courier.core.lifecycle import GROUP_DEFAULT
from courier.core.types import Actor, Draft, Message, Origin, Receipt, Via
from courier.store.sqlite.book import Book, packed
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.line import DELAYED, LANE, SEQ_MASK, Line, PushLine
from courier.store.sqlite.push_rows import PushRows

_INSERT = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_DELIVERY = "INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
_ONCE = "SELECT message FROM once WHERE subscription = ? AND key = ? AND until_ms > ?"
_SAVE_ONCE = "INSERT OR REPLACE INTO once VALUES (?, ?, ?, ?)"

_encode_json = msgspec.json.Encoder().encode


class Publishing:
    def __init__(self, book: Book, groups: Groups, push_rows: PushRows) -> None:
        self._book = book
        self._db = book.db
        self._groups = groups
        self._push_rows = push_rows

    def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        actor: Actor,
        now_ms: int,
        *,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        lines = [(self._book.line(queue), drafts) for queue, drafts in batches]
        for line, drafts in lines:
            refuse_over(bytes_max, line, drafts)
        receipts = [self._publish(line, drafts, actor, now_ms, via) for line, drafts in lines]
        if via:
            self._tally(via, batches, receipts, now_ms)
        return receipts

    def _tally(
        self,
        via: Via,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        receipts: Sequence[Receipt],
        now_ms: int,
    ) -> None:
        """Count what an exchange was given, and what it made of that."""
        sizes = [
            draft.size
            for (_, drafts), receipt in zip(batches, receipts, strict=True)
            for draft, repeated in zip(drafts, receipt.repeated, strict=True)
            if not repeated
        ]
        for kind, count, size in (
            ("routed", via.count, via.bytes),
            ("copied", len(sizes), sum(sizes)),
        ):
            if count:
                self._book.tally(
                    kind, via.tenant, via.exchange, count=count, size=size, now_ms=now_ms
                )

    def _publish(
        self, line: Line, drafts: Sequence[Draft], actor: Actor, now_ms: int, via: Via | None
    ) -> Receipt:
        if not drafts:
            return Receipt([], [], self._book.stats(line))
        if any([draft.once_key is not None for draft in drafts]):
            return self._publish_once(line, drafts, actor, now_ms, via)
        seqs = self.insert(line, drafts, actor, now_ms, via=via)
        return Receipt(
            self._ids(line, drafts, seqs, now_ms), [False] * len(drafts), self._book.stats(line)
        )

    def _ids(self, line: Line, drafts: Sequence[Draft], seqs: range, now_ms: int) -> list[str]:
        own = [draft.id for draft in drafts if draft.id]
        if len(own) == len(drafts):
            return own
        made = ids.message_ids([(now_ms, seq) for seq in seqs], queue=line.queue.id)
        return [draft.id or id for draft, id in zip(drafts, made, strict=True)]

    def _publish_once(
        self, line: Line, drafts: Sequence[Draft], actor: Actor, now_ms: int, via: Via | None
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
            seqs = self.insert(line, new, actor, now_ms, via=via)
            new_ids = self._ids(line, new, seqs, now_ms)
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
        *,
        origin: Origin | None = None,
        via: Via | None = None,
        only: PushLine | None = None,
    ) -> range:
        """Store drafts; returns their sequences. `only`: of all listeners, this one gets them."""
        rows, delays = self._store(line, drafts, origin, now_ms)
        count = len(rows)
        seqs = range(line.tail + 1, line.tail + count + 1)
        line.tail += count
        columns_of = zip(*rows, strict=True)
        _, _, sizes, content_types, own_ids, _, groups, expiries, _, bodies, _, sealed = columns_of
        size = sum(sizes)
        self._book.added(line, count=count, size=size, now_ms=now_ms, aging=None in expiries)
        if only is None:
            self._book.wake(line, count - len(delays))
        if line.push_lines:
            self._push_rows.bind(line, seqs, delayed=len(delays), only=only)
        columns: dict[str, Any] = {
            "seq": list(seqs),
            "published_ms": now_ms,
            "size": sizes,
            "content_type": packed(content_types),
            "body": bodies,
        }
        for name, values in (
            ("own_id", own_ids),
            ("headers", [draft.headers for draft in drafts]),
            ("group", groups),
            ("sealed", sealed),
        ):
            if values.count(None) != count:
                columns[name] = values
        if delays:
            columns["delay_ms"] = [delays.get(seq) for seq in seqs]
        if origin:
            columns["detail"] = msgspec.to_builtins(origin)
        elif via:
            columns["detail"] = {"exchange": via.exchange}
        self._book.note(
            "published",
            line.queue,
            count=count,
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )
        return seqs

    def _store(
        self, line: Line, drafts: Sequence[Draft], origin: Origin | None, now_ms: int
    ) -> tuple[list[tuple[Any, ...]], dict[int, int]]:
        """Returns the rows of messages, and the delays of those that are delayed, by sequence."""
        rows, delayed = self._rows(line, drafts, origin, now_ms)
        delays: dict[int, int] = {}
        if len(rows) == 1:
            self._db.execute(_INSERT, rows[0])
        else:
            self._db.executemany(_INSERT, rows)
        if delayed:
            self._db.executemany(_INSERT_DELIVERY, delayed)
            delays = {row[0] & SEQ_MASK: row[4] - now_ms for row in delayed}
            line.delayed += len(delays)
        if line.queue.fifo:
            line.held += len(rows)
            self._groups.published(line, rows, delays)
        else:
            line.held += len(delays)
        return rows, delays

    def _rows(
        self, line: Line, drafts: Sequence[Draft], origin: Origin | None, now_ms: int
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Rows of messages, and of deliveries for those that are delayed."""
        queue, key = line.queue, line.base | line.tail
        fifo, doubt_ms = queue.fifo, self._book.doubt_ms
        origin_json = _encode_json(origin) if origin else None
        rows: list[tuple[Any, ...]] = []
        delayed: list[tuple[Any, ...]] = []
        for draft in drafts:
            key += 1
            size = draft.size if draft.sealed else len(draft.body)
            delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
            if delay_ms:
                due_ms = now_ms + delay_ms
                delayed.append((key, DELAYED, 1, 0, due_ms, now_ms, None, None, size, draft.id))
                self._book.touch(line, due_ms=due_ms)
            expires_ms = None
            if draft.ttl_ms is not None or doubt_ms:
                ttl_ms = queue.retention_ms if draft.ttl_ms is None else draft.ttl_ms
                expires_ms = now_ms + ttl_ms + doubt_ms
                self._book.touch(line, due_ms=expires_ms)
            rows.append(
                (
                    key | LANE if fifo or delay_ms else key,
                    now_ms,
                    size,
                    draft.content_type,
                    draft.id,
                    _encode_json(draft.headers) if draft.headers is not None else None,
                    draft.group or GROUP_DEFAULT if fifo else draft.group,
                    expires_ms,
                    origin_json,
                    draft.body,
                    draft.delay_ms if fifo else delay_ms or None,
                    draft.sealed,
                )
            )
        return rows, delayed


def refuse_over(bytes_max: int | None, line: Line, drafts: Sequence[Draft]) -> None:
    """Raises OverLimit when the queue would hold too much with these."""
    if bytes_max is None:
        return
    # Asking a draft for its size costs a call, and most are not sealed.
    sizes = [draft.size if draft.sealed else len(draft.body) for draft in drafts]
    actual = line.bytes + sum(sizes)
    if actual > bytes_max:
        raise OverLimit("queue bytes", limit=bytes_max, actual=actual)


def copy_of(message: Message, own_id: str | None, *, delay_ms: int | None) -> Draft:
    """What carries a message over to another queue."""
    return Draft(
        message.body,
        message.content_type,
        message.headers,
        own_id,
        delay_ms,
        group=message.group,
        sealed=message.sealed,
    )
