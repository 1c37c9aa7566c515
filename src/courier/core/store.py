"""What the core asks of a disk.

Guarantees, the same for every store:

- One call is one transaction: all of it happens, or none of it. When a call returns, what it
  did survives the loss of the process and of power.
- A state change and its journal events commit together. Offsets are dense: if one is visible,
  every lower one is too (until trimmed), and what is read at an offset never changes.
- Time is an argument. A lease that ends at `t` has ended when `now_ms` >= t; a delay that ends
  at `t` is over when `now_ms` >= t; a message expires when `now_ms` >= its expiry. Every verb
  lets time pass first, so none of them depends on when the last sweep ran. (A store may leave
  some of many hundreds of due things to the sweep; it never hands out what has expired.)
- Hand-out order of a subscription: deliveries that were handed out or delayed before, by
  sequence, then new ones, by sequence.
- A FIFO queue hands out by group: nothing of a group of which anything is leased; else its
  messages by sequence, up to the first that is delayed. A lease takes as many as it can of the
  group with the oldest message, then of the next such group. A draft without a group joins
  GROUP_DEFAULT. Drafts without a delay of their own follow the queue's as it changes, until
  their first attempt.
- A dead letter is not delayed, except by the queue's delay on a FIFO queue, and lives as long
  as its new queue says.
- A message is bound, when it is stored on a queue, to the listeners that the queue has by then:
  one push for each. What listeners get and what pullers take are independent of each other. When
  pullers are done with a message (an ack or a burial) that has a push which is not acknowledged,
  the message is kept for its pushes: `find`, `browse(kept=True)` and the verbs on pushes still
  know it, no other verb and no number does. It goes when the last of its pushes is acknowledged,
  when it expires, or by `remove` or `purge`; its pushes go whenever the message itself does, a
  listener's whenever the listener does.
- The queue's retention never ends an open push (one that is pending, in flight or retrying): a
  message with one ends for pullers with `expired`, and is kept. A kept message that is as old as
  the retention goes as soon as none of its pushes is open; exhausted ones go with it. An expiry
  of the message's own is its publisher's wish, and ends it and all its pushes.
- A queue that has listeners, no consumer, and from which nobody has ever leased, peeked or claimed
  only pushes. There a message whose pushes are all acknowledged is delivered: it is `acked` by the
  broker, and kept like one with an exhausted push, until it expires or by `remove` or `purge`. To
  make room for what is published with `bytes_max`, delivered messages go first, the oldest before
  the others. A message whose last unacknowledged push went with its listener is delivered, too.
- After a listener is dropped the sweep ends its pushes, and until it has, a message that is kept
  for them stays.
- A push is due when the delay that its message was published with is over (on a FIFO queue: the
  delay as it was then). One in flight whose lease ends is ready again, its attempt counted, after
  a `push_failed`.
- A verb on a queue that does not exist raises NotFound("queue", id). Anything wrong with the
  disk raises StoreUnavailable, and the store works again by itself once the cause is gone.
- A call that raised StoreUnavailable has not happened and never will, whatever happens to the
  process after. OutcomeUnknown is raised when the disk does not let the store make sure of that.
- Below the low-water mark of free disk `publish`, `publish_rows`, `backfill` and a `change` that
  creates records raise OutOfSpace; all other verbs go on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from courier.core.types import (
    Actor,
    AnyRecord,
    Draft,
    Head,
    Leased,
    Level,
    Message,
    Note,
    Numbering,
    Outcome,
    Push,
    PushSettlement,
    PushStats,
    QueueStats,
    Receipt,
    Run,
    Settlement,
    Swept,
    Tally,
    Via,
)

R = TypeVar("R", bound=AnyRecord)


class Store(Protocol):
    """Durable state. Time is always an argument."""

    @property
    def secret(self) -> bytes:
        """32 random bytes made with the store; what tokens are signed with."""
        ...

    # While it is not 0, the clock may turn out to be behind by as much. Messages that are stored
    # meanwhile live that much longer, so that they are not old when the time is corrected.
    doubt_ms: int

    # --- settings ---
    async def get(self, kind: type[R], id: str) -> R | None: ...

    async def named(self, kind: type[R], *, tenant: str, name: str) -> R | None: ...

    async def scan(
        self, kind: type[R], *, tenant: str | None = None, parent: str | None = None
    ) -> list[R]:
        """All records of a kind, oldest first, then by name and id."""
        ...

    async def change(
        self,
        *,
        puts: Sequence[AnyRecord] = (),
        drops: Sequence[AnyRecord] = (),
        actor: Actor,
        now_ms: int,
    ) -> None:
        """Drop, then create or replace. Raises Conflict(kind, name) when a name is taken.

        Each record is one journal event, `<kind>_created`, `_updated` or `_deleted` with the
        record (without secrets) as `detail`, which on an update also has the names of the fields
        that changed, sorted, as `changed`. A record that only notes progress (a Pipeline, a
        Session) is no event when it is updated, and one in `journal.UNNOTED` never is.

        Dropping a queue ends its messages at once for every caller; the sweep then removes them,
        each with a `deleted` event.
        """
        ...

    # --- messages ---
    async def publish(
        self,
        batches: Sequence[tuple[str, Sequence[Draft]]],
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        via: Via | None = None,
    ) -> list[Receipt]:
        """Store each batch's drafts on its queue (id), all in one transaction.

        Raises OverLimit("queue bytes") when a queue would then hold more than `bytes_max`.
        `via` says through which exchange they came; there may then be no batch at all.
        """
        ...

    async def publish_rows(
        self,
        queue: str,
        drafts: Sequence[Draft],
        numbering: Numbering,
        *,
        actor: Actor,
        now_ms: int,
        bytes_max: int | None = None,
        listener: str | None = None,
    ) -> int:
        """Store the drafts that are new under the key; how many were.

        Of every key the store knows, until `until_ms` at least, how many of its drafts it has
        stored on this queue, and stores none a second time. Raises Conflict("rows", key) when
        drafts between what is stored and `first` would be left out.

        With how many are stored the store keeps the mark of these, and raises RowsChanged(key)
        when it is not the one given for that many. Nothing is compared of more than are given, and
        of a key that has no mark: one some of whose drafts came without.

        `listener`: they are for this listener of the queue alone. It gets its push; no other
        listener does, and for pullers they are done as they come: `published`, then `acked`.
        """
        ...

    async def rows(self, queue: str, *, key: str, now_ms: int, below: bool = False) -> int:
        """How many drafts are stored under a key of `publish_rows`.

        `below`: under all the keys that begin with this one and a slash.
        """
        ...

    async def lease(
        self,
        queue: str,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
    ) -> Leased:
        """Hand out up to `count` ready messages until `now_ms + lease_ms`.

        No more are handed out than make `leased_max` leased messages of this queue.
        """
        ...

    def wait(self, queue: str) -> "asyncio.Future[bool]":
        """Done with True when the queue may have something to hand out, was changed or is gone.

        Of a listener's id: when it may have something to push, was changed or is gone.

        Only a hint, and given to as many as there are messages for. Whoever stops waiting sets
        it to False; whoever has got it and will not look passes it on with `wake`.
        """
        ...

    def wake(self, queue: str) -> None:
        """Give a hint to the next who waits for this queue."""
        ...

    async def settle(
        self, queue: str, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        """Settle one after the other; each item's fate is its outcome."""
        ...

    # A claim is a lease on many messages at once, under a name that the caller chose. Whoever
    # asks for the name again gets the same messages. It is lost, and every verb but `claim`
    # with a new name raises ClaimLost(name), as soon as one of its messages is no longer leased
    # by it; those that still are go back when their lease ends, like others. Its name is known
    # until a day after its leases would have ended, or after it was acknowledged; then, and of
    # names that never were, every verb but `claim` raises NotFound("claim", name).

    async def claim(
        self, queue: str, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        """Lease up to `count` messages under a name, or find them leased; how many they are.

        Where there is nothing to lease no claim is made. A claim that was acknowledged counts
        its messages for a day after.
        """
        ...

    async def claimed(
        self,
        queue: str,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        bytes_max: int | None = None,
    ) -> list[Message]:
        """Messages of a claim by sequence, from number `first` (0 is the first) on.

        Fewer than `count` when there are no more, or when their bodies together would be longer
        than `bytes_max`; one however long it is.
        """
        ...

    async def extend_claim(
        self, queue: str, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        """Let all its leases end `lease_ms` from now."""
        ...

    async def ack_claim(
        self, queue: str, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        """All of it is done. Again within a day: nothing happens.

        `after`: the claim is one of a row, and follows the one of that name ("": none). It is then
        known until the next of the row is acknowledged, for CLAIM_KNOWN_MS at most, and the one
        before it, if it was acknowledged, is forgotten.
        """
        ...

    async def peek(self, queue: str, *, count: int, now_ms: int) -> list[Message]:
        """What `lease` would hand out now, without handing it out."""
        ...

    async def browse(
        self, queue: str, *, after_seq: int, limit: int, now_ms: int, kept: bool = False
    ) -> list[Message]:
        """Messages in any state with a sequence > `after_seq`, by sequence.

        `kept`: also those that only pushes still need.
        """
        ...

    async def find(self, queue: str, message: str, *, now_ms: int) -> Message | None:
        """By its own id or its generated one."""
        ...

    async def rename(
        self, queue: str, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        """Set the message's header NAME_HEADER; None where there is no such message.

        One `renamed` event, with `detail` = {"name": name}.
        """
        ...

    async def remove(
        self, queue: str, seqs: Sequence[int], *, actor: Actor, now_ms: int
    ) -> list[bool]:
        """Delete messages whatever their state; False where there was none."""
        ...

    async def purge(
        self, queue: str, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        """Delete up to `limit` of the messages with a sequence <= `upto_seq`; 0: none is left.

        Those that are kept for pushes are among them.
        """
        ...

    async def tail(self, queue: str) -> int:
        """The highest sequence given out so far on this queue."""
        ...

    async def redrive(
        self, queue: str, *, seqs: Sequence[int], actor: Actor, now_ms: int, dry_run: bool = False
    ) -> list[bool]:
        """Publish dead letters on the queue they were buried from, and delete them here.

        False where there is no such message, it is leased, it was not buried, or its source
        is gone. Body, content type, headers, group and the publisher's own id are kept; the
        source queue's delay does not apply. A dry run answers the same and changes nothing.
        """
        ...

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        """What each of these queues holds; those that do not exist are left out.

        The numbers of one queue are of one moment, those of many may be of several.
        """
        ...

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        """The last offset of the journal, and how many messages each queue held just then.

        For every queue, or those of one tenant: the `published` up to that offset less the events
        that ended a message. So a dropped queue is among them until the sweep has ended its last.
        """
        ...

    # --- pushes ---
    # A verb on a listener that does not exist raises NotFound("listener", id).

    async def take_pushes(
        self, listener: str, *, count: int, lease_ms: int, now_ms: int
    ) -> list[Message]:
        """Up to `count` ready messages, by sequence; `attempts` is the attempt that this is.

        Of an ordered listener only the first that is neither acknowledged nor exhausted, and
        only if it is ready.
        """
        ...

    async def settle_pushes(
        self, listener: str, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        """False where the push is not in flight any more, or not with that attempt.

        `Pushed` and `PushFailed` are one event each, `pushed` or `push_failed`. A message whose
        last attempt failed is also copied to the queue's dead letters if it has some, with an
        origin whose reason is `push`.
        """
        ...

    async def pushes(self, queue: str, seq: int, *, now_ms: int) -> list[Push]:
        """Those of one message, in the order of their listeners' creation."""
        ...

    async def push_stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        """Of each of these listeners; those that do not exist are left out, as with `stats`."""
        ...

    async def missed(self, listener: str, *, limit: int, now_ms: int) -> list[str]:
        """Generated ids of messages that failed and did not succeed since, newest first."""
        ...

    async def retry_push(self, listener: str, seq: int, *, now_ms: int) -> bool:
        """Make a push ready that is retrying or exhausted; False where there is none such.

        Attempts go on being counted.
        """
        ...

    async def backfill(
        self,
        listener: str,
        *,
        since_ms: int,
        until_ms: int,
        after_seq: int,
        limit: int,
        now_ms: int,
    ) -> tuple[int, int]:
        """Bind messages of the queue that were published in [since_ms, until_ms).

        Looks at up to `limit` of those that the queue still holds (`browse(kept=True)`) with a
        sequence > `after_seq`, and binds those that this listener has no push of; they are ready
        at once. Returns how many were bound, and the last sequence looked at (0: none was left).
        """
        ...

    # --- numbers of the past ---
    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        """Add to the tallies of this minute what is no event: (tenant, kind) -> count."""
        ...

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        """Tallies of the minutes that touch [since_ms, until_ms), by minute, id and kind.

        Of everything of the tenant (deleted queues too), or of one `id`.
        """
        ...

    async def levels(self, queue: str, *, since_ms: int) -> list[Level]:
        """What the queue held, oldest first, from the minute of `since_ms` on.

        After the last of them it holds what `stats` says.
        """
        ...

    # --- time passing ---
    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        """Make up to `limit` due things happen: leases, delays, retention, dropped queues."""
        ...

    # --- journal ---
    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        """Write down events that are no change."""
        ...

    async def head(self) -> Head: ...

    async def read_journal(
        self, *, after: int, limit: int, bytes_max: int | None = None
    ) -> list[Run]:
        """The runs that hold the first `limit` offsets greater than `after`.

        The first run may begin at or before `after`, and the last may end behind the limit;
        `journal.py` cuts them. No packed row is read after `bytes_max` bytes of them, so that
        there may be fewer, but never none.
        """
        ...

    async def offset_at(self, at_ms: int) -> int:
        """The highest offset of the events before the first that happened at `at_ms` or later."""
        ...

    async def trim_journal(self, *, upto: int, before_ms: int | None = None) -> int:
        """Forget whole packed rows that end at or below `upto` (and are older than `before_ms`).

        A store may keep the newest row all the same.

        Returns how many offsets were forgotten.
        """
        ...

    async def check(self) -> None:
        """Write something small; raises StoreUnavailable when the disk does not take it.

        Also while a commit is in doubt or since damage was met, and OutOfSpace below the
        low-water mark.
        """
        ...

    def free_bytes(self) -> int | None:
        """Bytes that the disk has left for messages; None: there is no such limit."""
        ...

    def figures(self) -> dict[str, int]:
        """Counters of the store itself since it was opened, for the metrics page."""
        ...

    async def close(self) -> None: ...
