"""Callers of a cluster, who remember what they were answered, and a judge who reads the journal."""

import http.client
import json
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.parts import Failed

BATCH = 10
LEASE_MS = 10_000
ANSWER_S_MAX = 60.0
PAUSE_S = 0.05
PAGE = 5_000
QUIET_S = 1.5 * LEASE_MS / 1000


class Doubtful(Exception):
    """It may have happened."""


class Refused(Exception):
    """It has not happened."""


class Caller:
    """One connection at a time, through the balancer; nothing is sent twice."""

    def __init__(self, url: str, credentials: dict[str, Any]) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        account = credentials["cloudflare"]
        self._root = f"/client/v4/accounts/{account['account_id']}"
        self._tokens = account["api_token"], credentials["admin"]["token"]
        self._http: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Of the account."""
        answer = self._send(method, self._root + path, self._tokens[0], body)
        return json.loads(answer)["result"]

    def journal(self, path: str) -> bytes:
        return self._send("GET", path, self._tokens[1])

    def _send(self, method: str, path: str, token: str, body: Any = None) -> bytes:
        assert self._host is not None
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        try:
            if self._http is None:
                self._http = http.client.HTTPConnection(
                    self._host, self._port, timeout=ANSWER_S_MAX
                )
            self._http.request(method, path, data, headers)
            answer = self._http.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http = None
            raise Doubtful(str(error)) from error
        if status in (502, 504):  # the balancer's word for a connection that broke
            raise Doubtful(str(status))
        if status in (429, 503):
            raise Refused(str(status))
        if status != 200:
            raise Failed(f"{method} {path}: {status} {text[:300]!r}")
        return text


class Traffic:
    """Publishers and consumers of one queue. A message is known by its body."""

    def __init__(self, url: str, credentials: dict[str, Any]) -> None:
        self._where = url, credentials
        caller = Caller(*self._where)
        self.queue = caller.ask("POST", "/queues", {"queue_name": "orders"})["queue_id"]
        # However often leases end because an answer was lost, no message is given up.
        pulling = {"type": "http_pull", "settings": {"max_retries": 100}}
        caller.ask("POST", f"/queues/{self.queue}/consumers", pulling)
        self._lock = threading.Lock()
        self.answered: set[str] = set()
        self.refused: set[str] = set()
        self.doubtful: set[str] = set()
        self.pulled = 0
        self.failures: list[BaseException] = []
        # When something was last answered, for how long everything stood still.
        self.last_s = time.monotonic()
        self._publishing = True
        self._consuming = True
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, number), daemon=True)
            for number in range(2)
            for work in (self._publish, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            self.failures.append(error)

    def _publish(self, number: int) -> None:
        caller = Caller(*self._where)
        count = 0
        while self._publishing:
            bodies = [f"p{number}-{count + n}" for n in range(BATCH)]
            count += BATCH
            drafts = [{"body": body, "content_type": "text"} for body in bodies]
            path = f"/queues/{self.queue}/messages/batch"
            fate = self.answered
            try:
                caller.ask("POST", path, {"messages": drafts})
                self.last_s = time.monotonic()
            except Refused:
                fate = self.refused
            except Doubtful:
                fate = self.doubtful
            with self._lock:
                fate.update(bodies)
            time.sleep(PAUSE_S)

    def _consume(self, number: int) -> None:
        caller = Caller(*self._where)
        asked = {"batch_size": 2 * BATCH, "visibility_timeout_ms": LEASE_MS}
        while self._consuming:
            try:
                found = caller.ask("POST", f"/queues/{self.queue}/messages/pull", asked)
                acks = [{"lease_id": message["lease_id"]} for message in found["messages"]]
                if acks:
                    caller.ask("POST", f"/queues/{self.queue}/messages/ack", {"acks": acks})
                    self.pulled += len(acks)
            except (Refused, Doubtful):
                acks = []
            if not acks:
                time.sleep(PAUSE_S)

    def stood_still_s(self, since_s: float) -> float:
        """From a moment to the next answer to a publisher."""
        while self.last_s < since_s:
            self.check()
            if time.monotonic() - since_s > 120:
                raise Failed("no publisher was answered for two minutes")
            time.sleep(0.01)
        return self.last_s - since_s

    def check(self) -> None:
        if self.failures:
            raise Failed(f"a caller failed: {self.failures[0]!r}")

    def finish(self) -> None:
        """No more messages; until all that there are have been consumed."""
        self._publishing = False
        caller = Caller(*self._where)
        quiet_s = time.monotonic()
        while time.monotonic() - quiet_s < QUIET_S:
            self.check()
            stats = caller.ask("GET", f"/queues/{self.queue}/metrics")
            if stats["backlog_count"]:
                quiet_s = time.monotonic()
            time.sleep(0.5)
        self._consuming = False
        for thread in self._threads:
            thread.join(ANSWER_S_MAX)

    def judge(self) -> dict[str, int]:
        """What the journal says, compared with what callers were answered. Raises Failed."""
        events = self._events()
        if [event["offset"] for event in events] != list(range(1, len(events) + 1)):
            raise Failed("offsets of the journal are not dense")
        mine = [event for event in events if event["queue"] == self.queue]
        stored = Counter(event["body"] for event in mine if event["kind"] == "published")
        acked = Counter(event["seq"] for event in mine if event["kind"] == "acked")
        leased: Counter[tuple[int, int]] = Counter(
            (event["seq"], event["attempt"]) for event in mine if event["kind"] == "leased"
        )
        wrong = {
            "answered and lost": len(self.answered - stored.keys()),
            "refused and stored": len(self.refused & stored.keys()),
            "stored twice": sum(count > 1 for count in stored.values()),
            "never acknowledged": len(stored) - len(acked),
            "acknowledged twice": sum(count > 1 for count in acked.values()),
            "leased twice": sum(count > 1 for count in leased.values()),
        }
        if any(wrong.values()):
            raise Failed(", ".join(f"{count} {what}" for what, count in wrong.items() if count))
        return {
            "events": len(events),
            "messages": len(stored),
            "answered": len(self.answered),
            "refused": len(self.refused),
            "in doubt": len(self.doubtful),
            "of these stored": len(self.doubtful & stored.keys()),
        }

    def _events(self) -> list[dict[str, Any]]:
        caller = Caller(*self._where)
        last = int(json.loads(caller.journal("/journal/head"))["last"])
        events: list[dict[str, Any]] = []
        while len(events) < last:
            page = caller.journal(f"/journal?after={len(events)}&limit={PAGE}").splitlines()
            events += [json.loads(line) for line in page]
        return events[:last]
