"""Callers that publish, pull and settle at random until they are told to stop."""

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.faults.connection import UNAVAILABLE, Connection, InDoubt, Refused
from tests.faults.history import Delivery, History, Publish, Settle
from tests.server import Server

BACKLOG_MAX = 1_500
HELD_MAX = 200
LEASES_MS = (1_500, 2_500, 4_000)
GATE_SECONDS_MAX = 60.0
REFUSED_PAUSE_S = 0.005


class Gate:
    """Callers pass while it is open; closing it waits until nobody is inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = False
        self._inside = 0
        self.over = False

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._open or self.over)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._open = False
            empty = self._changed.wait_for(lambda: self._inside == 0, GATE_SECONDS_MAX)
        assert empty, "a caller hangs"

    def end(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()


class Caller:
    """One client. It sends each request once and reports all of them to the history."""

    def __init__(
        self, name: str, server: Server, queues: dict[str, str], history: History, seed: int
    ) -> None:
        self._name = name
        self._connection = Connection(server)
        self._queues = queues
        self._history = history
        self._random = random.Random(seed)
        self._published = 0
        self._backlog = dict.fromkeys(queues, 0)
        self._held: dict[str, list[Delivery]] = {queue: [] for queue in queues}
        self._unsure: dict[str, list[Delivery]] = {queue: [] for queue in queues}

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
        self._connection.close()

    def pull(self, queue: str, *, count: int, lease_ms: int) -> list[Delivery]:
        asked = {"batch_size": count, "visibility_timeout_ms": lease_ms}
        sent_s = time.monotonic()
        try:
            result = self._post(queue, "/pull", asked)
        except InDoubt:
            self._history.pull(None)
            return []
        answered_s = time.monotonic()
        self._backlog[queue] = result["message_backlog_count"]
        deliveries = [
            Delivery(
                queue,
                message["id"],
                message["body"],
                message["attempts"],
                message["lease_id"],
                lease_ms / 1_000,
                sent_s,
                answered_s,
            )
            for message in result["messages"]
        ]
        self._history.pull(deliveries)
        return deliveries

    def settle(
        self,
        queue: str,
        *,
        acks: Sequence[Delivery] = (),
        retries: Sequence[tuple[Delivery, int | None]] = (),
    ) -> None:
        """Settle in one request; an ack without an answer is remembered, to be sent again."""
        asked = {
            "acks": [{"lease_id": delivery.lease} for delivery in acks],
            "retries": [
                {"lease_id": delivery.lease}
                | ({} if delay_s is None else {"delay_seconds": delay_s})
                for delivery, delay_s in retries
            ],
        }
        kinds = [(delivery, "ack") for delivery in acks]
        kinds += [(delivery, "retry") for delivery, _ in retries]
        sent_s = time.monotonic()
        answered_s: float | None = None
        warned: dict[str, str] = {}
        try:
            result = self._post(queue, "/ack", asked)
            answered_s = time.monotonic()
            warned = result["warnings"]
            check_counts(result, acks, [delivery for delivery, _ in retries])
        except InDoubt:
            self._unsure[queue] += acks
        self._history.settle(
            [
                Settle(delivery, kind, sent_s, answered_s, delivery.lease not in warned)
                for delivery, kind in kinds
            ]
        )

    def _step(self) -> None:
        queue = self._random.choice(list(self._queues))
        held = self._held[queue]
        try:
            if self._unsure[queue]:
                self._ack_again(queue)
            elif held and (len(held) > HELD_MAX or self._random.random() < 0.4):
                self._settle_some(queue)
            elif self._backlog[queue] > BACKLOG_MAX or self._random.random() < 0.5:
                lease_ms = self._random.choice(LEASES_MS)
                count = self._random.randint(1, 30)
                held += self.pull(queue, count=count, lease_ms=lease_ms)
            else:
                self._publish(queue)
        except Refused:
            # Killed a moment ago: the gate is about to close.
            time.sleep(REFUSED_PAUSE_S)

    def _publish(self, queue: str) -> None:
        count = self._random.choice((1, 1, 2, 10, 40))
        bodies = [f"{self._name}-{self._published + number}" for number in range(count)]
        self._published += count
        drafts: list[dict[str, Any]] = [{"body": body, "content_type": "text"} for body in bodies]
        for draft in drafts:
            if self._random.random() < 0.1:
                draft["delay_seconds"] = 1
        path, asked = ("", drafts[0]) if count == 1 else ("/batch", {"messages": drafts})
        try:
            self._post(queue, path, asked)
        except InDoubt:
            self._history.publish(Publish(queue, bodies, answered=False))
        else:
            self._history.publish(Publish(queue, bodies, answered=True))

    def _settle_some(self, queue: str) -> None:
        """Most are acked, some retried, and some forgotten until their lease ends."""
        held = self._held[queue]
        self._random.shuffle(held)
        count = self._random.randint(1, 40)
        picked, self._held[queue] = held[:count], held[count:]
        acks: list[Delivery] = []
        retries: list[tuple[Delivery, int | None]] = []
        for delivery in picked:
            fate = self._random.random()
            if fate < 0.6:
                acks.append(delivery)
            elif fate < 0.8:
                retries.append((delivery, None))
            elif fate < 0.9:
                retries.append((delivery, 1))
        if acks or retries:
            self.settle(queue, acks=acks, retries=retries)

    def _ack_again(self, queue: str) -> None:
        unsure, self._unsure[queue] = self._unsure[queue], []
        if self._random.random() < 0.5:
            self.settle(queue, acks=unsure)

    def _post(self, queue: str, verb: str, asked: Any) -> Any:
        path = f"/queues/{self._queues[queue]}/messages{verb}"
        status, _, answer = self._connection.try_ask("POST", path, asked)
        if status == UNAVAILABLE:  # the store is away: nothing of it has happened, or will
            raise Refused
        assert status == 200, f"{path}: {status} {answer[:500]!r}"
        return json.loads(answer)["result"]


def check_counts(result: Any, acks: Sequence[Delivery], retries: Sequence[Delivery]) -> None:
    """An answer counts what it does not warn about."""
    warned = result["warnings"]
    for key, deliveries in (("ackCount", acks), ("retryCount", retries)):
        counted = sum(delivery.lease not in warned for delivery in deliveries)
        assert result[key] == counted, f"{key} is {result[key]}, not {counted}: {warned}"
