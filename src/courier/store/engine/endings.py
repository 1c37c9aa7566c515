"""Taking messages out for good: done with, deleted, or as old as their queue allows.

Retention ends only messages without an expiry of their own. Open pushes are not ended: a message
that a listener is owed is kept for it, and one that pullers are done with goes when no push of it
is open and it is old. They are found in the order of their sequences, where the others may lie
before them for long: a line remembers how far it has looked, so that nothing is passed over twice.
"""

from collections.abc import Collection, Sequence
from typing import Any

from courier.core import events
from courier.core.types import BROKER, Actor, Message, Origin
from courier.store.engine.calls import GroupRunner, Verbs, on_queue
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between
from courier.store.engine.fifo import FifoGroups
from courier.store.engine.journal import EventColumns
from courier.store.engine.layout import ACKNOWLEDGED, EXHAUSTED, LEASED, NEVER_MS, SEQ_MASK
from courier.store.engine.lines import Delivery, PushLine, QueueLine, Shelf
from courier.store.engine.messages import StoredMessages
from courier.store.engine.publishing import Publishing, copy_of

# What a verb does of all that is due before its own work; the rest is left to the sweep.
INLINE_MAX = 1_000
# Pullers are done with a message, and listeners need not be.
_DONE = ("acked", "buried")


class Endings(Verbs):
    def __init__(
        self,
        calls: GroupRunner,
        deliveries: Deliveries,
        fifo: FifoGroups,
        messages: StoredMessages,
        publishing: Publishing,
    ) -> None:
        super().__init__(calls)
        self._deliveries = deliveries
        self._fifo = fifo
        self._messages = messages
        self._publishing = publishing

    async def end(
        self,
        line: QueueLine,
        kind: str,
        ended: Sequence[Delivery],
        actor: Actor,
        now_ms: int,
        detail: dict[str, Any] | None = None,
        *,
        aged: bool = False,
    ) -> None:
        """Take messages off the queue's line, each with an event that tells its whole life.

        `aged`: by the queue's retention, which ends no open push.
        """
        if not ended:
            return
        if any([each.state == LEASED for each in ended]):
            self._book.let_go(line)
        columns = EventColumns(ended, lives=True)
        self._deliveries.off_all(line, ended)
        self._book.removed(line, columns)
        extra = {"detail": detail} if detail else {}
        self._book.note_messages(kind, line.queue, columns, actor=actor, now_ms=now_ms, **extra)
        if line.queue.fifo:
            await self._fifo.refresh(line, [each.group for each in ended])
        if kind not in _DONE and line.pushes:
            seqs = [each.seq for each in ended]
            owed = await self.owed(line, seqs) if aged else set()
            await self.end_pushes(line, [seq for seq in seqs if seq not in owed], kind, now_ms)

    async def end_pushes(
        self, line: QueueLine, seqs: Collection[int], reason: str, now_ms: int
    ) -> None:
        """These messages are gone, and the pushes that were not acknowledged go with them."""
        for pushes in list(line.pushes):
            if pushes.owing:
                found = await self._deliveries.standing_at(pushes, seqs)
                self.give_up(line, pushes, list(found.values()), reason, now_ms)

    def give_up(
        self,
        line: QueueLine,
        pushes: PushLine,
        ended: Sequence[Delivery],
        reason: str,
        now_ms: int,
    ) -> None:
        """Pushes are taken off a listener's line; of those that were open the journal tells."""
        if not ended:
            return
        opened = [each for each in ended if each.state != EXHAUSTED]
        pushes.missed -= sum([each.report is not None for each in ended])
        if isinstance(pushes, Shelf):
            pushes.bytes -= sum([each.size for each in ended])
        elif reason == "expired":
            pushes.expired += len(ended)
        self._deliveries.off_all(pushes, ended)
        if opened:
            self._book.note_messages(
                "push_dropped",
                line.queue,
                EventColumns(opened),
                actor=BROKER,
                now_ms=now_ms,
                detail=events.push_dropped(pushes.id, reason),
            )
            if pushes.listener.ordered:
                self._book.wake_pushes(pushes, 1)

    async def end_any(
        self, line: QueueLine, kind: str, seqs: Collection[int], actor: Actor, now_ms: int
    ) -> int:
        """End messages, including those kept only for pushes; how many there were."""
        held = await self._deliveries.standing_at(line, seqs)
        rest = [seq for seq in seqs if seq not in held]
        kept = await self.kept_among(line, rest) if rest else []
        if kept:
            await self.end_pushes(line, kept, kind, now_ms)
        await self.end(line, kind, [held[seq] for seq in sorted(held)], actor, now_ms)
        return len(held) + len(kept)

    async def kept_among(self, line: QueueLine, seqs: Collection[int]) -> list[int]:
        """Those of the messages that some listener has still to get."""
        found: set[int] = set()
        for pushes in line.pushes:
            if pushes.owing:
                found |= (await self._deliveries.standing_at(pushes, seqs)).keys()
        return sorted(found)

    async def owed(self, line: QueueLine, seqs: Collection[int]) -> set[int]:
        """Those of the messages that have an open push."""
        found: set[int] = set()
        for pushes in line.pushes:
            if pushes.open and seqs:
                standing = await self._deliveries.standing_at(pushes, seqs)
                found |= {seq for seq, each in standing.items() if each.state != EXHAUSTED}
        return found

    async def after_pushes(
        self, line: QueueLine, seqs: Collection[int], now_ms: int, *, arrived: bool = False
    ) -> None:
        """Pushes of these messages are open no more; `arrived`: they were acknowledged.

        On a queue that only pushes, what every listener has acknowledged is delivered. One that
        pullers are done with, and that has an exhausted push, stays as long as the queue's
        retention says; so does one that was delivered.
        """
        missing = [pushes for pushes in line.pushes if pushes.exhausted]
        push_only = self._book.push_only(line)
        if not missing and not push_only:
            return
        held = await self._deliveries.standing_at(line, seqs)
        if push_only and held:
            await self._deliver(line, held, now_ms, arrived=arrived)
        if len(held) == len(seqs) or not missing:
            return
        rest = [seq for seq in seqs if seq not in held]
        owed = await self.owed(line, rest)
        old_ms = now_ms - line.queue.retention_ms
        for pushes in missing:
            found = await self._deliveries.standing_at(pushes, [s for s in rest if s not in owed])
            aged = [each for each in found.values() if each.expires_ms is None]
            for each in aged:
                if each.published_ms > old_ms:
                    self.exhausted(line, pushes, each)
            old = [each.seq for each in aged if each.published_ms <= old_ms]
            await self.end_pushes(line, old, "expired", now_ms)

    async def _deliver(
        self, line: QueueLine, held: dict[int, Delivery], now_ms: int, *, arrived: bool
    ) -> None:
        """Shelve those of the messages whose pushes are all acknowledged, at least one of them by
        a listener that is still there (`arrived`: that is known)."""
        left = set(held)
        acknowledged: set[int] = set()
        for pushes in line.pushes:
            if left and pushes.owing and pushes is not line.shelf:
                left -= (await self._deliveries.standing_at(pushes, left)).keys()
            if left and not arrived and not pushes.dropped:
                rows = await self._deliveries.rows_at(pushes, left)
                acknowledged |= {seq for seq, row in rows.items() if row.state == ACKNOWLEDGED}
        delivered = [held[seq] for seq in sorted(left if arrived else left & acknowledged)]
        shelf = (line.shelf or self._book.new_shelf(line)) if delivered else None
        if shelf is None:
            return
        shelved = [
            Delivery(
                *(shelf.base | each.seq, EXHAUSTED, 0, 0, each.published_ms, None, None, each.size),
                *(each.own_id, each.expires_ms, None, 0, 0, None),
            )
            for each in delivered
        ]
        await self.end(line, "acked", delivered, BROKER, now_ms)
        self._deliveries.add(shelf, shelved)
        for row in shelved:
            self.exhausted(line, shelf, row)
        shelf.bytes += sum([row.size for row in shelved])

    def exhausted(self, line: QueueLine, pushes: PushLine, each: Delivery) -> None:
        """Retention may end this push, unless the message has an expiry of its own."""
        if each.expires_ms is None:
            pushes.passed = min(pushes.passed, each.seq - 1)
            self._book.age(pushes, each.published_ms, line)

    async def there(self, line: QueueLine, seqs: Collection[int]) -> set[int]:
        """Those of the messages that are held, or kept for pushes."""
        held = await self._deliveries.standing_at(line, seqs) if seqs else {}
        rest = [seq for seq in seqs if seq not in held]
        return {*held, *(await self.kept_among(line, rest) if rest else ())}

    async def first(self, line: QueueLine, *, upto: int = SEQ_MASK, limit: int) -> list[int]:
        """Sequences of the first messages, including those kept only for pushes."""
        held = await self._deliveries.standing(line, upto=upto, limit=limit)
        seqs = {each.seq for each in held}
        for pushes in line.pushes:
            if pushes.owing:
                owed = await self._deliveries.standing(pushes, upto=upto, limit=limit)
                seqs |= {each.seq for each in owed}
        return sorted(seqs)[:limit]

    # --- retention ---

    async def keep_up(self, line: QueueLine, now_ms: int) -> bool:
        """Before something of this queue is handed out. False: the sweep is still at it."""
        if line.expiry_ms <= now_ms:
            await self.expire(line, INLINE_MAX, now_ms)
        return line.expiry_ms > now_ms

    async def expire(self, line: QueueLine, limit: int, now_ms: int) -> int:
        """End messages of this queue, looking at up to `limit` of each line; what is left is
        still due. Fewer of a queue with many listeners, whose pushes end with them."""
        limit = max(1, limit // line.weight)
        old = await self._look(line, limit, now_ms)
        await self.end(line, "expired", old, BROKER, now_ms, aged=True)
        ended = len(old)
        if line.aging_ms + line.queue.retention_ms <= now_ms and line.count:
            return ended
        for pushes in line.pushes:
            if ended < limit and pushes.exhausted:
                # Pullers are done with these: all that they held and that is as old has gone.
                kept = await self._look_at_exhausted(line, pushes, limit - ended, now_ms)
                await self.end_pushes(line, kept, "expired", now_ms)
                ended += len(kept)
        return ended

    async def _look(self, line: QueueLine, limit: int, now_ms: int) -> list[Delivery]:
        """The queue's old messages; notes when the next of it will be old."""
        old_ms = now_ms - line.queue.retention_ms
        found = await self._deliveries.standing(line, after=line.passed, limit=limit)
        old: list[Delivery] = []
        line.aging_ms = NEVER_MS
        for each in found:
            if each.expires_ms is None:
                # A lease that has ended may yet save its message into the dead letters.
                over = each.state == LEASED and each.due_ms <= now_ms
                if each.published_ms > old_ms or over:
                    line.aging_ms = each.published_ms
                    return old
                old.append(each)
            line.passed = each.seq
        if len(found) == limit:
            line.aging_ms = found[-1].published_ms
        return old

    async def _look_at_exhausted(
        self, line: QueueLine, pushes: PushLine, limit: int, now_ms: int
    ) -> list[int]:
        """Sequences of a listener's exhausted pushes whose messages are old, and owed to no other
        listener. One that is owed goes with its last open push."""
        old_ms = now_ms - line.queue.retention_ms
        which = Between(pushes.passed + 1, SEQ_MASK)
        found = await self._deliveries.rows(pushes, which, limit)
        old: list[int] = []
        pushes.aging_ms = NEVER_MS
        for each in found:
            if each.state == EXHAUSTED and each.expires_ms is None:
                if each.published_ms > old_ms:
                    pushes.aging_ms = each.published_ms
                    break
                old.append(each.seq)
            pushes.passed = each.seq
        else:
            if len(found) == limit:
                pushes.aging_ms = found[-1].published_ms
        owed = await self.owed(line, old)
        return [seq for seq in old if seq not in owed]

    # --- verbs of the store ---

    @on_queue
    async def remove(
        self,
        line: QueueLine,
        seqs: Sequence[int],
        *,
        actor: Actor,
        now_ms: int,
        leased: bool = True,
        dry_run: bool = False,
    ) -> list[bool]:
        wanted = list(dict.fromkeys(seq for seq in seqs if 0 < seq <= line.tail))
        if leased:
            there = await self.there(line, wanted)
        else:
            held = await self._deliveries.standing_at(line, wanted)
            there = {seq for seq, each in held.items() if each.state != LEASED}
        if not dry_run:
            await self.end_any(line, "deleted", sorted(there), actor, now_ms)
        answers = []
        for seq in seqs:
            answers.append(seq in there)
            there -= {seq}
        return answers

    @on_queue
    async def purge(
        self, line: QueueLine, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        limit = max(1, limit // line.weight)
        seqs = await self.first(line, upto=upto_seq, limit=limit) if upto_seq > 0 else []
        return await self.end_any(line, "purged", seqs, actor, now_ms)

    @on_queue
    async def redrive(
        self,
        line: QueueLine,
        *,
        seqs: Sequence[int],
        actor: Actor,
        now_ms: int,
        dry_run: bool = False,
    ) -> list[bool]:
        there = {seq for seq in seqs if 0 < seq <= line.tail}
        found = await self._deliveries.standing_at(line, there)
        done: list[bool] = []
        for seq in seqs:
            delivery = found.pop(seq, None)
            if delivery is None or delivery.state == LEASED:
                done.append(False)
                continue
            [message] = await self._messages.of(line, [delivery])
            source = self._source(line, message)
            done.append(source is not None)
            if source is not None and not dry_run:
                origin = Origin(line.id, message.id, reason="redrive")
                draft = copy_of(message, delivery.own_id, origin, delay_ms=0)
                await self._publishing.insert(source, [draft], actor, now_ms)
                # Its group may have been touched by what was just published.
                [delivery] = (await self._deliveries.standing_at(line, [seq])).values()
                await self.end(line, "deleted", [delivery], actor, now_ms)
        return done

    def _source(self, line: QueueLine, message: Message) -> QueueLine | None:
        """Where a dead letter was buried from, if it is one and that queue is still there."""
        if message.origin is None or message.origin.reason != "attempts":
            return None
        source = self._book.lines.get(message.origin.queue)
        return source if source and source.queue.tenant == line.queue.tenant else None
