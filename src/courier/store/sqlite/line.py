"""Lines of delivery, a queue's own and its listeners': where they stand and what they hold."""

from courier.core.types import MINUTE_MS, Listener, PushStats, Queue

SEQ_BITS = 42
LANE = 1 << SEQ_BITS
LINE_BITS = SEQ_BITS + 1
SEQ_MASK = LANE - 1
NO_MASK = (1 << 20) - 1
# Lane 0 is the cursor's, lane 1 holds what it must not meet, and the third what is kept for pushes.
KEPT = 2
_LANES = (0, LANE, -(1 << 63))
NEVER_MS = 1 << 62

READY, LEASED, DELAYED = 0, 1, 2
# Only a push is ever in these.
ACKNOWLEDGED, EXHAUSTED = -1, -2


class Line:
    """The subscription that all pullers of a queue share.

    `again` deliveries are ready after having been handed out or delayed, `held` messages lie in
    lane 1. `oldest_ms` is never later than the oldest message's time; `oldest_known` says that
    it is exactly that.

    Messages without an expiry of their own end by the queue's retention. None of them was
    published before `aging_ms`, and of each lane none has a sequence up to `passed`.

    `kept` messages have left it and only wait for their pushes. Each listener has a line of its
    own among `push_lines`, in the order of their creation, and so has one that is gone until its
    pushes are; those come last.

    `level` is what it held (messages, leased, delayed) after its last change, which was in
    `minute`. `full`: a lease was cut short by the number of leases allowed.
    """

    __slots__ = (
        "again",
        "aging_ms",
        "base",
        "bytes",
        "count",
        "cursor",
        "delayed",
        "full",
        "held",
        "id",
        "kept",
        "leased",
        "level",
        "minute",
        "no",
        "oldest_known",
        "oldest_ms",
        "passed",
        "push_lines",
        "queue",
        "tail",
    )

    def __init__(self, no: int, queue: Queue) -> None:
        self.no = no
        self.base = no << LINE_BITS
        self.id = queue.id
        self.queue = queue
        self.tail = self.cursor = self.count = self.bytes = 0
        self.leased = self.delayed = self.again = self.held = 0
        self.oldest_ms = 0
        self.oldest_known = False
        self.aging_ms = NEVER_MS
        self.passed = [0, 0, 0]
        self.kept = 0
        self.push_lines: list[PushLine] = []
        self.level = (0, 0, 0)
        self.minute = queue.created_ms // MINUTE_MS
        self.full = False

    def message_key(self, seq: int, lane: int) -> int:
        return (self.base | seq) + _LANES[lane]

    @property
    def weight(self) -> int:
        """What ending one of its messages costs, beside one of a queue without listeners."""
        return 1 + len(self.push_lines) // 4

    @property
    def expiry_ms(self) -> int:
        """Nothing of this line reaches its retention before this."""
        held = self.count or self.kept
        return self.aging_ms + self.queue.retention_ms if held else NEVER_MS


class PushLine:
    """The subscription of one listener. `line` is its queue's, None if there is no such queue.

    `dropped`: the listener is gone, and the sweep is about to end its pushes.
    """

    __slots__ = (
        "acknowledged",
        "base",
        "dropped",
        "exhausted",
        "id",
        "in_flight",
        "last_failure_ms",
        "last_success_ms",
        "line",
        "listener",
        "missed",
        "no",
        "open",
    )

    def __init__(self, no: int, listener: Listener) -> None:
        self.no = no
        self.base = no << LINE_BITS
        self.id = listener.id
        self.listener = listener
        self.line: Line | None = None
        self.dropped = False
        self.open = self.in_flight = self.exhausted = self.missed = self.acknowledged = 0
        self.last_success_ms = self.last_failure_ms = 0

    @property
    def stats(self) -> PushStats:
        return PushStats(
            self.open,
            self.in_flight,
            self.missed,
            self.acknowledged,
            self.last_success_ms,
            self.last_failure_ms,
        )
