"""Two stores that live through the same history, and how they are compared.

Whatever one of them answers, the other must; and so for everything else that a caller can see
after each step. Whoever waits must get a hint when something has become ready.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from courier.clock import ManualClock
from courier.core.matching import Sought
from courier.core.store import Store
from courier.core.types import MINUTE_MS, Listener, Message, MessageState, Push, Queue, Standing
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.driver import TENANT, Driver
from tests.model.lives import backlogs, lives, tallies
from tests.oracle.store import Oracle

T = TypeVar("T")
Jump = int | tuple[int, int] | Literal["far"] | None

# Where a queue of the chain buries its messages; the last two drop them.
CHAIN = {"work": "dead", "dead": "deeper", "deeper": None, "plain": None}
NEAR_MS = 1_000
PICKS_MAX = 11
PEEK_MAX = 100


STATES: tuple[MessageState | None, ...] = (None, "waiting", "leased", "delayed")


async def states(
    store: Store, queue: str, state: MessageState | None, now_ms: int
) -> list[Standing]:
    """How every message stands, or which of them stand so."""
    found, _ = await store.messages.states(
        queue, after_seq=0, before_seq=1 << 40, limit=PEEK_MAX, now_ms=now_ms, state=state
    )
    return found


# All, and what is in some bodies, headers, ids and names.
TEXTS = ("", "k", "v", "own", "null", "1")


async def search(store: Store, queue: str, text: str, newest: bool, now_ms: int) -> list[Message]:
    """All that match, in small pages."""
    found: list[Message] = []
    after, before = 0, 1 << 40
    while True:
        page, end = await store.messages.search(
            queue,
            Sought(text),
            after_seq=after,
            before_seq=before,
            limit=7,
            now_ms=now_ms,
            newest=newest,
        )
        found += page
        if not end:
            return found
        after, before = (after, end) if newest else (end, before)


class Sight:
    """All that a caller can see of a store, and what of it may be handed out.

    Until when a message is kept for a dropped listener is the store's own affair. `whole`: no
    listener was dropped, and all that is kept is looked at. `doubtful`: something else that was
    seen may be kept for it alone. `quiet` are ids of queues that nobody pulls from: looking would
    make them others.
    """

    def __init__(self, *, whole: bool = True, quiet: Collection[str] = ()) -> None:
        self.whole = whole
        self.doubtful = False
        self.quiet = quiet
        self.answers: list[Any] = []
        self.ready: dict[str, set[int]] = {}
        self.known: dict[str, list[Message]] = {}
        self.pushes: list[Push] = []

    async def look(
        self, store: Store, queues: Sequence[Queue], listeners: Sequence[Listener], now_ms: int
    ) -> "Sight":
        for queue in queues:
            id = queue.id
            quiet = id in self.quiet
            peeked = [] if quiet else await store.messages.peek(id, count=PEEK_MAX, now_ms=now_ms)
            self.ready[id] = {message.seq for message in peeked}
            held = await store.messages.browse(id, after_seq=0, limit=PEEK_MAX, now_ms=now_ms)
            self.answers += [await store.stats([id], now_ms=now_ms), await store.messages.tail(id)]
            self.answers += [peeked, held]
            # One of the four at a time: looking at all of them takes long.
            state = STATES[(now_ms + len(self.answers)) % len(STATES)]
            self.answers.append(await states(store, id, state, now_ms))
            text, newest = TEXTS[(now_ms + len(self.answers)) % len(TEXTS)], bool(now_ms % 2)
            self.answers.append(await search(store, id, text, newest, now_ms))
            await self._look_at_pushes(store, queue, held, now_ms)
        for listener in listeners:
            self.answers.append(await store.pushes.stats([listener.id], now_ms=now_ms))
            self.answers.append(await store.pushes.missed(listener.id, limit=3, now_ms=now_ms))
            self.ready[listener.id] = self._ready(listener, now_ms)
        return self

    async def _look_at_pushes(
        self, store: Store, queue: Queue, held: list[Message], now_ms: int
    ) -> None:
        id, old_ms = queue.id, now_ms - queue.retention_ms
        known = await store.messages.browse(
            id, after_seq=0, limit=PEEK_MAX, now_ms=now_ms, kept=True
        )
        self.known[id] = []
        for message in known:
            pushes = await store.pushes.of_message(id, message.seq, now_ms=now_ms)
            states = {push.status for push in pushes}
            owed = bool(states - {"acknowledged"})
            old = message.expires_ms is None and message.published_ms <= old_ms
            if not self.whole and old and message not in held:
                # Retention waits for open pushes; of the dropped listener's none is seen here.
                self.doubtful |= not states & {"pending", "in_flight", "retrying"}
            if self.whole or message in held or owed:
                self.known[id].append(message)
                self.pushes += pushes
        self.answers += [self.known[id], list(self.pushes)]

    def _ready(self, listener: Listener, now_ms: int) -> set[int]:
        """What may be taken, put together from what is told of each push."""
        unfinished = [
            push
            for push in sorted(self.pushes, key=lambda push: push.seq)
            if push.listener == listener.id and push.status not in ("acknowledged", "exhausted")
        ]
        return {
            push.seq
            for push in unfinished[: 1 if listener.ordered else None]
            if push.due_ms is not None and push.due_ms <= now_ms
        }


class Stage(RuleBasedStateMachine):
    """The reference and a store on disk, their queues and listeners, and the time."""

    FIFO: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp(prefix="courier-model-"))
        self.reference = Driver(Oracle(), self.clock, self.runner)
        self.other = Driver(self.opened(), self.clock, self.runner)
        self.queues: dict[str, Queue] = {}
        self.quiet: set[str] = set()
        self.listeners: list[Listener] = []
        self.dropped: set[str] = set()
        self.moments: set[int] = set()
        self.sight = Sight()
        self.waiting: dict[tuple[int, str], asyncio.Future[bool]] = {}
        self.made = 0
        self.agreed = True
        self.swept = True

    def opened(self) -> Store:
        return self.runner.run(EmbeddedStore.open(self.folder / "courier.db"))

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.settle_down()
                self.compare_sights()
                self.compare_journals()
                self.compare_numbers()
                self.account()
        finally:
            self.runner.run(self.other.store.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    def account(self) -> None:
        """Look into the store itself, where it has something to account for."""

    # --- comparing ---

    def both(self, verb: Callable[[Driver], T]) -> T:
        """Run a verb on both stores; their answers must be the same."""
        return self.same(verb(self.reference), verb(self.other))

    def same(self, mine: T, theirs: T) -> T:
        self.agreed = mine == theirs
        assert self.agreed, f"{theirs!r} is not {mine!r}"
        return mine

    def look(self) -> None:
        """Compare everything that a caller can see."""
        before = self.sight.ready
        self.compare_sights()
        for number, driver in enumerate((self.reference, self.other)):
            self.heed(number, driver, before)

    def compare_sights(self) -> None:
        self.sight, other = (self.looked(driver) for driver in (self.reference, self.other))
        if self.sight.doubtful or other.doubtful:
            self.settle_down()
            self.sight, other = (self.looked(driver) for driver in (self.reference, self.other))
        for mine, theirs in zip(self.sight.answers, other.answers, strict=True):
            self.same(mine, theirs)
        self.compare_backlogs()

    def compare_backlogs(self) -> None:
        for driver in (self.reference, self.other):
            offset, held = driver.backlogs()
            self.same(backlogs(driver, upto=offset), {id: n for id, n in held.items() if n})

    def looked(self, driver: Driver) -> Sight:
        queues = list(self.queues.values())
        quiet = [self.queues[name].id for name in self.quiet]
        look = Sight(whole=self.swept, quiet=quiet).look(
            driver.store, queues, self.listeners, self.clock.now_ms()
        )
        return driver.run(look)

    def heed(self, number: int, driver: Driver, before: dict[str, set[int]]) -> None:
        """Whatever has become ready since the last look, who waits for it was told."""
        everyone: list[Queue | Listener] = [*self.queues.values(), *self.listeners]
        hints = {on.id: self.waiting.get((number, on.id)) for on in everyone}
        waiting = [hint for hint in hints.values() if hint is not None]
        given = dict(zip(waiting, driver.hints(*waiting), strict=True))
        for on in everyone:
            hint = hints[on.id]
            if hint is not None:
                self.agreed = given[hint] or not (
                    self.sight.ready[on.id] - before.get(on.id, set())
                )
                assert self.agreed, f"no hint from {driver.store} that {on.name} has something"
            if hint is None or hint.done():
                self.waiting[number, on.id] = driver.wait(on)

    def compare_journals(self) -> None:
        mine, theirs = (lives(driver, self.dropped) for driver in (self.reference, self.other))
        for key in mine.keys() | theirs.keys():
            self.same(mine.get(key), theirs.get(key))

    def compare_numbers(self) -> None:
        self.both(lambda driver: tallies(driver))
        for queue in self.queues.values():
            begun = queue.created_ms // MINUTE_MS
            both_levels = self.reference.levels(queue) + self.other.levels(queue)
            # A queue holds the same from one level to the next.
            turns = {begun, *(level.minute + step for level in both_levels for step in (0, 1))}
            for minute in sorted(minute for minute in turns if minute >= begun):
                self.both(lambda d, q=queue, m=minute: d.held(q, minute=m))  # type: ignore[misc]

    def settle_down(self) -> None:
        """Let both stores finish with what was dropped."""
        if not self.swept:
            for driver in (self.reference, self.other):
                driver.sweep_all()
            self.swept = True

    # --- time, and what is there ---

    def move(self, jump: Jump) -> None:
        """Let time pass: by so much, or up to a coming moment (and its side).

        Most that is there ends at a moment that is far away, so few jumps go so far.
        """
        now_ms = self.clock.now_ms()
        ahead = sorted(moment for moment in self.moments if moment >= now_ms)
        near = [moment for moment in ahead if moment <= now_ms + NEAR_MS]
        if isinstance(jump, int):
            self.clock.advance(jump)
        elif jump == "far":
            self.clock.advance(next((m - now_ms for m in ahead if m not in near), 0))
        elif jump and jump[0] < len(near):
            place, side_ms = jump
            self.clock.advance(max(0, near[place] + side_ms - now_ms))

    def mark(self, *waits_ms: int | None) -> None:
        """Remember when something that starts now will end."""
        self.moments |= {self.clock.now_ms() + wait_ms for wait_ms in waits_ms if wait_ms}

    def new_id(self) -> str:
        # Both stores make their message ids from the queue's, so it must not be random.
        self.made += 1
        return f"c0{self.made:030x}"

    def pick(self, number: int) -> str:
        names = list(CHAIN)
        return names[number % len(names)]

    def pick_to_pull(self, number: int) -> str:
        """A queue to pull from, and one that has something ready if there is one."""
        names = [name for name in CHAIN if name not in self.quiet]
        ready = [name for name in names if self.reference.peek(self.queues[name])]
        # Now and then any of them, and from then on it is not quiet.
        among = list(CHAIN) if number == PICKS_MAX else ready or names or list(CHAIN)
        name = among[number % len(among)]
        if name in self.quiet:
            self.quiet.remove(name)
            # What was ready before is not known.
            for store in (0, 1):
                hint = self.waiting.pop((store, self.queues[name].id), None)
                if hint is not None and not hint.done():
                    hint.set_result(False)
        return name

    def create(self, name: str, **fields: Any) -> None:
        into = CHAIN[name]
        queue = Queue(
            id=self.new_id(),
            tenant=TENANT,
            name=name,
            created_ms=self.clock.now_ms(),
            modified_ms=self.clock.now_ms(),
            dead_letter=self.queues[into].id if into else None,
            fifo=name in self.FIFO,
            **fields,
        )
        self.both(lambda driver: driver.change(puts=[queue]))
        self.queues[name] = queue

    def restart(self) -> None:
        self.runner.run(self.other.store.close())
        self.other.store = self.opened()
        self.waiting = {key: hint for key, hint in self.waiting.items() if key[0] == 0}
