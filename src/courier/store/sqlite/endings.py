"""Taking messages out for good."""

from collections.abc import Iterable, Sequence
from typing import Any

from courier.core.types import Actor, Message, Origin
from courier.store.sqlite.book import Book, packed
from courier.store.sqlite.delivery import Delivery, keys_json
from courier.store.sqlite.groups import Groups
from courier.store.sqlite.kept import Kept
from courier.store.sqlite.line import DELAYED, KEPT, LEASED, READY, SEQ_BITS, SEQ_MASK, Line
from courier.store.sqlite.messages import Messages
from courier.store.sqlite.publishing import Publishing, copy_of
from courier.store.sqlite.push_rows import PushRows

_DELETE_DELIVERY = "DELETE FROM delivery WHERE id = ?"
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE id IN (SELECT value FROM json_each(?))"
_DELETE_MESSAGE = "DELETE FROM message WHERE id = ?"
_DELETE_MESSAGES = "DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))"
_STANDING = """
SELECT m.id & ~4398046511104, d.state, (m.id >> 42) & 1, coalesce(d.attempt, 0),
    coalesce(d.due_ms, 0), m.published_ms, d.first_ms, d.last_ms, m.size, m.own_id
FROM message AS m LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""
_STANDING_AT = """
SELECT m.id & ~4398046511104, d.state, (m.id >> 42) & 1, coalesce(d.attempt, 0),
    coalesce(d.due_ms, 0), m.published_ms, d.first_ms, d.last_ms, m.size, m.own_id
FROM message AS m LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.id IN (SELECT value FROM json_each(?))
"""
# Pullers are done with a message, and listeners need not be.
_DONE = ("acked", "buried")


class Endings:
    def __init__(
        self,
        book: Book,
        groups: Groups,
        messages: Messages,
        publishing: Publishing,
        push_rows: PushRows,
        kept: Kept,
    ) -> None:
        self._book = book
        self._db = book.db
        self._groups = groups
        self._messages = messages
        self._publishing = publishing
        self._push_rows = push_rows
        self._kept = kept

    def end(
        self,
        line: Line,
        kind: str,
        ended: Sequence[Delivery],
        actor: Actor,
        now_ms: int,
        detail: dict[str, Any] | None = None,
        *,
        aged: bool = False,
    ) -> None:
        """Take messages off the line, each with an event that tells its whole life.

        `aged`: by the queue's retention, which ends no open push.
        """
        keys, states, lanes, attempts, _, published, firsts, lasts, sizes, own = zip(
            *ended, strict=True
        )
        count = len(keys)
        groups = self._groups.of(line, ended) if line.queue.fifo else None
        seqs = [key - line.base for key in keys]
        gone = seqs
        if line.push_lines and kind in _DONE:
            gone = self._keep(line, ended, self._push_rows.unacknowledged(line, seqs))
        elif line.push_lines and aged:
            gone = self._keep(line, ended, self._push_rows.owed(line, seqs))
        self._delete(keys, states, lanes)
        line.again -= states.count(READY)
        line.delayed -= states.count(DELAYED)
        line.held -= lanes.count(1)
        self._book.let_go(line, states.count(LEASED))
        size = sum(sizes)
        self._book.removed(line, count=count, size=size, oldest_ms=min(published))
        if groups:
            self._groups.refresh(line, groups)
        columns: dict[str, Any] = {
            "seq": seqs,
            "published_ms": packed(published),
            "size": packed(sizes),
            "attempt": packed(attempts),
            "first_leased_ms": packed(firsts),
            "last_leased_ms": packed(lasts),
        }
        if own.count(None) != count:
            columns["own_id"] = own
        if detail:
            columns["detail"] = detail
        self._book.note(
            kind, line.queue, count=count, size=size, actor=actor, now_ms=now_ms, columns=columns
        )
        if line.push_lines and gone:
            self._push_rows.end(line, gone, kind, now_ms)

    def _keep(self, line: Line, done: Sequence[Delivery], kept: set[int]) -> list[int]:
        """Keep those of the messages that pushes still need; returns the others."""
        if kept:
            self._kept.keep(line, [line.message_key(d.seq, d.lane) for d in done if d.seq in kept])
        return [delivery.seq for delivery in done if delivery.seq not in kept]

    def end_any(
        self,
        line: Line,
        kind: str,
        ended: Sequence[Delivery],
        actor: Actor,
        now_ms: int,
        *,
        aged: bool = False,
    ) -> None:
        """End messages, including those kept only for pushes."""
        kept = [delivery.seq for delivery in ended if delivery.kept]
        if kept:
            self._kept.end(line, kept, kind, now_ms)
            ended = [delivery for delivery in ended if not delivery.kept]
        if ended:
            self.end(line, kind, ended, actor, now_ms, aged=aged)

    def _delete(
        self, keys: Sequence[int], states: Sequence[int | None], lanes: Sequence[int]
    ) -> None:
        stored = delivered = keys
        if 1 in lanes:
            stored = [key | lane << SEQ_BITS for key, lane in zip(keys, lanes, strict=True)]
        if None in states:
            delivered = [key for key, s in zip(keys, states, strict=True) if s is not None]
        if len(stored) == 1:
            self._db.execute(_DELETE_MESSAGE, stored)
        else:
            self._db.execute(_DELETE_MESSAGES, (keys_json(stored),))
        if len(delivered) == 1:
            self._db.execute(_DELETE_DELIVERY, delivered)
        elif delivered:
            self._db.execute(_DELETE_DELIVERIES, (keys_json(delivered),))

    def standing(
        self, line: Line, *, lane: int, upto_seq: int = SEQ_MASK, limit: int
    ) -> list[Delivery]:
        """The first messages of a lane, by sequence."""
        low = line.message_key(0, lane)
        rows = self._book.rows(_STANDING, (low, low + upto_seq + 1, limit))
        return [Delivery(*row) for row in rows]

    def first(self, line: Line, *, upto_seq: int = SEQ_MASK, limit: int) -> list[Delivery]:
        """Messages of all lanes, those that are kept last."""
        found: list[Delivery] = []
        for lane, held in ((0, True), (1, line.held), (KEPT, line.kept)):
            if held and len(found) < limit:
                rest = limit - len(found)
                found += self.standing(line, lane=lane, upto_seq=upto_seq, limit=rest)
        return found

    def standing_at(
        self, line: Line, seqs: Iterable[int], *, lanes: Sequence[int] = (0, 1)
    ) -> dict[int, Delivery]:
        keys = [line.message_key(seq, lane) for seq in seqs for lane in lanes]
        rows = self._book.rows(_STANDING_AT, (keys_json(keys),))
        return {row[0] & SEQ_MASK: Delivery(*row) for row in rows}

    def remove(self, line: Line, seqs: Sequence[int], actor: Actor, now_ms: int) -> list[bool]:
        there = {seq for seq in seqs if 0 < seq <= line.tail}
        found = self.standing_at(line, there, lanes=(0, 1, KEPT))
        self.end_any(line, "deleted", list(found.values()), actor, now_ms)
        return [found.pop(seq, None) is not None for seq in seqs]

    def purge(self, line: Line, upto_seq: int, limit: int, actor: Actor, now_ms: int) -> int:
        ended = self.first(line, upto_seq=upto_seq, limit=max(1, limit // line.weight))
        self.end_any(line, "purged", ended, actor, now_ms)
        return len(ended)

    def redrive(
        self, line: Line, seqs: Sequence[int], actor: Actor, now_ms: int, *, dry_run: bool
    ) -> list[bool]:
        found = self.standing_at(line, {seq for seq in seqs if 0 < seq <= line.tail})
        done: list[bool] = []
        for seq in seqs:
            delivery = found.pop(seq, None)
            message = self._messages.at(line, seq, delivery.lane) if delivery else None
            source = self._source(line, message)
            if delivery is None or message is None or source is None or delivery.state == LEASED:
                done.append(False)
                continue
            done.append(True)
            if not dry_run:
                draft = copy_of(message, delivery.own_id, delay_ms=0)
                origin = Origin(line.queue.id, message.id, reason="redrive")
                self._publishing.insert(source, [draft], actor, now_ms, origin=origin)
                self.end(line, "deleted", [delivery], actor, now_ms)
        return done

    def _source(self, line: Line, message: Message | None) -> Line | None:
        """Where a dead letter was buried from, if it is one and that queue is still there."""
        if message is None or message.origin is None or message.origin.reason != "attempts":
            return None
        source = self._book.lines.get(message.origin.queue)
        return source if source and source.queue.tenant == line.queue.tenant else None
