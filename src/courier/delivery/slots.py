"""Who may make a request now: all listeners and workers share a fixed number of slots.

A request that is not answered holds its slot until it times out, so at every level a quarter of
the slots is reserved:

- one tenant uses at most three quarters of all slots; the rest is for other tenants;
- seats that are not known to be quick use at most three quarters of their tenant's slots; the rest
  is for quick seats;
- slow seats, and further requests to new seats, use at most three quarters of those; the rest is
  for the first request to a new seat;
- one queue uses at most three quarters of those; the rest is for other queues.

A seat is silent once a request to it timed out; it counts as slow here.

Each limit is computed from the free slots plus those already held, so n tenants that want
everything get equal parts, and 1 / (3n + 1) of the slots stays free. Waiting seats are served in
turn: by tenant, then quick before new before slow before silent, then by queue. A single slot is
not divided.

Requests to seats that are not known to be quick start a few at a time: what each of them costs
when it is not answered would stall everybody. One that is answered does not count. Silent seats,
of which there may be thousands, start a few in a second.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from courier.delivery.moments import next_moment_s

# A quarter is reserved.
RESERVED_PART = 4
# Upper bound on the tenants, and on the queues of each, considered when a slot is freed. Others are
# considered next time: a tenant or queue that is refused holds slots, and will free them.
CONSIDERED_MAX = 32
# How many requests to new seats, and to slow ones, may start between two moments.
NEW_STARTS_MAX = 2
SLOW_STARTS_MAX = 1
# One request to a silent seat may start in this many moments.
SILENT_START_MOMENTS = 5
# A seat is slow if its last request took longer than this, or a current one has.
SLOW_S = 1.0


class _Rank(IntEnum):
    """The order in which waiting seats are served."""

    QUICK = 0
    NEW = 1
    SLOW = 2
    SILENT = 3


_RANKS = tuple(_Rank)


class _Queue:
    """How many slots the seats of a queue hold that are not known to be quick."""

    __slots__ = ("seats", "unproven")

    def __init__(self) -> None:
        self.seats = self.unproven = 0


class _Tenant:
    """The same of a tenant, how many it holds at all, and its seats that wait."""

    __slots__ = ("queues", "unproven", "used", "waiting")

    def __init__(self) -> None:
        self.used = self.unproven = 0
        self.queues: dict[str, _Queue] = {}
        self.waiting: tuple[dict[str, dict[Seat, None]], ...] = tuple({} for _ in _Rank)


class Slots:
    """`size` requests at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._used = 0
        self._tenants: dict[str, _Tenant] = {}
        # Tenants that have seats which wait, the next one first.
        self._turns: dict[str, None] = {}
        # How many requests to seats that are not known to be quick may start now, by rank.
        self._starts = _starts()
        self._refilling = False
        self._silent_moments = 0  # since silent seats could last start one

    @property
    def used(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        """How many seats wait for a slot."""
        return sum(
            len(seats)
            for tenant in self._tenants.values()
            for queues in tenant.waiting
            for seats in queues.values()
        )

    def seat(
        self, *, tenant: str, queue: str, wake: Callable[[], None], quick: bool = False
    ) -> "Seat":
        """For a listener or a consumer. `wake` is called when it is offered a slot.

        `quick`: it was known to be so before.
        """
        account = self._tenants.setdefault(tenant, _Tenant())
        account.queues.setdefault(queue, _Queue()).seats += 1
        return Seat(self, tenant, queue, wake, quick=quick)

    # --- for seats only ---

    @property
    def contested(self) -> bool:
        """Somebody waits for a slot."""
        return bool(self._turns)

    def account(self, seat: "Seat") -> tuple[_Tenant, _Queue]:
        tenant = self._tenants[seat.tenant]
        return tenant, tenant.queues[seat.queue]

    def change(self, seat: "Seat", count: int) -> None:
        """The seat holds `count` slots more, or fewer."""
        tenant, queue = self.account(seat)
        self._used += count
        tenant.used += count
        if not seat.quick:
            tenant.unproven += count
            queue.unproven += count

    def started(self, rank: _Rank) -> None:
        """A slot was taken by a seat that is not known to be quick."""
        self._starts[rank] -= 1
        if not self._refilling:
            self._refilling = True
            self._refill_soon()

    def not_started(self, rank: _Rank) -> None:
        """No request was made on such a slot, or none that hung."""
        self._starts[rank] = min(_starts()[rank], self._starts[rank] + 1)

    def _refill(self) -> None:
        silent = self._starts[_Rank.SILENT]
        self._starts = _starts()
        self._silent_moments += 1
        self._refilling = not silent and self._silent_moments < SILENT_START_MOMENTS
        if self._refilling:
            self._starts[_Rank.SILENT] = 0
            self._refill_soon()
        else:
            self._silent_moments = 0
        self.offer()

    def _refill_soon(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(next_moment_s(loop.time()), self._refill)

    def admits(self, seat: "Seat") -> bool:
        """Whether the seat may hold one more."""
        tenant, queue = self.account(seat)
        if not self._room(tenant, seat.rank):
            return False
        others = tenant.unproven - queue.unproven
        return seat.quick or queue.unproven < _unreserved(_unreserved(self._share(tenant)) - others)

    def wait(self, seat: "Seat") -> None:
        tenant, _ = self.account(seat)
        tenant.waiting[seat.rank].setdefault(seat.queue, {})[seat] = None
        self._turns.setdefault(seat.tenant)

    def leave(self, seat: "Seat", rank: _Rank) -> None:
        """It waits no more."""
        tenant, _ = self.account(seat)
        seats = tenant.waiting[rank][seat.queue]
        del seats[seat]
        if not seats:
            del tenant.waiting[rank][seat.queue]
            if not any(tenant.waiting):
                del self._turns[seat.tenant]

    def forget(self, seat: "Seat") -> None:
        tenant, queue = self.account(seat)
        queue.seats -= 1
        if not queue.seats:
            del tenant.queues[seat.queue]
        if not tenant.queues:
            del self._tenants[seat.tenant]

    def offer(self) -> None:
        """Slots have come free: hand them to those who wait, one each in turn."""
        passed = 0
        while self._used < self.size and passed < min(CONSIDERED_MAX, len(self._turns)):
            seat = self._next(self._tenants[_turned(self._turns)])
            if seat is None:
                passed += 1
            else:
                passed = 0
                seat.offered()

    def _next(self, tenant: _Tenant) -> "Seat | None":
        """The seat whose turn it is."""
        for rank in _RANKS:
            queues = tenant.waiting[rank]
            if not queues or not self._starts.get(rank, 1):
                continue  # those that have spent their starts do not hold up the others
            if not self._room(tenant, rank):
                return None
            for _ in range(min(CONSIDERED_MAX, len(queues))):
                seat = next(iter(queues[_turned(queues)]))
                if self.admits(seat):
                    return seat
        return None

    def _room(self, tenant: _Tenant, rank: _Rank) -> bool:
        """Whether the tenant may hold one more for a seat of this rank."""
        share = self._share(tenant)
        if tenant.used >= share or rank is _Rank.QUICK:
            return tenant.used < share
        lent = _unreserved(share)
        limit = lent if rank is _Rank.NEW else _unreserved(lent)
        return self._starts[rank] > 0 and tenant.unproven < limit

    def _share(self, tenant: _Tenant) -> int:
        """How many slots the tenant may hold."""
        return _unreserved(self.size - self._used + tenant.used)


class Seat:
    """What one listener or consumer holds.

    A slot is taken, then a request begins and ends on it, or it is given back. A slot that was
    offered is the seat's until it is taken or declined.
    """

    def __init__(
        self, slots: Slots, tenant: str, queue: str, wake: Callable[[], None], *, quick: bool
    ) -> None:
        self.tenant = tenant
        self.queue = queue
        self.quick = quick
        self._slots = slots
        self._wake = wake
        # Why it is not quick: a request took long, or was not answered in time.
        self._slow = self._silent = False
        self._held = 0
        self._offered = 0
        self._waits: _Rank | None = None
        self._closed = False
        # When the requests on their way began, the oldest first.
        self._began: dict[int, float] = {}
        # As what it took the slots that count as starts.
        self._started: list[_Rank] = []
        self._number = 0

    @property
    def rank(self) -> _Rank:
        if self.quick:
            return _Rank.QUICK
        if self._silent:
            return _Rank.SILENT
        return _Rank.SLOW if self._slow or self._held else _Rank.NEW

    def take(self, wanted: int) -> int:
        """Take up to `wanted` slots; if there is none, `wake` is called when one is offered.

        A seat that is not known to be quick takes one at a time.
        """
        began_s = next(iter(self._began.values()), None)
        if began_s is not None and asyncio.get_running_loop().time() - began_s > SLOW_S:
            self._judge(quick=False, silent=self._silent)
        wanted = wanted if self.quick else min(wanted, 1)
        taken = min(wanted, self._offered)
        self._offered -= taken
        while taken < wanted and self._slots.admits(self):
            self._add()
            taken += 1
        if taken:
            self._leave()
        elif wanted and self._waits is None:
            self._waits = self.rank
            self._slots.wait(self)
        return taken

    def offered(self) -> None:
        """One of the slots is for this seat."""
        self._leave()
        self._add()
        self._offered += 1
        self._wake()

    def decline(self) -> None:
        """What was offered and not taken is for others."""
        if self._offered:
            offered, self._offered = self._offered, 0
            self.give_back(offered)

    def give_back(self, count: int) -> None:
        """No request begins on `count` slots that were taken."""
        if count:
            for _ in range(count):
                self._not_started()
            self._release(count)

    def begin(self) -> int:
        """A request begins on a slot that was taken; returns its number."""
        self._number += 1
        self._began[self._number] = asyncio.get_running_loop().time()
        return self._number

    def again(self, number: int) -> int:
        """The number of a request that follows on the slot of one that was answered; 0: none may,
        and the slot is free. While nobody waits, a quick seat keeps it."""
        now_s = asyncio.get_running_loop().time()
        took_s = now_s - self._began[number]
        if not self.quick or self._started or took_s > SLOW_S or self._slots.contested:
            self.end(number)
            return 0
        del self._began[number]
        self._number += 1
        self._began[self._number] = now_s
        return self._number

    def end(self, number: int, *, answered: bool = True) -> None:
        took_s = asyncio.get_running_loop().time() - self._began.pop(number)
        if answered:
            self._not_started()
        elif self._started:
            self._started.pop()
        quick = took_s <= SLOW_S
        self._judge(quick=quick, silent=not answered and not quick)
        self._release(1)

    def close(self) -> None:
        """Take no more. Requests on their way may still end."""
        self._closed = True
        self._leave()
        self.decline()
        self._forget()

    def _forget(self) -> None:
        if self._closed and not self._held:
            self._closed = False
            self._slots.forget(self)

    def _judge(self, *, quick: bool, silent: bool) -> None:
        if (self.quick, self._slow, self._silent) == (quick, not quick, silent):
            return
        waited = self._waits is not None
        self._leave()
        held = self._held
        self._change(-held)
        self.quick, self._slow, self._silent = quick, not quick, silent
        self._change(held)
        if waited:
            self._waits = self.rank
            self._slots.wait(self)

    def _add(self) -> None:
        rank = self.rank
        self._change(1)
        if rank is not _Rank.QUICK:
            self._started.append(rank)
            self._slots.started(rank)

    def _not_started(self) -> None:
        if self._started:
            self._slots.not_started(self._started.pop())

    def _release(self, count: int) -> None:
        self._change(-count)
        self._slots.offer()
        self._forget()

    def _change(self, count: int) -> None:
        self._slots.change(self, count)
        self._held += count

    def _leave(self) -> None:
        if self._waits is not None:
            waits, self._waits = self._waits, None
            self._slots.leave(self, waits)


class Turn:
    """A seat for one request at a time, of somebody who waits for the slot: `async with`."""

    def __init__(self, slots: Slots, *, tenant: str, queue: str, quick: bool = False) -> None:
        self._offered = asyncio.Event()
        self._seat = slots.seat(tenant=tenant, queue=queue, wake=self._offered.set, quick=quick)
        self._number = 0

    async def __aenter__(self) -> None:
        while not self._seat.take(1):
            self._offered.clear()
            await self._offered.wait()
        self._number = self._seat.begin()

    async def __aexit__(self, *_: object) -> None:
        self._seat.end(self._number)

    def close(self) -> None:
        """Also for one that was cancelled while it waited."""
        self._seat.close()


def _starts() -> dict[_Rank, int]:
    return {_Rank.NEW: NEW_STARTS_MAX, _Rank.SLOW: SLOW_STARTS_MAX, _Rank.SILENT: 1}


def _turned(turns: dict[str, Any]) -> str:
    """The first, which is now the last."""
    name = next(iter(turns))
    turns[name] = turns.pop(name)
    return name


def _unreserved(count: int) -> int:
    """How many of `count` slots are not reserved."""
    return count if count < 2 else count - -(-count // RESERVED_PART)
