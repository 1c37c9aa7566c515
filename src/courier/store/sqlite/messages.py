"""The message verbs, as statements on the writer's connection. Each runs inside a transaction."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from courier import ids
from courier.core import lifecycle
from courier.core.errors import OverLimit
from courier.core.types import (
    BROKER,
    Ack,
    Actor,
    Draft,
    Leased,
    Message,
    Origin,
    Outcome,
    Receipt,
    Retry,
    Settlement,
)
from courier.store.sqlite.book import (
    DELAYED,
    LANE,
    LEASED,
    READY,
    SEQ_BITS,
    SEQ_MASK,
    Book,
    Line,
    packed,
)

_INSERT = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_DELIVERY = "INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FRESH = """
SELECT id, 0, NULL, published_ms, size, content_type, own_id, headers, grp, expires_ms, origin, body
FROM message WHERE id > ? AND id < ? ORDER BY id LIMIT ?
"""
_AGAIN = """
SELECT m.id, d.attempt, d.first_ms, m.published_ms, m.size, m.content_type, m.own_id, m.headers,
    m.grp, m.expires_ms, m.origin, m.body
FROM delivery AS d INDEXED BY delivery_ready
CROSS JOIN message AS m ON m.id = (d.id | (d.lane << 42))
WHERE d.state = 0 AND d.id > ? AND d.id < ? ORDER BY d.id LIMIT ?
"""
_LEASE_FRESH = """
INSERT INTO delivery
SELECT id, 1, 0, 1, ?, published_ms, ?, ?, size, own_id FROM message WHERE id > ? AND id <= ?
"""
_LEASE_AGAIN = """
UPDATE delivery
SET state = 1, attempt = attempt + 1, due_ms = ?, first_ms = coalesce(first_ms, ?), last_ms = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_DELIVERY = """
SELECT id, state, lane, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id
FROM delivery WHERE id = ?
"""
_DELIVERIES = """
SELECT id, state, lane, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id
FROM delivery WHERE id IN (SELECT value FROM json_each(?))
"""
_MOVE_DELIVERY = "UPDATE delivery SET state = ?, due_ms = ? WHERE id = ?"
_DELETE_DELIVERY = "DELETE FROM delivery WHERE id = ?"
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE id IN (SELECT value FROM json_each(?))"
_DELETE_MESSAGE = "DELETE FROM message WHERE id = ?"
_DELETE_MESSAGES = "DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))"
_MESSAGE = """
SELECT m.id, coalesce(d.attempt, 0), d.first_ms, m.published_ms, m.size, m.content_type, m.own_id,
    m.headers, m.grp, m.expires_ms, m.origin, m.body
FROM message AS m LEFT JOIN delivery AS d ON d.id = ? WHERE m.id = ?
"""
_BROWSE = """
SELECT m.id, coalesce(d.attempt, 0), d.first_ms, m.published_ms, m.size, m.content_type, m.own_id,
    m.headers, m.grp, m.expires_ms, m.origin, m.body
FROM message AS m LEFT JOIN delivery AS d ON d.id = (m.id & ~4398046511104)
WHERE m.id > ? AND m.id < ? ORDER BY m.id LIMIT ?
"""
_OWN_ID = "SELECT id FROM message WHERE own_id = ? AND id > ? AND id < ? ORDER BY id LIMIT 1"
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
_ONCE = "SELECT message FROM once WHERE subscription = ? AND key = ? AND until_ms > ?"
_SAVE_ONCE = "INSERT OR REPLACE INTO once VALUES (?, ?, ?, ?)"

_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode
_decode_origin = msgspec.json.Decoder(Origin).decode
_encode_json = msgspec.json.Encoder().encode


class Delivery(NamedTuple):
    """A message and how far its delivery got; `state` None: it was never handed out."""

    id: int
    state: int | None
    lane: int
    attempt: int
    due_ms: int
    published_ms: int
    first_ms: int | None
    last_ms: int | None
    size: int
    own_id: str | None

    @property
    def seq(self) -> int:
        return self.id & SEQ_MASK


def keys_json(keys: Iterable[int]) -> str:
    return _encode_json(list(keys)).decode()


class Messages:
    """Verbs on one queue's line. `sweep.py` lets time pass before each of them."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._db = book.db

    # --- publish ---

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
        columns: dict[str, Any] = {
            "seq": list(seqs),
            "published_ms": now_ms,
            "size": [row[2] for row in rows],
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
        if held:
            delays = {row[0] & SEQ_MASK: row[4] - now_ms for row in held}
            columns["delay_ms"] = [delays.get(seq) for seq in seqs]
        if origin:
            columns["detail"] = msgspec.to_builtins(origin)
        self._book.note(
            "published",
            queue,
            count=len(rows),
            size=size,
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )
        return seqs

    # --- hand out ---

    def peek(self, line: Line, count: int, now_ms: int) -> list[Message]:
        again, fresh = self._ready(line, count, now_ms)
        return self._read(line, again + fresh, plus=0)

    def _ready(
        self, line: Line, count: int, now_ms: int
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Rows of deliveries ready again, then of messages never handed out."""
        base = line.base
        again: list[tuple[Any, ...]] = []
        fresh: list[tuple[Any, ...]] = []
        if line.expiry_ms <= now_ms and self._book.oldest_ms(line) + line.queue.retention_ms <= (
            now_ms
        ):
            return again, fresh  # so much has expired that the sweep is still at it
        if line.again:
            again = self._book.rows(_AGAIN, (base, base + LANE, count))
        if len(again) < count and line.cursor < line.tail:
            bounds = (base | line.cursor, base + LANE, count - len(again))
            fresh = self._book.rows(_FRESH, bounds)
        return again, fresh

    def lease(self, line: Line, count: int, lease_ms: int, actor: Actor, now_ms: int) -> Leased:
        again, fresh = self._ready(line, count, now_ms)
        until_ms = now_ms + lease_ms
        rows = again + fresh
        if not rows:
            return Leased([], until_ms, self._book.stats(line))
        if again:
            keys = keys_json(row[0] & ~LANE for row in again)
            self._db.execute(_LEASE_AGAIN, (until_ms, now_ms, now_ms, keys))
            line.again -= len(again)
        if fresh:
            last = fresh[-1][0]
            self._db.execute(
                _LEASE_FRESH, (until_ms, now_ms, now_ms, line.base | line.cursor, last)
            )
            line.cursor = last & SEQ_MASK
        if len(rows) < count:
            line.cursor = line.tail
        line.leased += len(rows)
        self._book.touch(line, due_ms=until_ms)
        messages = self._read(line, rows, plus=1)
        columns: dict[str, Any] = {
            "seq": [message.seq for message in messages],
            "published_ms": packed([row[3] for row in rows]),
            "size": packed([row[4] for row in rows]),
            "attempt": packed([message.attempts for message in messages]),
            "lease_ms": lease_ms,
        }
        own = [row[6] for row in rows]
        if own.count(None) != len(own):
            columns["own_id"] = own
        self._book.note(
            "leased",
            line.queue,
            count=len(rows),
            size=sum([row[4] for row in rows]),
            actor=actor,
            now_ms=now_ms,
            columns=columns,
        )
        return Leased(messages, until_ms, self._book.stats(line))

    def _read(self, line: Line, rows: Sequence[tuple[Any, ...]], *, plus: int) -> list[Message]:
        """Messages from rows of _FRESH and the like; `plus` is added to their attempts."""
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
                ),
                id,
            ) in zip(rows, made, strict=True)
        ]

    def browse(self, line: Line, after_seq: int, limit: int) -> list[Message]:
        rows: list[tuple[Any, ...]] = []
        for lane in (0, 1) if line.held else (0,):
            low = line.base | lane << SEQ_BITS
            rows += self._book.rows(_BROWSE, (low | after_seq, low + LANE, limit))
        rows.sort(key=lambda row: row[0] & SEQ_MASK)
        return self._read(line, rows[:limit], plus=0)

    def find(self, line: Line, message: str) -> Message | None:
        seq = ids.message_seq(message, queue=line.queue.id)
        if seq is not None:
            for lane in (0, 1):
                found = self._at(line, seq, lane)
                if found and found.id == message:
                    return found
        bounds = (message, line.base, line.base + 2 * LANE)
        key = self._db.execute(_OWN_ID, bounds).get
        return None if key is None else self._at(line, key & SEQ_MASK, key >> SEQ_BITS & 1)

    def _at(self, line: Line, seq: int, lane: int) -> Message | None:
        keys = (line.base | seq, line.message_key(seq, lane))
        row = self._book.row(_MESSAGE, keys)
        return self._read(line, [row], plus=0)[0] if row else None

    # --- settle ---

    def deliveries(self, line: Line, seqs: Iterable[int]) -> dict[int, Delivery]:
        keys = [line.base | seq for seq in seqs]
        if len(keys) == 1:
            rows = self._book.rows(_DELIVERY, (keys[0],))
        else:
            rows = self._book.rows(_DELIVERIES, (keys_json(keys),))
        return {row[0] & SEQ_MASK: Delivery(*row) for row in rows}

    def settle(
        self, line: Line, items: Sequence[Settlement], actor: Actor, now_ms: int
    ) -> list[Outcome]:
        found = self.deliveries(line, {item.seq for item in items})
        outcomes: list[Outcome] = []
        acked: list[Delivery] = []
        for item in items:
            delivery = found.get(item.seq)
            if delivery is None or not 1 <= item.attempt <= delivery.attempt:
                outcomes.append(Outcome.GONE)
                continue
            current = (
                delivery.state == LEASED
                and delivery.attempt == item.attempt
                and delivery.due_ms > now_ms
            )
            outcomes.append(Outcome.DONE if current else Outcome.LATE)
            if isinstance(item, Ack):
                if current or item.late:
                    acked.append(delivery)
                    del found[item.seq]
            elif current:
                if isinstance(item, Retry):
                    self.fail(
                        line,
                        delivery,
                        kind="retried",
                        delay_ms=item.delay_ms,
                        ended_ms=now_ms,
                        actor=actor,
                        now_ms=now_ms,
                    )
                else:
                    self._extend(line, delivery, item.lease_ms, actor, now_ms)
                # What the next item of the same batch meets.
                found.pop(item.seq)
                found.update(self.deliveries(line, [item.seq]))
        if acked:
            self.end(line, "acked", acked, actor, now_ms)
        return outcomes

    def _extend(
        self, line: Line, delivery: Delivery, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        until_ms = now_ms + lease_ms
        self._db.execute(_MOVE_DELIVERY, (LEASED, until_ms, delivery.id))
        self._book.touch(line, due_ms=until_ms)
        self._note_one("extended", line, delivery, actor, now_ms, {"lease_ms": lease_ms})

    def _note_one(
        self,
        kind: str,
        line: Line,
        delivery: Delivery,
        actor: Actor,
        now_ms: int,
        extra: dict[str, Any],
    ) -> None:
        self._book.note(
            kind,
            line.queue,
            size=delivery.size,
            actor=actor,
            now_ms=now_ms,
            columns={
                "seq": delivery.seq,
                "own_id": delivery.own_id,
                "published_ms": delivery.published_ms,
                "size": delivery.size,
                "attempt": delivery.attempt,
                **extra,
            },
        )

    def fail(
        self,
        line: Line,
        delivery: Delivery,
        *,
        kind: str,
        delay_ms: int | None,
        ended_ms: int,
        actor: Actor,
        now_ms: int,
    ) -> bool:
        """End an attempt without an ack; True when that buried the message."""
        step = lifecycle.after_failure(
            line.queue, attempt=delivery.attempt, delay_ms=delay_ms, ended_ms=ended_ms
        )
        if isinstance(step, lifecycle.Bury):
            self._note_one(kind, line, delivery, actor, now_ms, {})
            self._bury(line, delivery, step.into, actor, now_ms)
            return True
        extra = {"delay_ms": step.due_ms - ended_ms}
        self._note_one(kind, line, delivery, actor, now_ms, extra)
        line.leased -= 1
        self.release(line, delivery.id, step.due_ms, now_ms)
        return False

    def release(self, line: Line, key: int, due_ms: int, now_ms: int) -> None:
        """A delivery that nobody holds (any more) is ready at `due_ms`."""
        if due_ms <= now_ms:
            self._db.execute(_MOVE_DELIVERY, (READY, 0, key))
            line.again += 1
        else:
            self._db.execute(_MOVE_DELIVERY, (DELAYED, due_ms, key))
            line.delayed += 1
        self._book.touch(line, due_ms=due_ms)

    def _bury(
        self, line: Line, delivery: Delivery, into: str | None, actor: Actor, now_ms: int
    ) -> None:
        target = self._book.lines.get(into) if into else None
        message = self._at(line, delivery.seq, delivery.lane)
        assert message is not None, "a delivery without its message"
        detail = {"into": target.queue.id if target else None}
        self.end(line, "buried", [delivery], actor, now_ms, detail)
        if target:
            origin = Origin(line.queue.id, message.id, delivery.attempt, "attempts")
            self.insert(target, [_copy(message, delivery.own_id)], BROKER, now_ms, origin)

    # --- remove ---

    def end(
        self,
        line: Line,
        kind: str,
        ended: Sequence[Delivery],
        actor: Actor,
        now_ms: int,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Take messages out for good, each with an event that tells its whole life."""
        keys, states, lanes, attempts, _, published, firsts, lasts, sizes, own = zip(
            *ended, strict=True
        )
        count = len(keys)
        held = lanes.count(1)
        delivered: Sequence[int] = keys
        if None in states:
            delivered = [delivery.id for delivery in ended if delivery.state is not None]
        stored: Sequence[int] = keys
        if held:
            stored = [delivery.id | delivery.lane << SEQ_BITS for delivery in ended]
        if count == 1:
            self._db.execute(_DELETE_MESSAGE, stored[:1])
        else:
            self._db.execute(_DELETE_MESSAGES, (keys_json(stored),))
        if len(delivered) == 1:
            self._db.execute(_DELETE_DELIVERY, delivered[:1])
        elif delivered:
            self._db.execute(_DELETE_DELIVERIES, (keys_json(delivered),))
        line.again -= states.count(READY)
        line.leased -= states.count(LEASED)
        line.delayed -= states.count(DELAYED)
        line.held -= held
        size = sum(sizes)
        self._book.removed(line, count=count, size=size, oldest_ms=min(published))
        base = line.base
        columns: dict[str, Any] = {
            "seq": [key - base for key in keys],
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

    def standing(
        self, line: Line, *, lane: int, upto_seq: int = SEQ_MASK, limit: int
    ) -> list[Delivery]:
        """The first messages of a lane, by sequence."""
        low = line.base | lane << SEQ_BITS
        rows = self._book.rows(_STANDING, (low, low + upto_seq + 1, limit))
        return [Delivery(*row) for row in rows]

    def standing_at(self, line: Line, seqs: Iterable[int]) -> dict[int, Delivery]:
        keys = [line.message_key(seq, lane) for seq in seqs for lane in (0, 1)]
        rows = self._book.rows(_STANDING_AT, (keys_json(keys),))
        return {row[0] & SEQ_MASK: Delivery(*row) for row in rows}

    def remove(self, line: Line, seqs: Sequence[int], actor: Actor, now_ms: int) -> list[bool]:
        found = self.standing_at(line, {seq for seq in seqs if 0 < seq <= line.tail})
        if found:
            self.end(line, "deleted", list(found.values()), actor, now_ms)
        return [found.pop(seq, None) is not None for seq in seqs]

    def purge(self, line: Line, upto_seq: int, limit: int, actor: Actor, now_ms: int) -> int:
        standings = self.standing(line, lane=0, upto_seq=upto_seq, limit=limit)
        if len(standings) < limit and line.held:
            rest = limit - len(standings)
            standings += self.standing(line, lane=1, upto_seq=upto_seq, limit=rest)
        if standings:
            self.end(line, "purged", standings, actor, now_ms)
        return len(standings)

    def redrive(
        self, line: Line, seqs: Sequence[int], actor: Actor, now_ms: int, *, dry_run: bool
    ) -> list[bool]:
        found = self.standing_at(line, {seq for seq in seqs if 0 < seq <= line.tail})
        done: list[bool] = []
        for seq in seqs:
            delivery = found.pop(seq, None)
            message = self._at(line, seq, delivery.lane) if delivery else None
            source = self._source(message)
            if delivery is None or message is None or source is None or delivery.state == LEASED:
                done.append(False)
                continue
            done.append(True)
            if not dry_run:
                draft = _copy(message, delivery.own_id, delay_ms=0)
                origin = Origin(line.queue.id, message.id, reason="redrive")
                self.insert(source, [draft], actor, now_ms, origin)
                self.end(line, "deleted", [delivery], actor, now_ms)
        return done

    def _source(self, message: Message | None) -> Line | None:
        """Where a dead letter was buried from, if it is one and that queue is still there."""
        if message is None or message.origin is None or message.origin.reason != "attempts":
            return None
        return self._book.lines.get(message.origin.queue)


def _copy(message: Message, own_id: str | None, delay_ms: int | None = None) -> Draft:
    return Draft(
        message.body,
        message.content_type,
        message.headers,
        own_id,
        delay_ms,
        group=message.group,
    )
