"""The values the broker works with: frozen, no I/O, no vendor's words.

publish --> ready --lease--> leased --ack--> done
   |         ^  ^               |
   delay     |  '--- retry or expiry, attempts left
   v         |                  |
delayed -----'                  '--- no attempts left --> buried
"""

from enum import Enum
from typing import Any, Literal

from msgspec import Struct, field

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

ContentType = Literal["text", "json", "bytes"]
Scope = Literal[
    "queues:read",
    "queues:write",
    "messages:read",
    "messages:publish",
    "messages:consume",
    "journal",
    "admin",
]


class Actor(Struct, frozen=True):
    """Who asked for a change, and through which dialect; both go into the journal."""

    id: str = ""
    dialect: str = ""


BROKER = Actor(dialect="broker")


# --- settings --------------------------------------------------------------------------------


class Record(Struct, frozen=True, kw_only=True, tag=True):
    """A setting kept by the store. `tenant` owns it; `parent` is what it hangs on, if anything.

    Names are unique per kind and tenant; records of one kind and parent that carry no name are
    not compared.
    """

    id: str
    tenant: str
    parent: str = ""
    name: str = ""
    created_ms: int


class Tenant(Record, frozen=True, kw_only=True, tag=True):
    """Owner of queues and keys. Tenants of one organization share its id."""

    organization: str


class Grant(Struct, frozen=True):
    """One scope a key holds. No targets means every queue of the tenant."""

    scope: Scope
    targets: tuple[str, ...] = ()


class Key(Record, frozen=True, kw_only=True, tag=True):
    """A credential. Only the digest of its secret is kept; `hint` is its first characters."""

    digest: str
    hint: str
    grants: tuple[Grant, ...]
    enabled: bool = True
    expires_ms: int | None = None


class PurgeStatus(Struct, frozen=True):
    """A purge deletes the messages with a sequence up to `upto_seq`."""

    started_ms: int
    upto_seq: int
    completed: bool = False


class Queue(Record, frozen=True, kw_only=True, tag=True):
    """Named buffer of messages, with the rules of its pull subscription.

    `attempts_max` None: a message is attempted until its retention ends. `dead_letter` is the
    id of the queue that buried messages go to; without one they are dropped. `labels` are shown
    but have no effect. A frozen queue refuses new messages.
    """

    modified_ms: int
    delay_ms: int = 0
    retention_ms: int = 4 * DAY_MS
    lease_ms: int = 30 * SECOND_MS
    retry_delay_ms: int = 0
    attempts_max: int | None = 4
    dead_letter: str | None = None
    paused: bool = False
    frozen: bool = False
    purge: PurgeStatus | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Consumer(Record, frozen=True, kw_only=True, tag=True):
    """How a queue's pull subscription is consumed; `parent` is the queue. At most one per queue.

    Mode `pull`: clients ask. Mode `push`: Courier calls the operator's URL for `script`.
    """

    mode: Literal["pull", "push"]
    batch_size: int
    script: str = ""
    wait_ms_max: int = 5 * SECOND_MS
    concurrency_max: int | None = None


class EventSubscription(Record, frozen=True, kw_only=True, tag=True):
    """Rule that turns events of a source into messages on queue `parent`."""

    title: str
    modified_ms: int
    enabled: bool
    source: dict[str, str]
    events: tuple[str, ...]


class Pipeline(Record, frozen=True, kw_only=True, tag=True):
    """A registered reader of the journal; nothing after `offset` may be trimmed."""

    offset: int
    seen_ms: int


AnyRecord = Tenant | Key | Queue | Consumer | EventSubscription | Pipeline


# --- messages --------------------------------------------------------------------------------


class Origin(Struct, frozen=True, omit_defaults=True):
    """Where a message came from when no caller published it as it is."""

    queue: str
    message: str
    attempts: int = 0
    reason: str = ""


class Draft(Struct, frozen=True):
    """What a caller asks to publish. None means: as the queue says.

    `id` is the publisher's own; `once_key` makes a repeated publish within `once_ms` return the
    first message instead of storing a second one.
    """

    body: bytes
    content_type: ContentType = "text"
    headers: dict[str, Any] | None = None
    id: str | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    group: str | None = None
    once_key: str | None = None
    once_ms: int = DAY_MS


class Message(Struct, frozen=True):
    """A stored draft. It never changes; `seq` grows with every message of its queue."""

    seq: int
    id: str
    published_ms: int
    body: bytes
    content_type: ContentType
    headers: dict[str, Any] | None = None
    group: str | None = None
    expires_ms: int | None = None
    origin: Origin | None = None
    attempts: int = 0

    @property
    def size(self) -> int:
        return len(self.body)


class QueueStats(Struct, frozen=True):
    """Backlog: every message not yet done, be it waiting, delayed or leased."""

    count: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    leased: int = 0
    delayed: int = 0


class Receipt(Struct, frozen=True):
    """Answer to a publish, in the order of the drafts. `repeated[i]`: was there already."""

    ids: list[str]
    repeated: list[bool]
    stats: QueueStats


class Leased(Struct, frozen=True):
    """Answer to a lease. Each message's `attempts` is the attempt that this lease is."""

    messages: list[Message]
    until_ms: int
    stats: QueueStats


class Ack(Struct, frozen=True):
    """Done with it. `late`: also when the lease has ended meanwhile."""

    seq: int
    attempt: int
    late: bool = False


class Retry(Struct, frozen=True):
    """Hand it out again after `delay_ms` (None: as the queue says), or bury it."""

    seq: int
    attempt: int
    delay_ms: int | None = None


class Extend(Struct, frozen=True):
    """Let the lease end `lease_ms` from now."""

    seq: int
    attempt: int
    lease_ms: int


Settlement = Ack | Retry | Extend


class Outcome(Enum):
    DONE = "done"  # the lease was current, and the settlement took effect
    LATE = "late"  # the lease had ended; took effect only if it was an ack that may be late
    GONE = "gone"  # the message is no longer there


class Swept(Struct, frozen=True):
    """What a sweep did, and when the next thing is due (None: nothing is waiting for time)."""

    expired: int = 0
    returned: int = 0
    buried: int = 0
    dropped: int = 0
    next_ms: int | None = None
    more: bool = False


# --- journal ---------------------------------------------------------------------------------


class Run(Struct, frozen=True, array_like=True):
    """Neighbouring events that differ only in `columns`, as they are packed in the journal.

    The events have the offsets `offset` .. `offset + count - 1`. A column is a list with one
    value for each event, or one value that holds for all of them; an absent column is null.
    """

    offset: int
    count: int
    kind: str
    at_ms: int
    tenant: str
    queue: str
    queue_name: str
    actor: str
    dialect: str
    columns: dict[str, Any]


class Head(Struct, frozen=True):
    """The journal holds offsets `first` .. `last` (none when `last` < `first`).

    `epoch` changes when the store is recreated.
    """

    first: int
    last: int
    epoch: str
    bytes: int
