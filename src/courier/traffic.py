"""What all connections share: the limits, and the count of what is held for callers.

A caller who has shown no credential can make the server hold only a little: what all such callers
have sent and not had answered is counted in `strangers`. When it is too much, those give way for
whom something has been held the longest, so that a flood of requests that never end costs the flood
its own connections and not others their answers. The bodies of admitted callers are counted in
`bodies`, messages on their way to them in `answers`, and whatever they do not read in `unread`.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from courier.core.limits import AnswerRoom
from courier.heads import Heads
from courier.proxies import Proxies
from courier.web import App

if TYPE_CHECKING:
    from courier.connection import Connection

# Reading little at a time leaves the most of a flood in the kernel, and gives others their turn.
HEAD_READ_BYTES = 4 << 10
# From those who have not been let in yet, who may send very many very short requests at once.
STRANGER_READ_BYTES = 512
BODY_READ_BYTES = 64 << 10
# Part of all connections that is ended at a time when all are taken, and how long to wait before
# looking for others if there were fewer.
ENDED_SHARE = 100
LOOK_AGAIN_S = 0.25
# Part of `bodies_bytes_max` that large bodies leave to small ones.
SMALL_BODY_BYTES = 64 << 10
SMALL_BODIES_SHARE = 4


class TrafficLimits(Struct, frozen=True, kw_only=True):
    """What connections may ask of the server; waits are in seconds.

    `lingering_max` is for connections that are over but for their client's reading the last
    answer; they do not count as open. `framing_bytes_max` is for what a chunked body has beside
    its content: trailers, which are thrown away, and chunk extensions. `strangers_bytes_max` is
    for all that is held for callers who have shown no credential, `bodies_bytes_max` for the
    bodies of those who have, and `answers_bytes_max` for messages that are being sent to them.
    """

    connections_max: int = 10_000
    connections_per_address_max: int = 5_000
    lingering_max: int = 1_000
    handshakes_max: int = 400
    header_bytes_max: int = 64 << 10
    headers_max: int = 128
    header_wait_s: float = 15.0
    request_wait_s: float = 30.0
    idle_wait_s: float = 75.0
    linger_wait_s: float = 2.0
    pipelined_max: int = 16
    framing_bytes_max: int = 16 << 10
    strangers_bytes_max: int = 24 << 20
    bodies_bytes_max: int = 256 << 20
    answers_bytes_max: int = 256 << 20

    @property
    def body_bytes_max(self) -> int:
        """The largest single body that can ever be received."""
        return self.bodies_bytes_max - self.bodies_bytes_max // SMALL_BODIES_SHARE


class Held:
    """Bytes that are held for connections, of which those come first that hold some the longest."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._counts: dict[Connection, int] = {}
        self.bytes = 0

    @property
    def too_much(self) -> bool:
        return self.bytes > self._bytes_max

    def __iter__(self) -> Iterator["Connection"]:
        return iter(self._counts)

    def hold(self, connection: "Connection", count: int) -> None:
        self.bytes += count - self._counts.get(connection, 0)
        if count:
            self._counts[connection] = count
        else:
            self._counts.pop(connection, None)


class Traffic:
    """What all connections share."""

    def __init__(self, app: App, limits: TrafficLimits, proxies: Proxies) -> None:
        self.app = app
        self.limits = limits
        self.proxies = proxies
        # All connections read into one buffer, since what is read is parsed at once.
        self.buffer = memoryview(bytearray(BODY_READ_BYTES))
        self.head_buffer = self.buffer[:HEAD_READ_BYTES]
        self.stranger_buffer = self.buffer[:STRANGER_READ_BYTES]
        self.heads = Heads()
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        # Those that do not linger, and how many of them each address has; not of proxies, who come
        # for many.
        self._open: dict[Connection, str] = {}
        self._addresses: dict[str, int] = {}
        self._lingering: dict[Connection, None] = {}  # the longest first
        # For callers who have shown no credential; of answers to the others, what they do not read.
        self.strangers = Held(limits.strangers_bytes_max)
        self.unread = Held(limits.answers_bytes_max)
        self.draining = asyncio.Event()
        self.stopping = False  # whether it is set
        self._look_again_s = 0.0
        self.bodies = 0
        self.answers = AnswerRoom(limits.answers_bytes_max)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self.connections or self._tasks)

    def full(self, address: str, *, beside: int = 0) -> bool:
        """Whether there is no room for a connection, in all or from this address.

        `beside`: that many will be here soon.
        """
        limits = self.limits
        if self._addresses.get(address, 0) >= limits.connections_per_address_max:
            return True
        if len(self._open) + beside < limits.connections_max:
            return False
        self._make_place()
        return len(self._open) + beside >= limits.connections_max

    def _make_place(self) -> None:
        """End connections that wait for nothing but their client, those of strangers first; else
        long polls of a tenant that has more than its share of all connections.

        Several at a time, and not again at once if there were few: looking for them takes a while.
        """
        now_s, most = self.loop.time(), self.limits.connections_max
        if now_s < self._look_again_s:
            return
        idle: list[tuple[bool, float, int, Connection]] = []
        waiting: dict[str, list[Connection]] = {}
        for number, each in enumerate(self._open):
            if (since_s := each.idle_s) is not None:
                idle.append((each.known, since_s, number, each))
            elif (tenant := each.waits_for) is not None:
                waiting.setdefault(tenant, []).append(each)
        crowd = max(waiting.values(), key=len, default=[])
        ended = [each for *_, each in sorted(idle)] or crowd[: max(0, len(crowd) - most // 2)]
        count = max(1, most // ENDED_SHARE)
        if len(ended) < count:
            self._look_again_s = now_s + LOOK_AGAIN_S
        for each in ended[:count]:
            self._close(each)
            each.abort()

    def enter(self, connection: "Connection", address: str) -> None:
        self.connections.add(connection)
        self._open[connection] = address
        if not self.proxies.trusts(address):
            self._addresses[address] = self._addresses.get(address, 0) + 1

    def leave(self, connection: "Connection") -> None:
        self.connections.discard(connection)
        self._lingering.pop(connection, None)
        self.unread.hold(connection, 0)
        self._close(connection)

    def linger(self, connection: "Connection") -> None:
        """It is over, but its client may still have to read why."""
        self._close(connection)
        self._lingering[connection] = None
        if len(self._lingering) > self.limits.lingering_max:
            oldest = next(iter(self._lingering))
            del self._lingering[oldest]
            oldest.abort()

    def _close(self, connection: "Connection") -> None:
        address = self._open.pop(connection, None)
        if address is None:
            return
        left = self._addresses.get(address, 0) - 1
        if left > 0:
            self._addresses[address] = left
        else:
            self._addresses.pop(address, None)

    def make_room(self) -> None:
        """Those give way who have held something, or read nothing, the longest."""
        while self.strangers.too_much:
            next(iter(self.strangers)).give_way()
        while self.unread.too_much:
            slowest = min(self.unread, key=lambda each: each.stalled_s or 0.0)
            self.unread.hold(slowest, 0)
            slowest.abort()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, count: int, *, of: int) -> bool:
        """Make room for bytes of a body of that length. Large ones leave some to small ones."""
        small = of <= SMALL_BODY_BYTES
        limit = self.limits.bodies_bytes_max if small else self.limits.body_bytes_max
        if self.bodies + count > limit:
            return False
        self.bodies += count
        return True
