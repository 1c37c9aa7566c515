"""Letting time pass: leases and delays end, messages expire, what was deleted empties itself."""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from courier.core import lifecycle
from courier.core.errors import StoreDamaged
from courier.core.types import BROKER, DAY_MS, MINUTE_MS, Swept
from courier.store.engine.book import Book, Heap
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between, Cutoffs, Due
from courier.store.engine.endings import INLINE_MAX, Endings
from courier.store.engine.layout import (
    DELAYED,
    GONE,
    LEASED,
    NEVER_MS,
    READY,
    SEQ_BITS,
    SEQ_MASK,
)
from courier.store.engine.leases import Leases
from courier.store.engine.lines import Delivery, PushLine, QueueLine
from courier.store.engine.pushes import SILENCE, FailedPush, Pushes

MINUTES_KEPT_MS = 16 * DAY_MS
HOURS_KEPT_MS = 460 * DAY_MS
LEVELS_KEPT_MS = 16 * DAY_MS

_NOTHING = Due([], [], [])


class Over(NamedTuple):
    """A lease or a delay that has ended: of a row, or of one message of a range."""

    due_ms: int
    key: int
    row: Delivery | None


class Sweep:
    def __init__(
        self,
        book: Book,
        deliveries: Deliveries,
        leases: Leases,
        endings: Endings,
        pushes: Pushes,
    ) -> None:
        self._book = book
        self._deliveries = deliveries
        self._leases = leases
        self._endings = endings
        self._pushes = pushes
        self._forgot_minute = 0

    async def pass_time(self, now_ms: int) -> None:
        """What every verb does first. Costs a few comparisons when nothing is due."""
        book = self._book
        if now_ms >= book.minute_end_ms:
            book.turn(now_ms)
        if book.behind(now_ms) or now_ms >= book.next_retention_ms:
            await self._happen(now_ms, INLINE_MAX)

    async def sweep(self, now_ms: int, limit: int) -> Swept:
        self._book.turn(now_ms)
        expired, returned, buried = await self._happen(now_ms, limit)
        left = limit - expired - returned - buried
        dropped = await self._dropped_pushes(now_ms, left)
        if self._book.dropped and dropped < left:
            dropped += await self._dropped_queue(now_ms, left - dropped)
        minute = now_ms // MINUTE_MS
        if minute > self._forgot_minute and await self._forget(now_ms, limit):
            self._forgot_minute = minute
        next_ms = min(await self._next_due(limit), self._book.next_retention())
        dropping = self._book.dropped or self._book.dropped_pushes
        return Swept(
            expired,
            returned,
            buried,
            dropped,
            next_ms if next_ms < NEVER_MS else None,
            next_ms <= now_ms or bool(dropping) or minute > self._forgot_minute,
        )

    async def _happen(self, now_ms: int, limit: int) -> tuple[int, int, int]:
        """Up to `limit` due things; how many messages expired, returned and were buried.

        Leases and delays come first and in order: one that ended before the message expired
        must not be overtaken, for it may have saved the message into the dead letters. Those of
        pushes come before the others, which may end the message.
        """
        book = self._book
        expired = returned = buried = 0
        if book.behind(now_ms):
            due = _NOTHING
            if now_ms >= book.next_due_ms:
                await book.spill()
                due = await book.disk.due(now_ms, limit=limit)
            over = self._over(book.due_pushes, due.pushes, now_ms, limit)
            returned += await self._over_pushes(over[:limit], now_ms)
            self._push_back(book.due_pushes, over)
            left = max(0, limit - returned)
            over = self._over(book.due, due.deliveries, now_ms, left)
            counts = await self._over_leases(over[:left], now_ms)
            self._push_back(book.due, over)
            expired, returned, buried = counts[0], returned + counts[1], counts[2]
            if book.blocks.copied_much:  # some of them may be left, and come first
                limit = 0
            left = limit - expired - returned - buried
            if left > 0 and due.expiries:
                expired += await self._own_expiry(due.expiries, now_ms, left)
            await self._look_ahead()
        left = limit - expired - returned - buried
        if left > 0 and now_ms >= book.next_retention_ms:
            expired += await self._aged(now_ms, left)
        return expired, returned, buried

    @contextmanager
    def _noting_damage(self, line: QueueLine | PushLine) -> Iterator[None]:
        """What cannot be read fails this group, and no later one."""
        try:
            yield
        except StoreDamaged:
            self._book.damaged.add(line.no)
            raise

    async def _look_ahead(self) -> tuple[int, int] | None:
        """Note when the next thing is due; time and key of the next block with an expiry."""
        await self._book.spill()
        first = await self._book.disk.due(NEVER_MS, limit=1)
        found = [row.due_ms for row in (*first.deliveries, *first.pushes)]
        found += [at_ms for at_ms, _ in first.expiries]
        self._book.next_due_ms = min(found, default=NEVER_MS)
        return first.expiries[0] if first.expiries else None

    # --- leases and delays ---

    def _over(self, heap: Heap, rows: list[Delivery], now_ms: int, limit: int) -> list[Over]:
        """What has ended, in order, and at least `limit` if there is as much. Ranges leave the
        heap; see `_push_back`."""
        found = [Over(row.due_ms, row.key, row) for row in rows]
        count = 0
        last: tuple[int, int, int] | None = None
        while heap and heap[0][0] <= now_ms and count < limit:
            entry = heapq.heappop(heap)
            ended = self._book.range_of(entry)
            # A range that was given the same end twice has two entries.
            if ended is not None and entry != last:
                last = entry
                base = entry[1] << SEQ_BITS
                found += [Over(entry[0], base | seq, None) for seq in ended.seqs()]
                count += ended.left
        found.sort(key=lambda over: (over.due_ms, over.key))
        return found

    def _push_back(self, heap: Heap, over: list[Over]) -> None:
        """Ranges that were not done with go back to the heap."""
        entries = set()
        for due_ms, key, row in over:
            if row is None:
                line = self._book.by_no[key >> SEQ_BITS]
                ended = line.range_at(key & SEQ_MASK)
                if ended is not None and ended.until_ms == due_ms:
                    entries.add((due_ms, line.no, ended.first))
        for entry in entries:
            heapq.heappush(heap, entry)

    async def _delivery(self, line: QueueLine | PushLine, over: Over) -> Delivery | None:
        """What ended, if it is still what it was: something before may have changed it."""
        seq = over.key & SEQ_MASK
        if line.no in self._book.damaged:
            return None
        if over.row is None:
            return (await self._deliveries.standing_at(line, [seq])).get(seq)
        row = (await self._deliveries.rows_at(line, [seq])).get(seq)
        waits = row is not None and row.state in (LEASED, DELAYED) and row.due_ms == over.due_ms
        return row if waits else None

    async def _over_leases(self, over: list[Over], now_ms: int) -> tuple[int, int, int]:
        """Leases and delays of pullers, in the order in which they came due."""
        expired = returned = buried = 0
        for each in over:
            if self._book.blocks.copied_much:
                break
            line = self._book.by_no[each.key >> SEQ_BITS]
            assert isinstance(line, QueueLine)
            with self._noting_damage(line):
                delivery = await self._delivery(line, each)
            if delivery is None:
                continue
            expires_ms = lifecycle.expires_ms(
                line.queue, published_ms=delivery.published_ms, own_ms=delivery.expires_ms
            )
            if line.dropped:
                # Nothing comes due on a deleted queue; its messages are about to go.
                self._deliveries.put(line, delivery, READY, 0)
                returned += 1
            elif expires_ms <= delivery.due_ms:
                aged = delivery.expires_ms is None
                await self._endings.end(line, "expired", [delivery], BROKER, now_ms, aged=aged)
                expired += 1
            elif delivery.state == DELAYED:
                await self._leases.release(line, delivery, delivery.due_ms, now_ms)
                returned += 1
            elif await self._leases.fail(
                line,
                delivery,
                kind="lease_expired",
                delay_ms=None,
                ended_ms=delivery.due_ms,
                actor=BROKER,
                now_ms=now_ms,
            ):
                buried += 1
            else:
                returned += 1
        return expired, returned, buried

    async def _over_pushes(self, over: list[Over], now_ms: int) -> int:
        """Make pushes ready whose wait is over, or whose lease is."""
        found: dict[int, list[Delivery]] = {}
        for each in over:
            line = self._book.by_no[each.key >> SEQ_BITS]
            with self._noting_damage(line):
                delivery = await self._delivery(line, each)
            if delivery is not None:
                found.setdefault(line.no, []).append(delivery)
        returned = 0
        for no, rows in found.items():
            pushes = self._book.by_no[no]
            assert isinstance(pushes, PushLine)
            returned += await self._over_on(pushes, rows, now_ms)
        return returned

    async def _over_on(self, pushes: PushLine, rows: list[Delivery], now_ms: int) -> int:
        line = pushes.line
        if line is None or pushes.dropped or line.dropped:
            # Nothing comes due any more; these are about to go.
            for row in rows:
                self._deliveries.put(pushes, row, READY, row.due_ms)
            return len(rows)
        # What goes together with its message, whose expiry is its own, is left to that.
        there = [row for row in rows if row.expires_ms is None or row.expires_ms > row.due_ms]
        ready = [row for row in there if row.state != LEASED]
        for row in ready:
            self._deliveries.put(pushes, row, READY, row.due_ms)
        if ready:
            self._book.wake_pushes(pushes, len(ready))
        ended = [FailedPush(row, SILENCE, row.due_ms, 0) for row in there if row.state == LEASED]
        if ended:
            await self._pushes.failed(line, pushes, ended, now_ms)
        return len(there)

    # --- messages ---

    async def _own_expiry(self, blocks: list[tuple[int, int]], now_ms: int, limit: int) -> int:
        """Messages that were published with an expiry of their own, block by block."""
        ended = 0
        for _, key in blocks:
            if ended >= limit:
                break
            line = self._book.by_no[key >> SEQ_BITS]
            if line.no not in self._book.damaged:
                with self._noting_damage(line):
                    ended += await self._expire_in(key, now_ms, limit - ended)
        return ended

    async def _expire_in(self, key: int, now_ms: int, limit: int) -> int:
        """End a block's expired messages; notes its next expiry if there is one."""
        line = self._book.by_no[key >> SEQ_BITS]
        assert isinstance(line, QueueLine)
        kind = "deleted" if line.dropped else "expired"
        over, coming = await self._expiries(line, key, now_ms)
        limit = max(1, limit // line.weight)
        await self._endings.end_any(line, kind, over[:limit], BROKER, now_ms)
        if len(over) <= limit:
            self._book.changes.expiries[key] = min(coming, default=None)
            self._book.changed = True
        return min(len(over), limit)

    async def _expiries(
        self, line: QueueLine, key: int, now_ms: int
    ) -> tuple[list[int], list[int]]:
        """Sequences of a block's messages that have expired and are still there, and the expiries
        to come of others that are."""
        block = await self._book.blocks.at(line, key & SEQ_MASK)
        own = {}
        for place, rare in block.rare.items():
            if rare.expires_ms is not None:
                own[block.first + place] = rare.expires_ms
        there = await self._endings.there(line, own)
        over = sorted(seq for seq in there if own[seq] <= now_ms)
        return over, [own[seq] for seq in there if own[seq] > now_ms]

    async def _next_due(self, limit: int) -> int:
        """When the next thing is due. Blocks whose messages with an expiry went are passed."""
        book = self._book
        for _ in range(limit):
            expiry = await self._look_ahead()
            if expiry is None:
                break
            at_ms, key = expiry
            line = book.by_no[key >> SEQ_BITS]
            assert isinstance(line, QueueLine)
            if line.no in book.damaged:
                break
            over, coming = await self._expiries(line, key, at_ms)
            if over:
                break
            book.changes.expiries[key] = min(coming, default=None)
            book.changed = True
        found = [book.next_due_ms]
        for heap in (book.due, book.due_pushes):
            while heap and self._book.range_of(heap[0]) is None:
                heapq.heappop(heap)
            found += [entry[0] for entry in heap[:1]]
        return min(found)

    async def _aged(self, now_ms: int, limit: int) -> int:
        """Messages as old as their queue allows."""
        expired, left = 0, limit
        for line in self._book.lines.values():
            if line.expiry_ms <= now_ms and line.no not in self._book.damaged:
                with self._noting_damage(line):
                    ended = await self._endings.expire(line, left, now_ms)
                expired += ended
                left -= ended * line.weight
                if left <= 0:
                    break
        self._book.retention_stale = True
        self._book.next_retention()
        return expired

    # --- what was deleted ---

    async def _dropped_pushes(self, now_ms: int, limit: int) -> int:
        """End up to `limit` pushes of deleted listeners; how many of messages that are there."""
        ended = left = 0
        for pushes in list(self._book.dropped_pushes.values()):
            left = limit - ended
            line = pushes.line
            if left > 0 and line is not None and pushes.owing:
                found = await self._deliveries.standing(pushes, limit=left)
                self._endings.give_up(line, pushes, found, "listener", now_ms)
                await self._endings.after_pushes(line, [each.seq for each in found], now_ms)
                ended += len(found)
                left -= len(found)
            if left > 0 and line is not None:
                settled = await self._settled(pushes, left)
                ended += len(await self._endings.there(line, settled))
                left -= len(settled)
            if left > 0:
                self._forget_pushes(pushes)
        return ended

    async def _settled(self, pushes: PushLine, limit: int) -> list[int]:
        """Forget up to `limit` acknowledged pushes of a line on which nothing stands any more."""
        rows = await self._deliveries.rows(pushes, Between(1, SEQ_MASK, over=True), limit)
        for row in rows:
            if row.state == GONE:  # the cursor must not come to its message
                pushes.cursor, pushes.gone = row.seq, pushes.gone - 1
            self._deliveries.forget(pushes, row)
        return [row.seq for row in rows]

    def _forget_pushes(self, pushes: PushLine) -> None:
        """Nothing is left of this line, and its number is free."""
        book = self._book
        book.changes.emptied.append(pushes.no)
        book.changes.lines[pushes.no] = None
        book.changed = True
        book.by_no.pop(pushes.no)
        book.dropped_pushes.pop(pushes.no, None)
        book.pushes.pop(pushes.id, None)
        book.freed_numbers.append(pushes.no)
        if pushes.line is not None:
            pushes.line.pushes.remove(pushes)
            if pushes is pushes.line.shelf:
                pushes.line.shelf = None

    async def _dropped_queue(self, now_ms: int, limit: int) -> int:
        line = next(iter(self._book.dropped.values()))
        seqs = await self._endings.first(line, limit=max(1, limit // line.weight))
        if seqs:
            return await self._endings.end_any(line, "deleted", seqs, BROKER, now_ms)
        for pushes in list(line.pushes):
            if await self._settled(pushes, limit):
                return 0
            if pushes.dropped:
                self._forget_pushes(pushes)
            else:
                self._book.detach(pushes)
        self._book.empty(line)
        if not await self._book.blocks.are_left(line.no):
            self._book.forget_line(line)
        return 0

    # --- what nobody will ask for ---

    async def _forget(self, now_ms: int, limit: int) -> bool:
        """Old keys, numbers and acknowledged pushes. False: there is more to forget."""
        for line in self._book.lines.values():
            if line.pushes and line.no not in self._book.damaged:
                with self._noting_damage(line):
                    await self._forget_acknowledged(line)
        await self._book.spill()
        cutoffs = Cutoffs(
            now_ms,
            (now_ms - MINUTES_KEPT_MS) // MINUTE_MS,
            (now_ms - HOURS_KEPT_MS) // MINUTE_MS,
            (now_ms - LEVELS_KEPT_MS) // MINUTE_MS,
        )
        self._book.changed = True
        return await self._book.disk.forget(cutoffs, limit=limit)

    async def _forget_acknowledged(self, line: QueueLine) -> None:
        """Acknowledged pushes of messages that are gone from every line."""
        first = min([await self._deliveries.first_seq(each) for each in line.all_lines])
        for pushes in line.pushes:
            if first > 1:
                self._book.changes.settled.append((pushes.base, pushes.base | first - 1))
