"""Facts in, things to look at out: each rule is a function from facts to a sentence or nothing.

A sentence says what is wrong, since when and why, in words of the glossary. `grave` orders them:
messages that are lost or refused first, then those that nobody takes, then what grows.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from courier.console.recent import MINUTES, QUIET, History
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from courier.words import clock, count, duration, listing, minute, number, rate, size

GROWING_MINUTES = 10
UNLEASED_MINUTES = 2
# Trouble begins when more than one lease in this many ended unanswered.
EXPIRED_SHARE = 5
LEASES_MIN = 10
SOON_MS = HOUR_MS
FULL_MS = DAY_MS
READER_MS = 10 * MINUTE_MS
JOURNAL_SHARE = 0.9
LOOKS_MAX = 10


class Listening(Struct):
    """A listener as its queue's page and rules see it."""

    id: str
    title: str
    url: str
    disabled_by: str = ""
    state: str = ""
    last_failure: str = ""
    last_success_ms: int = 0
    last_failure_ms: int = 0
    open: int = 0
    missed: int = 0
    # What came of the newest message that it has not taken.
    answer: str = ""


class QueueFacts(Struct):
    """What is known of one queue at one moment."""

    id: str
    name: str
    count: int = 0
    leased: int = 0
    delayed: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    retention_ms: int = 4 * DAY_MS
    lease_ms: int = 30 * SECOND_MS
    paused: bool = False
    frozen: bool = False
    dead_letter: str = ""
    bytes_max: int = 25_000_000_000
    history: History = QUIET
    listeners: tuple[Listening, ...] = ()
    # The script of a push consumer that has no URL.
    unplaced: str = ""
    # Whether it has a consumer; one that has none and a listener is consumed by listeners alone.
    consumed: bool = True

    @property
    def waiting(self) -> int:
        return self.count - self.leased - self.delayed

    @property
    def owed(self) -> int:
        """Pushes that wait, of a queue that only its listeners consume."""
        return 0 if self.consumed else sum(each.open for each in self.listeners)


class ReaderFacts(Struct):
    name: str
    seen_ms: int
    behind: int


class ServerFacts(Struct):
    """What is about no queue; only the operator's keys see it."""

    readers: tuple[ReaderFacts, ...] = ()
    journal_bytes: int = 0
    journal_bytes_max: int = 1
    free_bytes: int | None = None
    free_bytes_min: int = 0
    # What the audit of the lake found, "" for nothing.
    audit: str = ""


class Look(Struct):
    """One thing to look at. `state` is the same in one or two words, for a list of queues."""

    rule: str
    grave: int
    sentence: str
    state: str
    queue: str = ""
    name: str = ""


def growing_since(history: History, now_ms: int) -> int:
    """The first of the minutes that end now in each of which the queue grew; 0: it does not."""
    closed = history.minutes[:-1]
    grew = 0
    for sums in reversed(closed):
        if sums.growth <= 0:
            break
        grew += 1
    if grew < GROWING_MINUTES:
        return 0
    return (now_ms // MINUTE_MS - grew) * MINUTE_MS


def growth_per_s(history: History) -> float:
    closed = history.minutes[:-1]
    return sum(sums.growth for sums in closed) / (60 * len(closed))


def grows_alone(queue: QueueFacts, now_ms: int) -> Look | None:
    since_ms = growing_since(queue.history, now_ms)
    lately = queue.history.minutes[-1 - UNLEASED_MINUTES :]
    leased = any(sums.leased for sums in lately)
    if not since_ms or leased or queue.paused or queue.owed:
        return None
    before = any(sums.leased for sums in queue.history.minutes)
    who = (
        f"nobody has leased from it for {UNLEASED_MINUTES} minutes"
        if before
        else f"nobody has leased from it in the last {MINUTES - 1} minutes"
    )
    grows = rate(growth_per_s(queue.history))
    said = f"Grows by {grows}/s, at least since {minute(since_ms, now_ms)}; {who}."
    return _look("grows_alone", 70, queue, said, "grows; no consumer")


def grows_with_consumers(queue: QueueFacts, now_ms: int) -> Look | None:
    since_ms = growing_since(queue.history, now_ms)
    lately = queue.history.minutes[-1 - UNLEASED_MINUTES :]
    if not since_ms or not any(sums.leased for sums in lately) or queue.paused:
        return None
    closed = queue.history.minutes[:-1]
    came = sum(sums.published for sums in closed)
    went = sum(sums.ended for sums in closed)
    grows = rate(growth_per_s(queue.history))
    faster = f"{came / went:.1f} times as fast" if went else "faster"
    said = (
        f"Grows by {grows}/s, at least since {minute(since_ms, now_ms)}, although consumers "
        f"lease from it: they would have to be {faster}."
    )
    return _look("grows", 50, queue, said, "grows")


def listeners_behind(queue: QueueFacts, now_ms: int) -> Look | None:
    since_ms = growing_since(queue.history, now_ms)
    if not since_ms or not queue.owed or queue.paused:
        return None
    said = (
        f"Grows by {rate(growth_per_s(queue.history))}/s, at least since "
        f"{minute(since_ms, now_ms)}: its listeners take fewer than come; "
        f"{count(queue.owed, 'push waits', 'pushes wait')}."
    )
    return _look("listeners_behind", 50, queue, said, "grows; pushes wait")


def dead_letters(queue: QueueFacts, now_ms: int) -> Look | None:
    hour, before = queue.history.buried_hour, queue.history.buried_before
    if not hour or hour <= before:
        return None
    dropped = ", which was dropped" if hour == 1 else ", which were dropped"
    where = f", now in {queue.dead_letter}" if queue.dead_letter else dropped
    than = "none" if not before else f"{before:,}"
    noun = "dead letter" if hour == 1 else "dead letters"
    said = f"{hour:,} {noun} in the last hour{where}; {than} in the hour before."
    return _look("dead_letters", 60, queue, said, "dead letters")


def leases_too_short(queue: QueueFacts, now_ms: int) -> Look | None:
    if queue.history is QUIET:
        return None
    leased = sum(sums.leased for sums in queue.history.minutes)
    ended = sum(sums.lease_expired for sums in queue.history.minutes)
    if leased < LEASES_MIN or ended * EXPIRED_SHARE <= leased:
        return None
    said = (
        f"{ended / leased:.0%} of the leases of the last {MINUTES - 1} minutes ended without an "
        f"answer: the lease of {duration(queue.lease_ms)} is shorter than the work, or consumers "
        "fail."
    )
    return _look("leases_too_short", 40, queue, said, "leases expire")


def listener_fails(queue: QueueFacts, now_ms: int) -> Look | None:
    """The worst of the queue's listeners."""
    for listener in sorted(queue.listeners, key=lambda each: -each.open):
        said = listener_trouble(listener, now_ms)
        if said:
            return _look("listener", 55, queue, said, "listener fails")
    return None


def listener_trouble(listener: Listening, now_ms: int) -> str:
    """What is wrong with it, "" if nothing is."""
    wait = f" {count(listener.open, 'push waits', 'pushes wait')}." if listener.open else ""
    name = f"Listener {listener.title}"
    if listener.disabled_by == "gone":
        return f"{name} was disabled because it answered 410: it is there no more.{wait}"
    if listener.disabled_by:
        return f"{name} is disabled.{wait}" if listener.open else ""
    if listener.state == "inactive":
        why = f": {listener.last_failure}" if listener.last_failure else ""
        return f"{name} does not answer{why}.{wait}"
    if listener.missed and listener.last_failure_ms > listener.last_success_ms:
        since = (
            f"since {clock(listener.last_success_ms, now_ms)}"
            if listener.last_success_ms
            else "and never took one"
        )
        missed = count(listener.missed, "message")
        answer = f" {listener.answer};" if listener.answer else ""
        return f"{name} fails {since}:{answer} {missed} not taken.{wait}"
    return ""


def worker_missing(queue: QueueFacts, now_ms: int) -> Look | None:
    if not queue.unplaced:
        return None
    said = (
        f"Its consumer is the worker {queue.unplaced}, which has no URL here; "
        f"`courier worker add {queue.unplaced} URL` gives it one."
    )
    return _look("worker_missing", 65, queue, said, "no worker URL")


def stopped(queue: QueueFacts, now_ms: int) -> Look | None:
    if queue.paused and queue.count:
        waits = count(queue.count, "message waits", "messages wait")
        return _look("paused", 45, queue, f"Paused: nothing is handed out; {waits}.", "paused")
    if queue.frozen:
        said = "Frozen: publishers are refused."
        if queue.count:
            said = f"Frozen: publishers are refused; {count(queue.count, 'message')} left."
        return _look("frozen", 46, queue, said, "frozen")
    return None


def expires_soon(queue: QueueFacts, now_ms: int) -> Look | None:
    if not queue.count or not queue.oldest_ms:
        return None
    left_ms = queue.oldest_ms + queue.retention_ms - now_ms
    # A queue that keeps its messages for no longer than this is not in trouble.
    if left_ms > SOON_MS or queue.retention_ms <= 2 * SOON_MS:
        return None
    said = (
        f"Its oldest message expires in {duration(left_ms)}: messages are kept for "
        f"{duration(queue.retention_ms)}."
    )
    return _look("expires_soon", 80, queue, said, "about to expire")


def fills_up(queue: QueueFacts, now_ms: int) -> Look | None:
    if queue.bytes >= queue.bytes_max:
        said = f"Full: {size(queue.bytes)} of {size(queue.bytes_max)}; publishers are refused."
        return _look("full", 90, queue, said, "full")
    if queue.history is QUIET:
        return None
    closed = queue.history.minutes[:-1]
    grown = sum(sums.growth for sums in closed)
    published = sum(sums.published for sums in closed)
    if grown <= 0 or not published:
        return None
    came = sum(sums.published_bytes for sums in closed)
    per_ms = came / published * grown / (len(closed) * MINUTE_MS)
    if not per_ms or (queue.bytes_max - queue.bytes) / per_ms > FULL_MS:
        return None
    left_ms = (queue.bytes_max - queue.bytes) / per_ms
    said = (
        f"Full in {duration(left_ms)} at this rate: {size(queue.bytes)} of "
        f"{size(queue.bytes_max)}. Publishers are then refused."
    )
    return _look("fills_up", 75, queue, said, "fills up")


def readers_away(server: ServerFacts, now_ms: int) -> Look | None:
    away = [each for each in server.readers if now_ms - each.seen_ms > READER_MS]
    if not away:
        return None
    first = min(away, key=lambda each: each.seen_ms)
    names = listing([each.name for each in away])
    noun = "Reader" if len(away) == 1 else "Readers"
    said = (
        f"{noun} of the journal {names}: not seen for {duration(now_ms - first.seen_ms)}; "
        f"{number(first.behind)} events behind. The journal is kept until then."
    )
    return Look("reader", 30, said, "reader away")


def journal_full(server: ServerFacts, now_ms: int) -> Look | None:
    if server.journal_bytes < JOURNAL_SHARE * server.journal_bytes_max:
        return None
    said = (
        f"The journal has {size(server.journal_bytes)} of {size(server.journal_bytes_max)}; then "
        "its oldest events go, read or not."
    )
    return Look("journal", 85, said, "journal full")


def disk_full(server: ServerFacts, now_ms: int) -> Look | None:
    free = server.free_bytes
    if free is None or free > server.free_bytes_min:
        return None
    said = (
        f"The disk has {size(free)} left for messages: publishing is refused, messages can be "
        "pulled, acknowledged and purged."
    )
    return Look("disk", 100, said, "disk full")


def audit_found(server: ServerFacts, now_ms: int) -> Look | None:
    return Look("audit", 95, server.audit, "audit") if server.audit else None


OF_QUEUES: tuple[Callable[[QueueFacts, int], Look | None], ...] = (
    fills_up,
    expires_soon,
    grows_alone,
    worker_missing,
    dead_letters,
    listener_fails,
    grows_with_consumers,
    listeners_behind,
    stopped,
    leases_too_short,
)
OF_SERVER: tuple[Callable[[ServerFacts, int], Look | None], ...] = (
    disk_full,
    audit_found,
    journal_full,
    readers_away,
)


def looks_at(queue: QueueFacts, now_ms: int) -> list[Look]:
    """All there is to see on one queue, the gravest first."""
    found = [look for rule in OF_QUEUES if (look := rule(queue, now_ms))]
    return sorted(found, key=lambda look: -look.grave)


def looks_at_server(server: ServerFacts, now_ms: int) -> list[Look]:
    return [look for rule in OF_SERVER if (look := rule(server, now_ms))]


def who_left(names: Sequence[str], *, minute_ms: int, acked: int, waiting: int, now_ms: int) -> str:
    """Who leased last from a queue in which messages wait, and how long they would need."""
    if not names or not waiting or now_ms < minute_ms + (1 + UNLEASED_MINUTES) * MINUTE_MS:
        return ""
    said = f"Nobody has leased since {minute(minute_ms, now_ms)}. {listing(names)} did then"
    if not acked:
        return f"{said}."
    return f"{said}, and would need {duration(waiting / acked * MINUTE_MS)} for what waits."


def gravest(looks: Sequence[Look]) -> list[Look]:
    return sorted(looks, key=lambda look: (-look.grave, look.name))


def _look(rule: str, grave: int, queue: QueueFacts, said: str, state: str) -> Look:
    return Look(rule, grave, said, state, queue.id, queue.name)
