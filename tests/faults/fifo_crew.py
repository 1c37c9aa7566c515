"""Callers that publish to groups and exchanges, get, ack, nack and extend at random."""

import itertools
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.faults.connection import InDoubt, Refused
from tests.faults.crew import REFUSED_PAUSE_S, Gate
from tests.faults.environment import Environment, good
from tests.faults.fifo_history import FifoHistory, Publish
from tests.faults.lease import Change, Lease
from tests.server import Server

GROUPS = 4
GROUP_MESSAGES_MAX = 30
BATCH_MAX = 10
HELD_MAX = 40
LOCKS_MS = (400, 900, 2_000)
WAITS_MS = (0, 0, 0, 60)
# The server remembers ids for five minutes; nobody repeats one that is nearly that old.
REPEAT_SECONDS_MAX = 200.0
RECENT_MAX = 200


class Site(NamedTuple):
    """The queues to work on: `fifo` are published to, `bound` get copies from the exchange."""

    fifo: Sequence[str]
    dead: Sequence[str]
    exchange: str
    bound: Sequence[str]


class Sent(NamedTuple):
    """A publish to a FIFO queue: messages of its own, among repeats of earlier ones."""

    queue: str
    messages: Sequence[str]
    fresh: Sequence[str]


class Group:
    """Only one caller publishes to it, one request at a time: its numbers are its order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages = 0

    def next(self) -> str:
        self.messages += 1
        return f"{self.name}/{self.messages}"


def place(message: str) -> tuple[str, int]:
    """Group and number of a message."""
    group, _, number = message.rpartition("/")
    return group, int(number)


class FifoCaller:
    """One client. It sends each request once and reports all of them to the history."""

    _requests = itertools.count()

    def __init__(
        self, name: str, server: Server, site: Site, history: FifoHistory, seed: int
    ) -> None:
        self._name = name
        self._environment = Environment(server)
        self._site = site
        self._history = history
        self._random = random.Random(seed)
        self._names = itertools.count()
        self._groups = {queue: [self._group() for _ in range(GROUPS)] for queue in site.fifo}
        self._news = self._group()
        self._recent: deque[tuple[float, str, str]] = deque(maxlen=RECENT_MAX)
        self._unsure: Sent | None = None
        self._held: list[Lease] = []
        self._ack_again: list[Lease] = []

    def work(self, gate: Gate) -> None:
        """Until the gate is over."""
        try:
            while not gate.over:
                with gate.passed():
                    if not gate.over:
                        self._step()
        finally:
            self.close()

    def close(self) -> None:
        self._environment.close()

    def get(self, queue: str, *, count: int, lock_ms: int, wait_ms: int = 0) -> list[Lease]:
        request, sent_s = next(self._requests), time.monotonic()
        try:
            found = self._environment.get(queue, count=count, lock_ms=lock_ms, wait_ms=wait_ms)
        except InDoubt:
            self._history.get(None, count=count)
            return []
        answered_s = time.monotonic()
        leases = []
        for each in found:
            headers = each["headers"]
            group, number = place(headers["messageId"])
            assert each["body"] == headers["messageId"], f"another body: {each}"
            standard = queue in self._site.bound
            assert headers.get("messageGroupId") == (None if standard else group), each
            leases.append(
                Lease(
                    queue=queue,
                    group=each["body"] if standard else group,
                    message=each["body"],
                    number=number,
                    attempt=int(headers["deliveryCount"]),
                    lock=headers["lockId"],
                    lease_s=lock_ms / 1_000,
                    request=request,
                    sent_s=sent_s,
                    answered_s=answered_s,
                )
            )
        self._history.get(leases, count=count)
        return leases

    def settle(self, kind: str, leases: Sequence[Lease], *, seconds: int = 0) -> None:
        """Ack, nack or extend leases on one queue; an ack in doubt is remembered."""
        queue, locks = leases[0].queue, [(lease.message, lease.lock) for lease in leases]
        done: Sequence[bool | None]
        sent_s = time.monotonic()
        try:
            if kind == "ack":
                done = self._environment.ack(queue, locks)
            elif kind == "nack":
                done = self._environment.nack(queue, locks)
            else:
                done = self._environment.extend(queue, locks, seconds=seconds)
        except InDoubt:
            done = [None] * len(leases)
            self._ack_again += leases if kind == "ack" else []
        answered_s = time.monotonic()
        self._history.change(
            [
                (lease, Change(kind, sent_s, answered_s, each, float(seconds)))
                for lease, each in zip(leases, done, strict=True)
            ]
        )

    def _group(self) -> Group:
        return Group(f"{self._name}-{next(self._names)}")

    def _step(self) -> None:
        chance = self._random.random()
        try:
            if self._unsure:
                self._publish_again(self._unsure)
            elif self._ack_again:
                again, self._ack_again = self._ack_again, []
                if self._random.random() < 0.5:
                    self._by_queue("ack", again)
            elif self._held and (len(self._held) > HELD_MAX or chance < 0.45):
                self._settle_some()
            elif chance < 0.75:
                self._held += self.get(
                    self._some_queue(),
                    count=self._random.randint(1, BATCH_MAX),
                    lock_ms=self._random.choice(LOCKS_MS),
                    wait_ms=self._random.choice(WAITS_MS),
                )
            elif chance < 0.93:
                self._publish()
            else:
                self._publish_news()
        except Refused:
            # Killed a moment ago: the gate is about to close.
            time.sleep(REFUSED_PAUSE_S)

    def _some_queue(self) -> str:
        site = self._site
        weights = (0.6, 0.1, 0.3)
        queues = self._random.choices((site.fifo, site.dead, site.bound), weights)[0]
        return self._random.choice(queues)

    def _publish(self) -> None:
        queue = self._random.choice(self._site.fifo)
        since_s = time.monotonic() - REPEAT_SECONDS_MAX
        old = [id for sent_s, where, id in self._recent if where == queue and sent_s > since_s]
        if old and self._random.random() < 0.1:
            self._publish_old(queue, self._random.choice(old))
            return
        groups = self._groups[queue]
        fresh = []
        for _ in range(self._random.choice((1, 1, 2, 4, 8))):
            chosen = self._random.randrange(GROUPS)
            if groups[chosen].messages >= GROUP_MESSAGES_MAX:
                groups[chosen] = self._group()
            fresh.append(groups[chosen].next())
        messages = list(fresh)
        if old and len(messages) > 1 and self._random.random() < 0.3:
            messages.insert(self._random.randrange(len(messages)), self._random.choice(old))
        self._send(Sent(queue, messages, fresh))

    def _publish_old(self, queue: str, message: str) -> None:
        """Once more what was answered before; it may be waiting, leased, acked or buried."""
        try:
            self._put(queue, [message], grouped=True)
        except InDoubt:
            self._history.repeat(answered=False)
        else:
            self._history.repeat(answered=True)

    def _publish_again(self, sent: Sent) -> None:
        """Nothing more goes to a group before it is known what came of the last publish."""
        self._unsure = None
        if self._random.random() < 0.85:
            self._send(sent)

    def _send(self, sent: Sent) -> None:
        sent_s = time.monotonic()
        try:
            self._put(sent.queue, sent.messages, grouped=True)
        except Refused:
            self._unsure = sent
            raise
        except InDoubt:
            self._unsure = sent
            self._history.publish(Publish([sent.queue], sent.fresh, answered=False))
        else:
            self._history.publish(Publish([sent.queue], sent.fresh, answered=True))
            self._recent += [(sent_s, sent.queue, message) for message in sent.fresh]

    def _publish_news(self) -> None:
        messages = [self._news.next() for _ in range(self._random.choice((1, 1, 3, BATCH_MAX)))]
        try:
            self._put(self._site.exchange, messages, grouped=False)
        except InDoubt:
            self._history.publish(Publish(self._site.bound, messages, answered=False))
        else:
            self._history.publish(Publish(self._site.bound, messages, answered=True))

    def _put(self, destination: str, messages: Sequence[str], *, grouped: bool) -> None:
        drafts: list[dict[str, Any]] = []
        for message in messages:
            group = {"messageGroupId": place(message)[0]} if grouped else {}
            drafts.append({"headers": {"messageId": message, **group}, "body": message})
        answer = self._environment.try_publish(destination, drafts)
        results = [good(answer, 201)] if len(drafts) == 1 else good(answer, 200)
        assert [result["messageId"] for result in results] == list(messages)
        assert {result["status"] for result in results} == {"successful"}, results

    def _settle_some(self) -> None:
        """Most are acked, some nacked or extended, and some forgotten until they expire."""
        self._random.shuffle(self._held)
        count = self._random.randint(1, 2 * BATCH_MAX)
        picked, self._held = self._held[:count], self._held[count:]
        chosen: dict[str, list[Lease]] = {"ack": [], "nack": [], "extend": []}
        for lease in picked:
            fate = self._random.random()
            if fate < 0.55:
                chosen["ack"].append(lease)
            elif fate < 0.8:
                chosen["nack"].append(lease)
            elif fate < 0.88:
                chosen["extend"].append(lease)
                self._held.append(lease)
        for kind, leases in chosen.items():
            self._by_queue(kind, leases, seconds=self._random.choice((1, 2)))

    def _by_queue(self, kind: str, leases: Sequence[Lease], *, seconds: int = 0) -> None:
        for queue in {lease.queue: None for lease in leases}:
            mine = [lease for lease in leases if lease.queue == queue]
            for start in range(0, len(mine), BATCH_MAX):
                self.settle(kind, mine[start : start + BATCH_MAX], seconds=seconds)
