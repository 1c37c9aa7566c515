"""How many bytes of bodies may be on their way to receivers: all listeners and workers share them.

A receiver that hangs holds the bodies it was sent until it times out, so no tenant gets all of
the room:

- one tenant holds at most three quarters of what is free or its own, and one queue at most three
  quarters of its tenant's part; one that holds nothing may take one body beyond its part, as far as
  there is room;
- while a tenant that holds nothing waits for room, those that hold something get no more;
- a body of at most SMALL_BYTES that has a slot always goes: a tenant with huge bodies does not
  keep small ones of others waiting. There are no more of them than slots.

A body that is longer than the whole room goes when nothing else is on its way.
"""

from collections.abc import Callable, Sequence

from courier.core.limits import Allowance
from courier.delivery.slots import RESERVED_PART

SMALL_BYTES = 16 << 10
# Upper bound on the tenants considered when room comes free; others are considered next time.
CONSIDERED_MAX = 32


class _Holder:
    """What a tenant holds, in all and by queue, and who of it waits for how much."""

    __slots__ = ("held", "queues", "shares", "waiting")

    def __init__(self) -> None:
        self.held = self.shares = 0
        self.queues: dict[str, int] = {}
        self.waiting: dict[RoomShare, int] = {}


class PushRoom:
    """`held` bytes of `bytes_max` are on their way."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self._tenants: dict[str, _Holder] = {}
        # Tenants of which somebody waits, the next one first.
        self._turns: dict[str, None] = {}
        # Those of them that hold nothing.
        self._hungry: set[str] = set()

    def share(self, *, tenant: str, queue: str, wake: Callable[[], None]) -> "RoomShare":
        """For a listener or a consumer. `wake` is called when there is room for what it wanted."""
        self._tenants.setdefault(tenant, _Holder()).shares += 1
        return RoomShare(self, tenant, queue, wake)

    # --- for shares only ---

    def admits(self, share: "RoomShare", size: int, *, bodies: int = 1) -> bool:
        """Whether the share may hold that many bytes more."""
        holder = self._tenants[share.tenant]
        if not holder.held and bodies == 1:
            return not self.held or self.held + size <= self.bytes_max
        if self._hungry - {share.tenant}:
            return False
        part = _unreserved(self.bytes_max - self.held + holder.held)
        if holder.held + size > part:
            return False
        own = holder.queues.get(share.queue, 0)
        return not own or own + size <= _unreserved(part - holder.held + own)

    def change(self, share: "RoomShare", size: int) -> None:
        """The share holds `size` bytes more, or fewer."""
        holder = self._tenants[share.tenant]
        self.held += size
        holder.held += size
        own = holder.queues.get(share.queue, 0) + size
        if own:
            holder.queues[share.queue] = own
        else:
            holder.queues.pop(share.queue, None)
        self._note(share.tenant)

    def wait(self, share: "RoomShare", size: int) -> None:
        self._tenants[share.tenant].waiting[share] = size
        self._turns.setdefault(share.tenant)
        self._note(share.tenant)

    def leave(self, share: "RoomShare") -> None:
        """It waits no more."""
        holder = self._tenants[share.tenant]
        if holder.waiting.pop(share, None) is not None and not holder.waiting:
            del self._turns[share.tenant]
        self._note(share.tenant)

    def forget(self, share: "RoomShare") -> None:
        holder = self._tenants[share.tenant]
        holder.shares -= 1
        if not holder.shares:
            del self._tenants[share.tenant]

    def offer(self) -> None:
        """Wake those who wait and for whom there is room now, one of each tenant in turn."""
        for _ in range(min(CONSIDERED_MAX, len(self._turns))):
            tenant = next(iter(self._turns))
            self._turns[tenant] = self._turns.pop(tenant)
            share, size = next(iter(self._tenants[tenant].waiting.items()))
            if self.admits(share, size):
                self.leave(share)
                share.wake()

    def _note(self, tenant: str) -> None:
        holder = self._tenants[tenant]
        if holder.waiting and not holder.held:
            self._hungry.add(tenant)
        else:
            self._hungry.discard(tenant)


class RoomShare:
    """What one listener or consumer holds."""

    def __init__(self, room: PushRoom, tenant: str, queue: str, wake: Callable[[], None]) -> None:
        self.tenant = tenant
        self.queue = queue
        self.wake = wake
        self._room = room
        self._held = 0
        self._closed = False

    def allowance(self, slots: int, bytes_max: int) -> "PushAllowance":
        """For what is taken next, of which `slots` can be sent at once."""
        self._room.leave(self)
        return PushAllowance(self, slots, bytes_max)

    def admit(self, size: int, *, always: bool = False, bodies: int = 1) -> bool:
        admitted = always or self._room.admits(self, size, bodies=bodies)
        if admitted:
            self._change(size)
        return admitted

    def taken(self, allowance: "PushAllowance", sizes: Sequence[int]) -> None:
        """These bodies came of it; what was let in besides is for others."""
        self._change(sum(sizes) - allowance.size)
        if allowance.refused:
            self._room.wait(self, allowance.needed)
        self._room.offer()

    def release(self, size: int) -> None:
        """A body has left, or goes back."""
        self._change(-size)
        self._room.offer()
        self._forget()

    def close(self) -> None:
        """Take no more. Bodies on their way may still be released."""
        self._closed = True
        self._room.leave(self)
        self._room.offer()
        self._forget()

    def _change(self, size: int) -> None:
        if size:
            self._held += size
            self._room.change(self, size)

    def _forget(self) -> None:
        if self._closed and not self._held:
            self._closed = False
            self._room.forget(self)


class PushAllowance(Allowance):
    """How many bytes of bodies one take may bring. `needed` is the one that there was no room for.

    All are counted in the room, until the share releases them.
    """

    __slots__ = ("_share", "_slots", "needed")

    def __init__(self, share: RoomShare, slots: int, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._share = share
        self._slots = slots
        self.needed = 0

    def fitting(self, sizes: Sequence[int]) -> int:
        total, count = sum(sizes), len(sizes)
        fits = count > 1 and self.size + total <= self._bytes_max
        if fits and self._share.admit(total, bodies=count):
            self.size += total
            self._count += count
            return count
        fitting = next((n for n, size in enumerate(sizes) if not self._add(size)), len(sizes))
        self.cut = self.cut or fitting < len(sizes)
        return fitting

    def _add(self, size: int) -> bool:
        if self._count and self.size + size > self._bytes_max:
            return False
        always = size <= SMALL_BYTES and self._count < self._slots
        if not self._share.admit(size, always=always):
            # What is taken ahead is not waited for.
            self.refused, self.needed = self._count < self._slots, size
            return False
        self.size += size
        self._count += 1
        return True


def _unreserved(size: int) -> int:
    return size - size // RESERVED_PART
