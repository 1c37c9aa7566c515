"""Publishers that publish at random, and listeners that are not always well."""

import http.client
import json
import random
import time
from typing import Any

from tests.delivery import receiver as answers
from tests.delivery.receiver import Peer
from tests.faults.connection import UNAVAILABLE, Channel, Connection, InDoubt, Refused
from tests.faults.crew import REFUSED_PAUSE_S, Gate
from tests.faults.push_history import Arrival, PushHistory
from tests.server import Server

# An ordered listener gets one message a commit: a hundred a second, twenty on a busy machine. Each
# has to arrive before the test is over.
BEHIND_MAX = 1_500
BEHIND_PAUSE_S = 0.01
BODY_CHARACTERS_MAX = 3_000
# Of one message, so that each arrives within a few attempts.
FAILURES_MAX = 3


class KeyChannel(Channel):
    """Speaks to the Discue organization."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._key = server.credentials["discue"]["api_key"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What a request answers that must succeed. Raises Refused if the store is away."""
        channel = self._connected()
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-KEY": self._key, "Content-Type": "application/json"}
        try:
            channel.request(method, f"/v1{path}", data, headers)
            answer = channel.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise InDoubt(f"{method} {path}") from error
        if answer.status == UNAVAILABLE:
            raise Refused
        assert answer.status == 200, f"{method} {path}: {answer.status} {text[:500]!r}"
        return json.loads(text)


class Publisher:
    """Publishes to one queue over both dialects. It sends each request once."""

    def __init__(
        self, name: str, server: Server, ids: tuple[str, str], history: PushHistory, seed: int
    ) -> None:
        self._name = name
        self._discue = KeyChannel(server)
        self._cloudflare = Connection(server)
        self._queue, self._cloudflare_queue = ids
        self._history = history
        self._random = random.Random(seed)
        self._published = 0

    def work(self, gate: Gate) -> None:
        """Until the gate is over."""
        try:
            while not gate.over:
                with gate.passed():
                    if not gate.over:
                        self._step()
        finally:
            self._discue.close()
            self._cloudflare.close()

    def _step(self) -> None:
        if self._history.behind() > BEHIND_MAX:
            time.sleep(BEHIND_PAUSE_S)
            return
        try:
            if self._random.random() < 0.7:
                self._publish_one()
            else:
                self._publish_batch()
        except Refused:
            # Killed a moment ago: the gate is about to close.
            time.sleep(REFUSED_PAUSE_S)

    def _bodies(self, count: int) -> list[str]:
        bodies = []
        for _ in range(count):
            self._published += 1
            rest = "x" * self._random.randint(0, BODY_CHARACTERS_MAX)
            bodies.append(f"{self._name}-{self._published}-{rest}")
        self._history.send(bodies)
        return bodies

    def _publish_one(self) -> None:
        [body] = bodies = self._bodies(1)
        try:
            made = self._discue.ask("POST", f"/queues/{self._queue}/messages", {"data": body})
        except InDoubt:
            self._history.publish(bodies, answered=False)
        else:
            self._history.publish(bodies, answered=True, id=made["message"]["id"])

    def _publish_batch(self) -> None:
        bodies = self._bodies(self._random.choice((2, 5, 20)))
        drafts = [{"body": body, "content_type": "text"} for body in bodies]
        path = f"/queues/{self._cloudflare_queue}/messages/batch"
        try:
            self._cloudflare.ask("POST", path, {"messages": drafts})
        except InDoubt:
            self._history.publish(bodies, answered=False)
        else:
            self._history.publish(bodies, answered=True)


class Hook:
    """A listener's end: reports what comes, and now and then does not answer well."""

    def __init__(self, name: str, history: PushHistory, *, ill: float, seed: int) -> None:
        self._name = name
        self._history = history
        self._ill = ill
        self._random = random.Random(seed)
        self._failures: dict[str, int] = {}
        self._bad: list[answers.Answer] = [
            *[answers.status(500)] * 4,
            *(answers.reset, answers.close, answers.too_short, answers.half_then_reset),
            *(answers.retry_after("1"), answers.garbage, answers.hang),
        ]

    async def __call__(self, peer: Peer) -> None:
        headers = peer.request.headers
        arrival = Arrival(
            self._name,
            headers["webhook-id"],
            peer.request.body.decode(),
            int(headers["x-attempt"]),
        )
        self._history.arrive(arrival)
        failures = self._failures.get(arrival.body, 0)
        if failures < FAILURES_MAX and self._random.random() < self._ill:
            self._failures[arrival.body] = failures + 1
            await self._random.choice(self._bad)(peer)
            return
        await answers.OK(peer)
        self._history.acknowledge(arrival)
