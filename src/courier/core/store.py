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
- A verb with an `allowance` returns fewer messages than were asked for once their bodies would be
  more than it lets in: one message however long it is, unless the room of all answers is full.
  Bodies beyond that are not read from the disk, but for one block.
- A call that raised StoreUnavailable has not happened and never will, whatever happens to the
  process after. OutcomeUnknown is raised when the disk does not let the store make sure of that.
- Below the low-water mark of free disk publishing, `backfill` and a `change` that creates records
  raise OutOfSpace; all other verbs go on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from courier.core.limits import Allowance
from courier.core.matching import Sought
from courier.core.records import Decide, Records, T
from courier.core.types import (
    Actor,
    Draft,
    JournalHead,
    Leased,
    Level,
    Message,
    MessageState,
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
    Standing,
    Swept,
    Tally,
    Via,
)
from courier.core.waiters import Waiters


class ClaimVerbs(Protocol):
    """A claim is a lease on many messages at once, under a name that the caller chose.

    Those who ask for the name again get the same messages. It is lost, and every verb but `take`
    with a new name raises ClaimLost(name), as soon as one of its messages is no longer leased by
    it; those that still are go back when their lease ends, like others. Its name is known until a
    day after its leases would have ended, or after it was acknowledged; then, and of names that
    never were, every verb but `take` raises NotFound("claim", name).
    """

    async def take(
        self, queue: str, /, name: str, *, count: int, lease_ms: int, actor: Actor, now_ms: int
    ) -> int:
        """Lease up to `count` messages under a name, or find them leased; how many they are.

        Where there is nothing to lease no claim is made. A claim that was acknowledged counts
        its messages for a day after.
        """
        ...

    async def messages(
        self,
        queue: str,
        /,
        name: str,
        *,
        first: int,
        count: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        """Messages of a claim by sequence, from number `first` (0 is the first) on."""
        ...

    async def extend(
        self, queue: str, /, name: str, *, lease_ms: int, actor: Actor, now_ms: int
    ) -> None:
        """Let all its leases end `lease_ms` from now."""
        ...

    async def ack(
        self, queue: str, /, name: str, *, actor: Actor, now_ms: int, after: str | None = None
    ) -> None:
        """All of it is done. Again within a day: nothing happens.

        `after`: the claim is one of a row, and follows the one of that name ("": none). It is then
        known until the next of the row is acknowledged, for CLAIM_KNOWN_MS at most, and the one
        before it, if it was acknowledged, is forgotten.
        """
        ...


class PushReads(Protocol):
    """How far pushes have come. A listener that does not exist is NotFound("listener", id)."""

    async def of_message(self, queue: str, /, seq: int, *, now_ms: int) -> list[Push]:
        """Those of one message, in the order of their listeners' creation."""
        ...

    async def stats(self, listeners: Sequence[str], *, now_ms: int) -> dict[str, PushStats]:
        """Of each of these listeners; those that do not exist are left out, as with `stats`."""
        ...

    async def missed(
        self, listener: str, /, *, limit: int, now_ms: int, before_seq: int = 0
    ) -> list[str]:
        """Generated ids of messages that failed and did not succeed since, newest first.

        `before_seq`: only those with a lower sequence. What came of each is read too, so ask for
        pages of many.
        """
        ...


class PushVerbs(PushReads, Protocol):
    """What listeners get."""

    async def take(
        self,
        listener: str,
        /,
        *,
        count: int,
        lease_ms: int,
        now_ms: int,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        """Up to `count` ready messages, by sequence; `attempts` is the attempt that this is.

        Of an ordered listener only the first that is neither acknowledged nor exhausted, and
        only if it is ready.
        """
        ...

    async def settle(
        self, listener: str, /, items: Sequence[PushSettlement], *, now_ms: int
    ) -> list[bool]:
        """False where the push is not in flight any more, or not with that attempt.

        `Pushed` and `PushFailed` are one event each, `pushed` or `push_failed`. A message whose
        last attempt failed is also copied to the queue's dead letters if it has some, with an
        origin whose reason is `push`.
        """
        ...

    async def retry(self, listener: str, /, seq: int, *, now_ms: int) -> bool:
        """Make a push ready that is retrying or exhausted; False where there is no such push.

        Attempts go on being counted.
        """
        ...

    async def backfill(
        self,
        listener: str,
        /,
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


class RowVerbs(Protocol):
    """Drafts that are published by number under a key, each once."""

    async def publish(
        self,
        queue: str,
        /,
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

    async def count(self, queue: str, /, *, key: str, now_ms: int, below: bool = False) -> int:
        """How many drafts are stored under a key.

        `below`: under all the keys that begin with this one and a slash.
        """
        ...


class MessageReads(Protocol):
    """Reading messages. Nothing is different afterwards."""

    async def ready(
        self,
        queue: str,
        /,
        *,
        count: int,
        now_ms: int,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        """What `lease` would hand out now; without `bodies`, those are empty."""
        ...

    async def browse(
        self,
        queue: str,
        /,
        *,
        after_seq: int,
        limit: int,
        now_ms: int,
        kept: bool = False,
        bodies: bool = True,
        allowance: Allowance | None = None,
    ) -> list[Message]:
        """Messages in any state with a sequence > `after_seq`, by sequence.

        `kept`: also those that only pushes still need. Without `bodies`, those are empty.
        """
        ...

    async def states(
        self,
        queue: str,
        /,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        state: MessageState | None = None,
    ) -> tuple[list[Standing], int]:
        """How messages stand whose sequence is between the two, by sequence; of one state or all.

        Looks at up to `limit` messages, and returns the last sequence that it looked at (0: none
        was left). A store may skip messages that cannot be in that state.
        """
        ...

    async def search(
        self,
        queue: str,
        /,
        sought: Sought,
        *,
        after_seq: int,
        before_seq: int,
        limit: int,
        now_ms: int,
        newest: bool = False,
    ) -> tuple[list[Message], int]:
        """Up to `limit` messages between the two sequences that match (`matching.py`).

        By sequence or, `newest`, from the last one backwards. A store looks at a part of them at a
        time, and holds up nobody meanwhile. Returns the sequence it has come to, at which the next
        call begins as its `after_seq` or `before_seq` (0: nothing is left).
        """
        ...

    async def find(self, queue: str, /, message: str, *, now_ms: int) -> Message | None:
        """By its own id or its generated one."""
        ...

    async def tail(self, queue: str, /) -> int:
        """The highest sequence given out so far on this queue."""
        ...


class MessageVerbs(MessageReads, Protocol):
    async def peek(
        self, queue: str, /, *, count: int, now_ms: int, allowance: Allowance | None = None
    ) -> list[Message]:
        """What is `ready`, for a puller: from now on the queue has one."""
        ...


class PastReads(Protocol):
    """Numbers of the past."""

    async def tallies(
        self, *, tenant: str, id: str | None = None, since_ms: int, until_ms: int
    ) -> list[Tally]:
        """Tallies of the minutes that touch [since_ms, until_ms), by minute, id and kind.

        Of everything of the tenant (deleted queues too), or of one `id`.
        """
        ...

    async def levels(self, queues: Sequence[str], *, since_ms: int) -> list[list[Level]]:
        """What each of the queues held, oldest first, from the minute of `since_ms` on.

        After the last of them it holds what `stats` says.
        """
        ...


class PastVerbs(PastReads, Protocol):
    async def tally(self, counts: Mapping[tuple[str, str], int], *, now_ms: int) -> None:
        """Add to the tallies of this minute what is no event: (tenant, kind) -> count."""
        ...


class JournalReads(Protocol):
    """What happened, in order."""

    async def head(self) -> JournalHead: ...

    async def read(self, *, after: int, limit: int, bytes_max: int | None = None) -> list[Run]:
        """The runs that hold the first `limit` offsets greater than `after`.

        The first run may begin at or before `after`, and the last may end behind the limit;
        `journal.py` cuts them. No packed row is read after `bytes_max` bytes of them, so that
        there may be fewer, but never none.
        """
        ...

    async def offset_at(self, at_ms: int) -> int:
        """The highest offset of the events before the first that happened at `at_ms` or later."""
        ...

    async def backlogs(self, *, tenant: str | None = None) -> tuple[int, dict[str, int]]:
        """The last offset of the journal, and how many messages each queue held just then.

        For every queue, or those of one tenant: the `published` up to that offset less the events
        that ended a message. So a dropped queue is among them until the sweep has ended its last.
        """
        ...


class JournalVerbs(JournalReads, Protocol):
    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        """Write down events that are no change."""
        ...

    async def trim(self, *, upto: int, before_ms: int | None = None) -> int:
        """Forget whole packed rows that end at or below `upto` (and are older than `before_ms`).

        A store may keep the newest row all the same.

        Returns how many offsets were forgotten.
        """
        ...


class RateVerbs(Protocol):
    """How fast queues go."""

    async def take(self, queue: str, /, what: str, units: int, *, limit: int, now_ms: int) -> None:
        """Take units of what a queue may do in a second; raises RateLimited.

        All processes that share the store take from the same. More than the whole limit passes
        when all is left.
        """
        ...


class HealthVerbs(Protocol):
    """The store itself."""

    async def check(self) -> None:
        """Write something small; raises StoreUnavailable when the disk does not take it.

        Also while a commit is in doubt or since damage was met, and OutOfSpace below the
        low-water mark.
        """
        ...

    def unseen(self) -> "asyncio.Future[None] | None":
        """None: this process knows all settings, but for those of the last second at most.

        Otherwise it was cut off or asleep, and must not serve before this has ended. It raises
        StoreUnavailable when that takes too long. A store of one process always knows all.
        """
        ...

    def ahead_ns(self) -> int | None:
        """By how much the store's clock is ahead of time since boot (`clock.elapsed_ns`).

        None: it has none of its own. Processes that share a store go by its clock.
        """
        ...

    def free_bytes(self) -> int | None:
        """Bytes that the disk has left for messages; None: there is no such limit."""
        ...

    def figures(self) -> dict[str, int]:
        """Counters of the store itself since it was opened, for the metrics page."""
        ...


class StoreReads(Protocol):
    """What may be read of a store. Sites and pages are given no more: they change nothing but by
    verbs of the core."""

    @property
    def records(self) -> Records:
        """The settings, to be read without waiting; the same object as long as the store lives."""
        ...

    @property
    def messages(self) -> MessageReads: ...

    @property
    def pushes(self) -> PushReads: ...

    @property
    def journal(self) -> JournalReads: ...

    @property
    def past(self) -> PastReads: ...

    @property
    def health(self) -> HealthVerbs: ...

    async def stats(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        """What each of these queues holds; those that do not exist are left out.

        The numbers of one queue are of one moment, those of many may be of several.
        """
        ...


class DeliveryStore(StoreReads, Protocol):
    """What those who push are given besides."""

    @property
    def waiters(self) -> Waiters:
        """Gets a hint, once its group is committed, from whatever may have given work.

        By the id of a queue: something to lease; of a listener: something to push. As many hints
        as there are messages for; all who wait, when the queue or listener is changed or gone.
        """
        ...

    @property
    def pushes(self) -> PushVerbs: ...

    async def hold(
        self, duties: Sequence[str], *, now_ms: int, evenly: bool = False
    ) -> dict[str, int]:
        """Of these duties (`duties.py`) those that this process has now, with their fences.

        To have one it must be asked for again and again. A store that has its disk to itself
        grants all of them. The fence is another one once another process had the duty; what is
        written under an old one raises DutyLost. `evenly`: processes that run have about as many
        each, and those who have more let some go.
        """
        ...


class Store(DeliveryStore, Protocol):
    """Durable state. Time is always an argument.

    Verbs that belong to a noun of their own are found there: `store.claims.ack`.
    """

    @property
    def messages(self) -> MessageVerbs: ...

    @property
    def rows(self) -> RowVerbs: ...

    @property
    def claims(self) -> ClaimVerbs: ...

    @property
    def journal(self) -> JournalVerbs: ...

    @property
    def past(self) -> PastVerbs: ...

    @property
    def rates(self) -> RateVerbs: ...

    @property
    def secret(self) -> bytes:
        """32 random bytes made with the store; what tokens are signed with."""
        ...

    # While it is not 0, the clock may turn out to be behind by as much. Messages that are stored
    # meanwhile live that much longer, so that they are not old when the time is corrected.
    doubt_ms: int

    async def change(self, decide: Decide[T], *, actor: Actor, now_ms: int) -> T:
        """Write what `decide` makes of the records; returns its answer.

        The decision runs where it is written: nothing changes between what it reads and what it
        writes, other changes of the same commit included. It may run again, so it does nothing
        but read records and return a Change. What it raises is raised here, and nothing happens.
        Raises Conflict(kind, name) when a name is taken.

        Each record is one journal event, `<kind>_created`, `_updated` or `_deleted` with the
        record (without secrets) as `detail`, which on an update also has the names of the fields
        that changed, sorted, as `changed`. A record that only notes progress (a Pipeline, a
        Session) is no event when it is updated, and one in `journal.UNNOTED` never is.

        Dropping a queue ends its messages at once for every caller; the sweep then removes them,
        each with a `deleted` event.
        """
        ...

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

    async def lease(
        self,
        queue: str,
        /,
        *,
        count: int,
        lease_ms: int,
        actor: Actor,
        now_ms: int,
        leased_max: int | None = None,
        allowance: Allowance | None = None,
    ) -> Leased:
        """Hand out up to `count` ready messages until `now_ms + lease_ms`.

        No more are handed out than make `leased_max` leased messages of this queue.
        """
        ...

    async def settle(
        self, queue: str, /, items: Sequence[Settlement], *, actor: Actor, now_ms: int
    ) -> list[Outcome]:
        """Settle one after the other; each item's fate is its outcome.

        There may be fewer outcomes than items, but one at least, where long messages are buried:
        the other items were not looked at.
        """
        ...

    async def rename(
        self, queue: str, /, seq: int, name: str, *, actor: Actor, now_ms: int
    ) -> Message | None:
        """Set the message's header NAME_HEADER; None where there is no such message.

        One `renamed` event, with `detail` = {"name": name}.
        """
        ...

    async def remove(
        self,
        queue: str,
        /,
        seqs: Sequence[int],
        *,
        actor: Actor,
        now_ms: int,
        leased: bool = True,
        dry_run: bool = False,
    ) -> list[bool]:
        """Delete messages whatever their state; False where there was none.

        Not `leased`: those that are leased stay, and so do those kept only for pushes. A dry run
        answers the same and changes nothing.
        """
        ...

    async def purge(
        self, queue: str, /, *, upto_seq: int, limit: int, actor: Actor, now_ms: int
    ) -> int:
        """Delete up to `limit` of the messages with a sequence <= `upto_seq`; 0: none is left.

        Those that are kept for pushes are among them.
        """
        ...

    async def redrive(
        self,
        queue: str,
        /,
        *,
        seqs: Sequence[int],
        actor: Actor,
        now_ms: int,
        dry_run: bool = False,
    ) -> list[bool]:
        """Publish dead letters on the queue they were buried from, and delete them here.

        False where there is no such message, it is leased, it was not buried, or its source
        is gone. Body, content type, headers, group and the publisher's own id are kept; the
        source queue's delay does not apply. A dry run answers the same and changes nothing.
        """
        ...

    async def sweep(self, *, limit: int, now_ms: int) -> Swept:
        """Make up to `limit` due things happen: leases, delays, retention, dropped queues."""
        ...

    async def close(self) -> None: ...
