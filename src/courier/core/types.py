"""The values the broker works with: frozen, no I/O, no vendor's words.

publish --> ready --lease--> leased --ack--> done
   |         ^  ^               |
   delay     |  '--- retry or expiry, attempts left
   v         |                  |
delayed -----'                  '--- no attempts left --> buried
"""

import codecs
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, overload

from msgspec import Struct, field

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# How long an acknowledged claim is known at most, when nothing follows it.
CLAIM_KNOWN_MS = 400 * DAY_MS

# By how much a sealed body is longer: a nonce before it and a tag behind.
SEAL_BYTES = 12 + 16

_UTF8 = codecs.getincrementaldecoder("utf-8")

ContentType = Literal["text", "json", "bytes"]
Scope = Literal[
    "queues:read",
    "queues:write",
    "messages:read",
    "messages:publish",
    "messages:consume",
    "listeners:read",
    "listeners:write",
    "schemas:read",
    "domains:read",
    "domains:write",
    "events:read",
    "keys:read",
    "keys:write",
    "usage:read",
    "journal",
    "metrics",
    "admin",
]


class Actor(Struct, frozen=True):
    """Who asked for a change, through which dialect, and from which address.

    All go into the journal, the address with changes of settings only.
    """

    id: str = ""
    dialect: str = ""
    address: str = ""


BROKER = Actor(dialect="broker")
# The tenant of records that belong to the operator.
OPERATOR = ""


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

    @property
    def scan_parents(self) -> tuple[str, ...]:
        """The parents that `Records.scan` finds it by."""
        return (self.parent,)


class Tenant(Record, frozen=True, kw_only=True, tag=True):
    """Owner of queues and keys. Tenants of one organization share its id."""

    organization: str


class Grant(Struct, frozen=True):
    """One scope a key holds. No targets means everything of the tenant.

    A target is the id of a queue, or of what the scope is about: a listener, a domain.
    """

    scope: Scope
    targets: tuple[str, ...] = ()


class Retired(Struct, frozen=True):
    """The digest of a secret that was replaced, and works until `until_ms`."""

    digest: str
    until_ms: int


class Key(Record, frozen=True, kw_only=True, tag=True):
    """A credential. Only the digest of its secret is kept; `hint` is its first characters.

    Of the kinds, a `token` is shown with every request; an `app` (whose owner may look its
    secret up again: `sealed`), a `connected_app` and a `user` trade theirs for a session.
    `labels` are what a dialect wants to show again; they have no effect.
    """

    digest: str
    hint: str
    grants: tuple[Grant, ...]
    retired: tuple[Retired, ...] = ()
    kind: Literal["token", "app", "connected_app", "user"] = "token"
    sealed: str = ""
    enabled: bool = True
    expires_ms: int | None = None
    modified_ms: int = 0
    labels: dict[str, Any] = field(default_factory=dict)


class KeyUse(Record, frozen=True, kw_only=True, tag=True):
    """When key `parent`, which has the same id, was last used, give or take some minutes."""

    at_ms: int


class Session(Record, frozen=True, kw_only=True, tag=True):
    """A time-limited stand-in for key `parent`. What proves it is made from its id, not kept.

    However often it is used, it is over at `ends_ms`, with the secret it was opened with.
    """

    expires_ms: int
    ends_ms: int | None = None


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

    `fifo`: messages of one group are handed out in the order of their arrival, and none while
    another of the group is leased; set at creation. `encrypted`: bodies are sealed before they
    are stored. `schema` is the id of the Schema that its messages must follow, "" for none.
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
    fifo: bool = False
    encrypted: bool = False
    schema: str = ""

    @property
    def scan_parents(self) -> tuple[str, ...]:
        return (self.dead_letter or "",)


class Schema(Record, frozen=True, kw_only=True, tag=True):
    """What messages of queue `parent` must look like, now or once; see `schemas.py`.

    `fingerprint` names it among the schemas of its queue.
    """

    fingerprint: str
    properties: dict[str, Any]


class Exchange(Record, frozen=True, kw_only=True, tag=True):
    """A name to publish to; what is published there is copied to the queues bound to it."""

    modified_ms: int
    encrypted: bool = False


class Rule(Struct, frozen=True):
    """Which messages a binding lets through: those whose header `name` passes `test`."""

    name: str
    kind: Literal["text", "number"]
    test: Literal["eq", "prefix", "any_of", "none_of", "exists", "lt", "le", "gt", "ge", "range"]
    value: Any


class Binding(Record, frozen=True, kw_only=True, tag=True):
    """Copies what is published to exchange `parent` to `queue` (id): all of it, or by a rule."""

    queue: str
    rule: Rule | None = None

    @property
    def scan_parents(self) -> tuple[str, ...]:
        return self.parent, self.queue


class Consumer(Record, frozen=True, kw_only=True, tag=True):
    """How a queue's pull subscription is consumed; `parent` is the queue. At most one per queue.

    Mode `pull`: clients ask. Mode `push`: Courier calls the operator's URL for `script`.
    """

    mode: Literal["pull", "push"]
    batch_size: int
    script: str = ""
    wait_ms_max: int = 5 * SECOND_MS
    concurrency_max: int | None = None


class Secret(Struct, frozen=True):
    """A secret to sign pushes with, sealed; one that was replaced is good until `until_ms`."""

    sealed: str
    until_ms: int | None = None


class Listener(Record, frozen=True, kw_only=True, tag=True):
    """A URL to which queue `parent` is pushed: whatever is published after it was created.

    Names are unique per queue, so the record's own name is the queue's id, a slash and `title`.
    `private` holds headers and authentication of its requests, sealed. `ordered`: one message at
    a time, and one that fails holds up the others. `envelope`: the request's body also says what
    its headers say. Pushes of a disabled listener wait; `disabled_by` is `user` or `gone` (it
    answered that it is there no more). Those of one that does not answer wait too; `inactive_ms`
    is since when. `in_flight_max` and `per_second_max` are limits of its own, 0 for none.
    """

    title: str
    modified_ms: int
    url: str
    liveness_url: str
    secrets: tuple[Secret, ...] = ()
    private: str = ""
    timeout_ms: int = 10 * SECOND_MS
    attempts_max: int = 11
    ordered: bool = False
    envelope: bool = False
    disabled_by: Literal["", "user", "gone"] = ""
    inactive_ms: int = 0
    in_flight_max: int = 0
    per_second_max: int = 0


class Liveness(Record, frozen=True, kw_only=True, tag=True):
    """How listener `parent`, which has the same id, has been answering when probed."""

    state: Literal["pending", "stable", "unstable", "inactive"] = "pending"
    in_row: int = 0
    success_count: int = 0
    failure_count: int = 0
    last_success_ms: int = 0
    last_failure_ms: int = 0
    last_failure: str = ""


class Worker(Record, frozen=True, kw_only=True, tag=True):
    """Where the operator runs the script of this name: what push consumers of it call."""

    url: str
    secrets: tuple[Secret, ...] = ()


class Domain(Record, frozen=True, kw_only=True, tag=True):
    """A host and port that a tenant has shown to be its own, or is about to.

    It does so by serving `file_content` under `file_name`, before `expires_ms`.
    """

    modified_ms: int
    hostname: str
    port: int
    file_name: str
    file_content: str
    challenged_ms: int
    expires_ms: int
    verified_ms: int = 0


class EventSubscription(Record, frozen=True, kw_only=True, tag=True):
    """Rule that turns events of a source into messages on queue `parent`.

    `since`: what the journal says up to this offset is not its business.
    """

    title: str
    modified_ms: int
    enabled: bool
    source: dict[str, str]
    events: tuple[str, ...]
    since: int = 0


class Pipeline(Record, frozen=True, kw_only=True, tag=True):
    """A registered reader of the journal; nothing after `offset` may be trimmed.

    `lost` counts the events that were trimmed all the same, for lack of space, before it read them.
    """

    offset: int
    seen_ms: int
    lost: int = 0


AnyRecord = (
    Tenant
    | Key
    | KeyUse
    | Session
    | Queue
    | Schema
    | Exchange
    | Binding
    | Consumer
    | Worker
    | Listener
    | Liveness
    | Domain
    | EventSubscription
    | Pipeline
)


# --- messages --------------------------------------------------------------------------------


class Origin(Struct, frozen=True, omit_defaults=True):
    """Where a message came from when no caller published it as it is."""

    queue: str
    message: str
    attempts: int = 0
    reason: str = ""


def _size(body: bytes, sealed: str | None) -> int:
    """Bytes of a body in clear, whether it is sealed or not."""
    return len(body) - SEAL_BYTES if sealed else len(body)


# Nothing in a draft leads back to it, and looking for that in very many at once takes long.
class Draft(Struct, frozen=True, gc=False):
    """What a caller asks to publish. None means: as the queue says.

    `id` is the publisher's own; `once_key` makes a repeated publish within `once_ms` return the
    first message instead of storing a second one. `sealed` names the key that the body has been
    encrypted with. `origin` is for copies that the broker makes, and for those put back.
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
    sealed: str | None = None
    origin: Origin | None = None

    @property
    def size(self) -> int:
        return _size(self.body, self.sealed)


class PlainDrafts(Sequence[Draft]):
    """Drafts with nothing but a body, its type and perhaps an id, as columns.

    Most are such, and columns are handled much faster than single drafts. `ids` empty: none has
    one.
    """

    __slots__ = ("bodies", "ids", "types")

    def __init__(
        self, bodies: list[bytes], types: list[ContentType], ids: Sequence[str | None] = ()
    ) -> None:
        self.bodies = bodies
        self.types = types
        self.ids = ids

    @staticmethod
    def of(calls: Sequence[Sequence[Draft]]) -> "Sequence[Draft]":
        """The drafts of several calls, as columns if they are."""
        plain = [drafts for drafts in calls if type(drafts) is PlainDrafts]
        if len(plain) < len(calls):
            return [draft for drafts in calls for draft in drafts]
        bodies = chain.from_iterable([drafts.bodies for drafts in plain])
        types = chain.from_iterable([drafts.types for drafts in plain])
        if not any(map(_own_ids, plain)):
            return PlainDrafts(list(bodies), list(types))
        ids = chain.from_iterable([drafts.ids or [None] * len(drafts) for drafts in plain])
        return PlainDrafts(list(bodies), list(types), list(ids))

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Draft]:
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Draft: ...

    @overload
    def __getitem__(self, place: slice) -> "PlainDrafts": ...

    def __getitem__(self, place: int | slice) -> "Draft | PlainDrafts":
        if isinstance(place, slice):
            return PlainDrafts(self.bodies[place], self.types[place], self.ids[place])
        id = self.ids[place] if self.ids else None
        return Draft(self.bodies[place], self.types[place], None, id)


_own_ids = attrgetter("ids")


class Numbering(Struct, frozen=True):
    """Drafts with the numbers `first`, `first + 1`, ... under a key that is known until `until_ms`.

    `marks` tell drafts from others: one for all before the first, then one for all up to each
    draft. None: nothing is compared.
    """

    key: str
    first: int
    until_ms: int
    marks: Sequence[bytes] | None = None


class Via(Struct, frozen=True):
    """The exchange that drafts were published to: its id, and how much was published there."""

    tenant: str
    exchange: str
    count: int
    bytes: int


MessageState = Literal["waiting", "leased", "delayed"]


class Message(Struct, frozen=True):
    """A stored draft. It never changes; `seq` grows with every message of its queue.

    `delay_ms` is the delay it was published with. On a FIFO queue it is the draft's own, and
    None there means whatever the queue says at the moment.
    """

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
    delay_ms: int | None = None
    sealed: str | None = None

    @property
    def size(self) -> int:
        return _size(self.body, self.sealed)


class Standing(Struct, frozen=True):
    """How one message of a queue stands; `until_ms` is when its lease or its delay ends."""

    seq: int
    state: MessageState
    until_ms: int | None = None


class QueueStats(Struct, frozen=True):
    """Backlog: every message not yet done, be it waiting, delayed or leased."""

    count: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    leased: int = 0
    delayed: int = 0


class Tally(Struct, frozen=True):
    """What happened to `id` (a queue, an exchange or a tenant) from minute `minute` on.

    Old tallies are summed up by the hour. `kind` is an event's, or one of those in `journal.py`.
    """

    minute: int
    id: str
    kind: str
    count: int
    bytes: int


class Level(Struct, frozen=True):
    """What a queue held at the end of `minute` and of every earlier one since the last level."""

    minute: int
    count: int
    leased: int
    delayed: int


class Receipt(Struct, frozen=True):
    """Answer to a publish, in the order of the drafts. `repeated[i]`: was there already.

    Not every dialect asks for the ids, and most are made when one does.
    """

    made: list[str] | Callable[[], list[str]]
    repeated: list[bool]
    stats: QueueStats

    @property
    def ids(self) -> list[str]:
        return self.made if isinstance(self.made, list) else self.made()


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


# --- pushes ----------------------------------------------------------------------------------


# How much of a listener's answer is kept and shown.
ANSWER_KEPT_BYTES = 1 << 10


class Report(Struct, frozen=True):
    """What came of one push: the status answered (0: no whole answer) and how the answer began."""

    status: int = 0
    error: str = ""
    duration_ms: int = 0
    answer: bytes = b""

    @property
    def text(self) -> str:
        """The beginning of the answer, at most ANSWER_KEPT_BYTES of it.

        Bytes that are not UTF-8 are replaced; a character that was cut in two is left out.
        """
        return _UTF8(errors="replace").decode(self.answer[:ANSWER_KEPT_BYTES])


class Pushed(Struct, frozen=True):
    """It arrived."""

    seq: int
    attempt: int
    report: Report


class PushFailed(Struct, frozen=True):
    """It did not. Push it again after `delay_ms`; None: never again by itself."""

    seq: int
    attempt: int
    report: Report
    delay_ms: int | None


class PushReturned(Struct, frozen=True):
    """It was not tried after all: ready again, and the attempt does not count."""

    seq: int
    attempt: int


PushSettlement = Pushed | PushFailed | PushReturned
PushStatus = Literal["pending", "in_flight", "acknowledged", "retrying", "exhausted"]


class Push(Struct, frozen=True):
    """How far one message has come on its way to one listener.

    `pending`: not tried yet. `retrying`: failed, next attempt at `due_ms`. `exhausted`: failed,
    and not tried again by itself. The times of attempts are when they were handed out.
    """

    listener: str
    seq: int
    status: PushStatus
    attempts: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    due_ms: int | None = None
    report: Report | None = None


class PushStats(Struct, frozen=True):
    """Of one listener's pushes. `open` ones are pending, in flight or retrying.

    `missed` have failed and not succeeded since, exhausted ones included. `expired` ones went, not
    acknowledged, because their message was too old. That and `acknowledged` count since the
    listener was created, as do the last times.
    """

    open: int = 0
    in_flight: int = 0
    missed: int = 0
    acknowledged: int = 0
    last_success_ms: int = 0
    last_failure_ms: int = 0
    expired: int = 0


class Swept(Struct, frozen=True):
    """What a sweep did, and when the next thing is due (None: nothing is waiting for time).

    `short`: the disk is below its low-water mark.
    """

    expired: int = 0
    returned: int = 0
    buried: int = 0
    dropped: int = 0
    next_ms: int | None = None
    more: bool = False
    short: bool = False


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


class Note(Struct, frozen=True):
    """An event that is no change. It is about `tenant`; "" is the operator."""

    kind: str
    tenant: str
    actor: Actor
    detail: dict[str, Any]


class JournalHead(Struct, frozen=True):
    """The journal holds offsets `first` .. `last` (none when `last` < `first`).

    `epoch` changes when the store is recreated. `at_ms` is when the newest event happened that the
    store ever held, 0 if there was none.
    """

    first: int
    last: int
    epoch: str
    bytes: int
    at_ms: int
