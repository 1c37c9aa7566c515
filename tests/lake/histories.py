"""Random histories of a real store, as the journal tells them."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from courier import arrow
from courier.clock import ManualClock
from courier.core import journal
from courier.core.store import Store
from courier.core.types import (
    MINUTE_MS,
    SECOND_MS,
    Ack,
    Actor,
    Draft,
    Extend,
    Message,
    Queue,
    Retry,
    Settlement,
)
from tests.conformance.store.driver import Driver
from tests.lake.older import step_back

ACTORS = (Actor("ada", "cloudflare"), Actor("bob", "anypoint"), Actor("spin", "worker"))
GROUPS = ("g", "g", "h", None)
LEASES_MS = (SECOND_MS, 20 * SECOND_MS, 5 * MINUTE_MS)
# Mostly forward, sometimes over a minute's or an hour's end, now and then back.
JUMPS_MS = (0, 0, 0, 1, 7, 400, 2_500, 20_000, 70_000)
FAR_MS = (15 * MINUTE_MS, 50 * MINUTE_MS, -40 * SECOND_MS, -12 * MINUTE_MS)
EVENTS_MAX = 1_000_000


class History:
    """What happened on a few queues: plain and FIFO, with dead letters, listener and retention."""

    def __init__(self, store: Store, runner: asyncio.Runner, *, seed: int) -> None:
        self._random = Random(seed)
        self._store = store
        self.driver = Driver(store, ManualClock(1_760_000_390_000), runner)
        new = self.driver.queue
        dead = new("dead")
        line_dead = new("line-dead", fifo=True)
        self.queues: dict[str, Queue] = {
            "work": new("work", attempts_max=3, dead_letter=dead.id, retry_delay_ms=2_000),
            "line": new("line", fifo=True, attempts_max=3, dead_letter=line_dead.id),
            "short": new("short", retention_ms=4 * MINUTE_MS),
            "dead": dead,
            "line-dead": line_dead,
            "news": new("news", fifo=True),
        }
        self._listener = self.driver.listener(self.queues["work"])
        # Nobody pulls from this queue: the broker acknowledges what its listener has.
        self._reader = self.driver.listener(self.queues["news"], "reader")
        self._leases: list[tuple[str, Message]] = []
        self._rows = 0
        self._numbers = 0

    def live(self, steps: int) -> "History":
        kinds: Sequence[tuple[Callable[[], None], int]] = (
            (self._publish, 22),
            (self._lease, 26),
            (self._settle, 34),
            (self._push, 10),
            (self._sweep, 6),
            (self._redrive, 3),
            (self._remove, 2),
            (self._rename, 2),
            (self._purge, 1),
            (self._publish_for_listener, 1),
            (self._rename_queue, 1),
            (self._drop_queue, 1),
        )
        verbs, weights = zip(*kinds, strict=True)
        for verb in self._random.choices(verbs, weights, k=steps):
            far = self._random.random() < 0.06
            jump_ms = self._random.choice(FAR_MS if far else JUMPS_MS)
            self.driver.advance(jump_ms)
            if jump_ms < 0:
                step_back(self._store)
            verb()
        return self

    def events(self) -> pa.Table:
        return told(self.driver)

    # --- steps ---

    def _pick(self) -> str:
        return self._random.choice(("work", "work", "line", "line", "short", "dead", "line-dead"))

    def _draft(self) -> Draft:
        self._numbers += 1
        return Draft(
            f'{{"n": {self._numbers}}}'.encode(),
            content_type="json",
            headers=self._random.choice((None, {"k": "v"})),
            id=self._random.choice((None, f"own-{self._numbers}")),
            group=self._random.choice(GROUPS),
            delay_ms=self._random.choice((None, None, None, 5_000)),
            ttl_ms=self._random.choice((None, None, None, None, 30_000)),
        )

    def _publish(self) -> None:
        drafts = [self._draft() for _ in range(self._random.randint(1, 6))]
        name = self._random.choice((self._pick(), self._pick(), "news"))
        self.driver.run(
            self.driver.store.publish(
                [(self.queues[name].id, drafts)],
                actor=self._random.choice(ACTORS),
                now_ms=self.driver.now_ms,
            )
        )

    def _lease(self) -> None:
        name = self._pick()
        leased = self.driver.run(
            self.driver.store.lease(
                self.queues[name].id,
                count=self._random.choice((1, 2, 5)),
                lease_ms=self._random.choice(LEASES_MS),
                actor=self._random.choice(ACTORS),
                now_ms=self.driver.now_ms,
            )
        )
        self._leases += [(name, message) for message in leased.messages]

    def _settle(self) -> None:
        if not self._leases:
            return
        name, _ = self._random.choice(self._leases[-8:])
        held = [message for holder, message in self._leases[-8:] if holder == name]
        chosen = self._random.sample(held, self._random.randint(1, len(held)))
        items = [self._settlement(message) for message in chosen]
        settle = self.driver.store.settle(
            self.queues[name].id,
            items,
            actor=self._random.choice(ACTORS),
            now_ms=self.driver.now_ms,
        )
        self.driver.run(settle)
        ended = {(name, item.seq) for item in items if not isinstance(item, Extend)}
        if self._random.random() < 0.8:
            # The others are tried again, late.
            self._leases = [(n, m) for n, m in self._leases if (n, m.seq) not in ended]

    def _settlement(self, message: Message) -> Settlement:
        chance = self._random.random()
        if chance < 0.5:
            return Ack(message.seq, message.attempts, late=self._random.random() < 0.5)
        if chance < 0.85:
            delay_ms = self._random.choice((None, 0, 1_000))
            return Retry(message.seq, message.attempts, delay_ms)
        return Extend(message.seq, message.attempts, lease_ms=30_000)

    def _push(self) -> None:
        listener = self._random.choice((self._listener, self._reader))
        for message in self.driver.take(listener, count=3):
            if self._random.random() < 0.7:
                self.driver.arrive(listener, message)
            else:
                delay_ms = self._random.choice((None, 1_000))
                self.driver.miss(listener, message, delay_ms=delay_ms)

    def _sweep(self) -> None:
        self.driver.sweep()

    def _redrive(self) -> None:
        queue = self.queues[self._random.choice(("dead", "line-dead"))]
        held = [message.seq for message in self.driver.browse(queue)]
        self.driver.redrive(queue, *held[:3])

    def _remove(self) -> None:
        queue = self.queues[self._pick()]
        held = [message.seq for message in self.driver.browse(queue)]
        self.driver.remove(queue, *self._random.sample(held, min(2, len(held))))

    def _rename(self) -> None:
        queue = self.queues[self._pick()]
        for message in self.driver.browse(queue)[:1]:
            self.driver.rename(queue, message.seq, "another")

    def _purge(self) -> None:
        queue = self.queues[self._random.choice(("dead", "short"))]
        self.driver.purge(queue, upto_seq=self.driver.tail(queue))

    def _publish_for_listener(self) -> None:
        drafts = [self._draft() for _ in range(3)]
        self.driver.publish_rows(
            self.queues["work"], *drafts, first=self._rows, listener=self._listener
        )
        self._rows += 3

    def _rename_queue(self) -> None:
        queue = self.queues["short"]
        self._numbers += 1
        self.queues["short"] = self.driver.update(queue, name=f"short-{self._numbers}")

    def _drop_queue(self) -> None:
        """And another of the same name; what it held is deleted by and by."""
        old = self.queues["short"]
        self.driver.change(drops=[old])
        self._leases = [lease for lease in self._leases if lease[0] != "short"]
        self.queues["short"] = self.driver.queue("short", retention_ms=4 * MINUTE_MS)


def told(driver: Driver) -> pa.Table:
    """A store's whole journal, as the broker answers it."""
    runs = driver.run(driver.store.journal.read(after=0, limit=EVENTS_MAX))
    cut = list(journal.cut(runs, after=0, limit=EVENTS_MAX))
    return pa.ipc.open_stream(arrow.stream(cut)).read_all()


def renumbered(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Events in this order, with offsets from 1 on."""
    numbered = [{**row, "offset": offset} for offset, row in enumerate(rows, 1)]
    return pa.Table.from_pylist(numbered, schema=arrow.SCHEMA)


def collected(frame: DataFrame, *key: str) -> dict[Any, dict[str, Any]]:
    """The rows of a table by their key, of which there is one each."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found
