"""A queue's line of delivery: where it stands and what it holds."""

from courier.core.types import MINUTE_MS, Queue

SEQ_BITS = 42
LANE = 1 << SEQ_BITS
LINE_BITS = SEQ_BITS + 1
SEQ_MASK = LANE - 1
NEVER_MS = 1 << 62

READY, LEASED, DELAYED = 0, 1, 2


class Line:
    """One subscription.

    `again` deliveries are ready after having been handed out or delayed, `held` messages lie in
    lane 1. `oldest_ms` is never later than the oldest message's time; `oldest_known` says that
    it is exactly that.

    Messages without an expiry of their own end by the queue's retention. None of them was
    published before `kept_ms`, and of each lane none has a sequence up to `passed`.

    `level` is what it held (messages, leased, delayed) after its last change, which was in
    `minute`. `full`: a lease was cut short by the number of leases allowed.
    """

    __slots__ = (
        "again",
        "base",
        "bytes",
        "count",
        "cursor",
        "delayed",
        "full",
        "held",
        "kept_ms",
        "leased",
        "level",
        "minute",
        "no",
        "oldest_known",
        "oldest_ms",
        "passed",
        "queue",
        "tail",
    )

    def __init__(self, no: int, queue: Queue) -> None:
        self.no = no
        self.base = no << LINE_BITS
        self.queue = queue
        self.tail = self.cursor = self.count = self.bytes = 0
        self.leased = self.delayed = self.again = self.held = 0
        self.oldest_ms = 0
        self.oldest_known = False
        self.kept_ms = NEVER_MS
        self.passed = [0, 0]
        self.level = (0, 0, 0)
        self.minute = queue.created_ms // MINUTE_MS
        self.full = False

    def message_key(self, seq: int, lane: int) -> int:
        return self.base | lane << SEQ_BITS | seq

    @property
    def expiry_ms(self) -> int:
        """Nothing of this line reaches its retention before this."""
        return self.kept_ms + self.queue.retention_ms if self.count else NEVER_MS
