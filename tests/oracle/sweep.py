"""What time does to all that the oracle holds."""

import sys
from collections.abc import Callable, Iterator
from functools import partial

from courier.core.types import BROKER, DAY_MS, MINUTE_MS, Push, Swept
from courier.core.waiters import Waiters
from tests.oracle.backlog import Backlog, Delivery
from tests.oracle.claims import Claims
from tests.oracle.holdings import Holdings
from tests.oracle.journal import Cause
from tests.oracle.pushes import SILENCE, PushLine
from tests.oracle.tallies import Tallies

LEVELS_KEPT_MS = 16 * DAY_MS

# Something that is due; it says what it did.
Step = Callable[[], str]


class Sweep:
    def __init__(
        self, holdings: Holdings, tallies: Tallies, waiters: Waiters, claims: Claims
    ) -> None:
        self._holdings = holdings
        self._tallies = tallies
        self._waiters = waiters
        self._claims = claims

    def pass_time(self, now_ms: int) -> None:
        """Make everything happen that is due. A lease's end can be followed by an expiry."""
        while due := self._due(now_ms):
            for step in due:
                step()
        self.look(now_ms)

    def look(self, now_ms: int) -> None:
        """After every change: keep levels, and tell those who wait what has become ready."""
        for id, backlog in self._holdings.backlogs.items():
            leased_before = backlog.counters[1]
            backlog.keep_level(now_ms)
            if backlog.full and backlog.counters[1] < leased_before:
                backlog.full = False
                self._waiters.wake(id, sys.maxsize)
            ready = {delivery.message.seq for delivery in backlog.ready(now_ms)}
            self._waiters.wake(id, len(ready - backlog.told))
            backlog.told = ready
            for line in backlog.lines.values():
                ready = {push.seq for push in line.ready(now_ms)}
                self._waiters.wake(line.listener.id, len(ready - line.told))
                line.told = ready

    def sweep(self, limit: int, now_ms: int) -> Swept:
        counts = {"expired": 0, "returned": 0, "buried": 0, "dropped": 0}
        while due := self._due(now_ms)[: limit - sum(counts.values())]:
            for step in due:
                counts[step()] += 1
        for drops in (self._drop_pushes, self._drop_messages):
            counts["dropped"] += drops(limit - sum(counts.values()), now_ms)
        self.look(now_ms)
        self._forget(now_ms)
        holdings = self._holdings
        dropped_lines = [line for b in holdings.backlogs.values() for line in b.dropped_lines]
        return Swept(
            expired=counts["expired"],
            returned=counts["returned"],
            buried=counts["buried"],
            dropped=counts["dropped"],
            next_ms=min(self._next(now_ms), default=None),
            more=bool(self._due(now_ms) or dropped_lines or holdings.dropped),
        )

    # --- what is due ---

    def _due(self, now_ms: int) -> list[Step]:
        """In the order in which it came due."""
        due: list[tuple[int, Step]] = []
        for backlog in self._holdings.backlogs.values():
            for delivery in backlog.deliveries.values():
                ended_ms, _ = backlog.ends(delivery)
                if ended_ms <= now_ms:
                    due.append((ended_ms, partial(self._end_or_fail, backlog, delivery, now_ms)))
            for delivery in backlog.kept.values():
                ended_ms = backlog.expiry_ms(delivery)
                if backlog.over(delivery, now_ms):
                    due.append((ended_ms, partial(self._end_kept, backlog, delivery, now_ms)))
            for line in backlog.lines.values():
                for ended_ms, push in line.leases():
                    # Of a lease and a message that end together, the message's end counts, if
                    # it ends the push.
                    own_ms = backlog.known(push.seq).message.expires_ms
                    if ended_ms <= now_ms and (own_ms is None or ended_ms < own_ms):
                        step = partial(self._fail_push, backlog, line, push, ended_ms, now_ms)
                        due.append((ended_ms, step))
        return [step for _, step in sorted(due, key=lambda item: item[0])]

    def _end_or_fail(self, backlog: Backlog, delivery: Delivery, now_ms: int) -> str:
        """End the message or its lease."""
        by = Cause(BROKER, now_ms)
        ended_ms, whole = backlog.ends(delivery)
        if whole:
            self._holdings.end("expired", backlog, delivery, by)
            return "expired"
        self._holdings.fail("lease_expired", backlog, delivery, by, ended_ms)
        return "returned" if delivery.message.seq in backlog.deliveries else "buried"

    def _end_kept(self, backlog: Backlog, delivery: Delivery, now_ms: int) -> str:
        self._holdings.end_kept("expired", backlog, delivery, now_ms=now_ms)
        return "expired"

    def _fail_push(
        self, backlog: Backlog, line: PushLine, push: Push, ended_ms: int, now_ms: int
    ) -> str:
        self._holdings.push_failed(
            backlog, line, push, SILENCE, delay_ms=0, ended_ms=ended_ms, now_ms=now_ms
        )
        return "returned"

    def _next(self, now_ms: int) -> Iterator[int]:
        """Every time at which something ends, be it a lease, a delay or a message."""
        for backlog in self._holdings.backlogs.values():
            for delivery in backlog.deliveries.values():
                yield backlog.ends(delivery)[0]
                if backlog.delayed(delivery, now_ms):
                    yield backlog.due_ms(delivery)
            for delivery in backlog.kept.values():
                expiry_ms = backlog.expiry_ms(delivery)
                if expiry_ms > now_ms or backlog.over(delivery, now_ms):
                    yield expiry_ms
            for line in backlog.lines.values():
                yield from line.next(now_ms)

    # --- what was dropped ---

    def _drop_pushes(self, limit: int, now_ms: int) -> int:
        """End up to `limit` pushes of dropped listeners."""
        ended = 0
        holdings = self._holdings
        for backlog in (*holdings.backlogs.values(), *holdings.dropped):
            for line in backlog.dropped_lines:
                for push in list(line.pushes.values())[: limit - ended]:
                    holdings.end_push(backlog, line, push, now_ms=now_ms)
                    ended += 1
            backlog.dropped_lines = [line for line in backlog.dropped_lines if line.pushes]
        return ended

    def _drop_messages(self, limit: int, now_ms: int) -> int:
        """End up to `limit` messages of dropped queues."""
        ended = 0
        holdings = self._holdings
        for backlog in holdings.dropped:
            for delivery in backlog.all_known()[: limit - ended]:
                if delivery.message.seq in backlog.kept:
                    holdings.end_kept("deleted", backlog, delivery, now_ms=now_ms)
                else:
                    holdings.end("deleted", backlog, delivery, Cause(BROKER, now_ms))
                ended += 1
        holdings.dropped = [backlog for backlog in holdings.dropped if backlog.all_known()]
        return ended

    # --- what nobody will ask for ---

    def _forget(self, now_ms: int) -> None:
        """Old keys and numbers."""
        oldest_level = (now_ms - LEVELS_KEPT_MS) // MINUTE_MS
        for backlog in self._holdings.backlogs.values():
            backlog.once = {k: once for k, once in backlog.once.items() if now_ms < once[1]}
            backlog.rows = {k: rows for k, rows in backlog.rows.items() if now_ms < rows[1]}
            backlog.levels = [level for level in backlog.levels if level.minute >= oldest_level]
        self._tallies.age(now_ms)
        self._claims.forget(now_ms)
