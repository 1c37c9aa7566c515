"""What a queue of the oracle holds, and what of it may be handed out."""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from courier import ids
from courier.core.lifecycle import expires_ms
from courier.core.types import MINUTE_MS, Level, Message, Queue, QueueStats
from tests.oracle.pushes import OPEN, PushLine


@dataclass
class Delivery:
    """A message of a queue and the state of its delivery.

    Not handed out before `due_ms` (None: before the queue's delay is over, as it is by then).
    `until_ms` is the end of its lease, None when not leased. `returning`: was handed out or
    delayed before, and so goes ahead of new messages. `delivered`: is kept because all listeners
    of a queue without pullers have acknowledged it.
    """

    message: Message
    own_id: str | None
    due_ms: int | None
    returning: bool
    until_ms: int | None = None
    attempts: int = 0
    first_leased_ms: int | None = None
    last_leased_ms: int | None = None
    delivered: bool = False

    def leased(self, now_ms: int) -> bool:
        return self.until_ms is not None and now_ms < self.until_ms

    def shown(self) -> Message:
        """The message as a caller gets it: nothing in it is shared with the store."""
        return msgspec.structs.replace(deepcopy(self.message), attempts=self.attempts)


@dataclass
class Backlog:
    """A queue and what it holds, by sequence.

    `once` maps a key to its message's id and to the key's end, `rows` to how many drafts are stored
    under it, to its end and to the mark of those drafts. `told` are the sequences that
    were ready when those who wait were last told. `counters` are what the queue held after its
    last change, and `counters_minute` is when that was. `full`: a lease was cut short by how
    many messages may be leased. `pulled`: a puller has asked for messages, and `consumed`: the
    queue has a consumer.

    `kept` are the messages that only pushes still need, `lines` the pushes of each listener (by
    its id), and `dropped_lines` those of listeners that are gone, until the sweep has ended them.
    """

    queue: Queue
    counters_minute: int
    counters: tuple[int, int, int] = (0, 0, 0)
    levels: list[Level] = field(default_factory=list)
    tail: int = 0
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    once: dict[str, tuple[str, int]] = field(default_factory=dict)
    rows: dict[str, tuple[int, int, bytes | None]] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    full: bool = False
    pulled: bool = False
    consumed: bool = False
    kept: dict[int, Delivery] = field(default_factory=dict)
    lines: dict[str, PushLine] = field(default_factory=dict)
    dropped_lines: list[PushLine] = field(default_factory=list)

    def known(self, seq: int) -> Delivery:
        """What is held or kept under this sequence."""
        return self.deliveries[seq] if seq in self.deliveries else self.kept[seq]

    def all_known(self) -> list[Delivery]:
        """What is held or kept, by sequence."""
        return [self.known(seq) for seq in sorted(self.deliveries | self.kept)]

    def made_id(self, delivery: Delivery) -> str:
        """The generated id, also of a message whose publisher chose another."""
        message = delivery.message
        return ids.message_id(
            published_ms=message.published_ms, seq=message.seq, queue=self.queue.id
        )

    def live_lines(self) -> list[PushLine]:
        """In the order of their listeners' creation."""
        return sorted(
            self.lines.values(),
            key=lambda line: (line.listener.created_ms, line.listener.name, line.listener.id),
        )

    def wanted(self, seq: int) -> bool:
        """Whether the message has a push that is not acknowledged."""
        pushes = [line.pushes.get(seq) for line in (*self.live_lines(), *self.dropped_lines)]
        return any(push is not None and push.status != "acknowledged" for push in pushes)

    def delivered(self, seq: int) -> bool:
        """Whether the queue only pushes, and all listeners have acknowledged the message."""
        pushes = [line.pushes.get(seq) for line in self.lines.values()]
        arrived = any(push is not None and push.status == "acknowledged" for push in pushes)
        return not self.pulled and not self.consumed and arrived and not self.wanted(seq)

    def owed(self, seq: int) -> bool:
        """Whether the message has an open push."""
        pushes = [line.pushes.get(seq) for line in (*self.live_lines(), *self.dropped_lines)]
        return any(push is not None and push.status in OPEN for push in pushes)

    def over(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether a kept message has expired and may go.

        By an expiry of its own, or by the queue's retention when it has no open push.
        """
        if self.expiry_ms(delivery) > now_ms:
            return False
        return delivery.message.expires_ms is not None or not self.owed(delivery.message.seq)

    def due_ms(self, delivery: Delivery) -> int:
        if delivery.due_ms is None:
            return delivery.message.published_ms + self.queue.delay_ms
        return delivery.due_ms

    def delayed(self, delivery: Delivery, now_ms: int) -> bool:
        return delivery.until_ms is None and now_ms < self.due_ms(delivery)

    def ready(self, now_ms: int) -> list[Delivery]:
        """What may be handed out now, in hand-out order."""
        if self.queue.fifo:
            return self._ready_by_group(now_ms)
        ready = [
            delivery
            for delivery in self.deliveries.values()
            if delivery.until_ms is None and not self.delayed(delivery, now_ms)
        ]
        return sorted(ready, key=lambda d: (not d.returning, d.message.seq))

    def _ready_by_group(self, now_ms: int) -> list[Delivery]:
        """The group with the oldest message first; of each what lies before a delayed one."""
        groups: dict[str | None, list[Delivery]] = {}
        for delivery in self.deliveries.values():
            groups.setdefault(delivery.message.group, []).append(delivery)
        ready: list[Delivery] = []
        for group in groups.values():
            if all(delivery.until_ms is None for delivery in group):
                ready += takewhile(lambda d: not self.delayed(d, now_ms), group)
        return ready

    def stats(self, now_ms: int) -> QueueStats:
        held = self.deliveries.values()
        return QueueStats(
            count=len(held),
            bytes=sum(d.message.size for d in held),
            oldest_ms=min((d.message.published_ms for d in held), default=0),
            leased=sum(d.until_ms is not None for d in held),
            delayed=sum(self.delayed(d, now_ms) for d in held),
        )

    def keep_level(self, now_ms: int) -> None:
        """At the first change in a minute, keep what the queue held in those before it."""
        stats, minute = self.stats(now_ms), now_ms // MINUTE_MS
        counters = (stats.count, stats.leased, stats.delayed)
        if counters != self.counters:
            if minute > self.counters_minute:
                self.levels.append(Level(minute - 1, *self.counters))
            self.counters, self.counters_minute = counters, minute

    def expiry_ms(self, delivery: Delivery) -> int:
        message = delivery.message
        return expires_ms(self.queue, published_ms=message.published_ms, own_ms=message.expires_ms)

    def ends(self, delivery: Delivery) -> tuple[int, bool]:
        """When time next takes something away, and whether that is the message itself.

        Of a lease and a message that end together, the message's end counts: retention
        deletes and never buries.
        """
        expiry_ms = self.expiry_ms(delivery)
        if delivery.until_ms is None or expiry_ms <= delivery.until_ms:
            return expiry_ms, True
        return delivery.until_ms, False
