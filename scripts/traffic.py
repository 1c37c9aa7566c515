"""Bounded traffic for the demo: orders, payments and signups, each through an API of its own.

Everything here is what a caller of a server would do: plain HTTP with the tokens it was given.
"""

import base64
import http.client
import json
import math
import random
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

ORDERS, PAYMENTS, SIGNUPS = 2_000, 240, 300
SECONDS = 20
WAIT_S_MAX = 90.0
# What costs so much is refused by the packers, again and again, until it is buried.
TOTAL_MAX = 480
COUNTRIES = ("NL", "DE", "PT", "CA")


class Api:
    """One connection to one API. A redirect is answered with where it leads."""

    def __init__(self, url: str, **headers: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        self._prefix = parts.path
        self._headers = {"Content-Type": "application/json", **headers}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, self._prefix + path, content, self._headers)
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status == 303:
            return answer.headers["location"]
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {told.decode()[:300]}")
        return json.loads(told) if told else None


class Orders:
    """The Cloudflare API: batches in, pulls out; some are retried, forgotten, or never wanted."""

    def __init__(self, account: dict[str, str], tokens: dict[str, str]) -> None:
        self._url = f"{account['base_url']}/accounts/{account['account_id']}"
        self._account, self._tokens = account, tokens
        api = self._api(account["api_token"])
        [queue] = api.ask("GET", "/queues?name=orders")["result"]
        self._messages = f"/queues/{queue['queue_id']}/messages"
        self._metrics = f"/queues/{queue['queue_id']}/metrics"
        self._published = threading.Event()
        self.done: Counter[str] = Counter()

    def _api(self, token: str) -> Api:
        return Api(self._url, Authorization=f"Bearer {token}")

    def publish(self) -> None:
        """As many as were asked for, in a wave."""
        api, dice = self._api(self._account["api_token"]), random.Random(1)
        steps = SECONDS * 4
        weights = [
            1 - math.cos(2 * math.pi * (step + 0.5) / steps * 2) + 0.2 for step in range(steps)
        ]
        sent = 0
        for step in range(steps):
            upto = round(ORDERS * sum(weights[: step + 1]) / sum(weights))
            batch = [{"body": self._order(number, dice)} for number in range(sent, upto)]
            if batch:
                api.ask("POST", f"{self._messages}/batch", {"messages": batch})
            sent = upto
            time.sleep(1 / 4)
        self._published.set()

    def _order(self, number: int, dice: random.Random) -> dict[str, Any]:
        total = dice.randint(5, 499)
        return {"order": number, "country": dice.choice(COUNTRIES), "total": total}

    def consume(self, name: str, *, all_welcome: bool = False) -> None:
        """Pull, work a little, settle; until nothing is left."""
        api, dice = self._api(self._tokens[name]), random.Random(name)
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            asked = {"batch_size": 20, "visibility_timeout_ms": 3_000}
            pulled = api.ask("POST", f"{self._messages}/pull", asked)["result"]["messages"]
            if not pulled and self._published.is_set() and not self._left(api):
                return
            time.sleep(dice.uniform(0.15, 0.35))
            acks, retries = [], []
            for message in pulled:
                luck = dice.random()
                # This API hands JSON out in base64.
                order = json.loads(base64.b64decode(message["body"]))
                if order["total"] > TOTAL_MAX and not all_welcome:
                    retries.append({"lease_id": message["lease_id"]})
                elif luck < 0.06:
                    retries.append({"lease_id": message["lease_id"], "delay_seconds": 1})
                elif luck > 0.01 + 0.06:  # the rest is forgotten, and its lease expires
                    acks.append({"lease_id": message["lease_id"]})
            api.ask("POST", f"{self._messages}/ack", {"acks": acks, "retries": retries})
            self.done["acked"] += len(acks)
            self.done["retried"] += len(retries)
        raise RuntimeError(f"orders are still waiting after {WAIT_S_MAX:.0f} s")

    def _left(self, api: Api) -> bool:
        return bool(api.ask("GET", self._metrics)["result"]["backlog_count"])

    def again(self) -> None:
        """A second shift, which takes everything."""
        self.consume("packer-1", all_welcome=True)


class Payments:
    """The Anypoint API: a FIFO queue, in which the payments of a customer stay in order."""

    def __init__(self, site: dict[str, Any]) -> None:
        app = {**site["connected_app"], "grant_type": "client_credentials"}
        token = Api(site["base_url"]).ask("POST", "/accounts/api/v2/oauth2/token", app)
        self._url, self._token = site["base_url"], token["access_token"]
        place = f"/organizations/{site['organization_id']}/environments/{site['environment_id']}"
        queues = f"/mq/admin/api/v1{place}/regions/{site['region']}/destinations/queues"
        self._messages = f"/api/v1{place}/destinations/payments/messages"
        self._api().ask("PUT", f"{queues}/payments", {"fifo": True})
        self.done = 0

    def _api(self) -> Api:
        return Api(self._url, Authorization=f"Bearer {self._token}")

    def publish(self) -> None:
        api = self._api()
        for number in range(PAYMENTS):
            body = json.dumps({"payment": number, "customer": number % 12})
            headers = {"messageGroupId": f"customer-{number % 12}"}
            message = {"body": body, "headers": headers}
            api.ask("PUT", f"{self._messages}/{uuid.uuid4()}", message)
            time.sleep(SECONDS / PAYMENTS)

    def consume(self) -> None:
        api = self._api()
        deadline = time.monotonic() + WAIT_S_MAX
        while self.done < PAYMENTS and time.monotonic() < deadline:
            taken = api.ask("GET", f"{self._messages}?batchSize=10&pollingTime=1000") or []
            if taken:
                locks = [
                    {"messageId": each["headers"]["messageId"], "lockId": each["headers"]["lockId"]}
                    for each in taken
                ]
                api.ask("DELETE", self._messages, locks)
                self.done += len(taken)


class Signups:
    """The Discue API: what is published is pushed to a listener, which now and then says no."""

    def __init__(self, site: dict[str, str]) -> None:
        self._api = Api(site["base_url"], **{"X-API-KEY": site["api_key"]})
        self._receiver = Receiver()
        queue = self._api.ask("POST", "/queues", {"name": "signups"})["queue"]["id"]
        url = f"http://127.0.0.1:{self._receiver.server_port}/"
        listener = {"name": "mailer", "notify_url": f"{url}signup", "liveness_url": url}
        self._api.ask("POST", f"/queues/{queue}/listeners", listener)
        self._messages = f"/queues/{queue}/messages"

    def publish(self) -> None:
        for number in range(SIGNUPS):
            body = json.dumps({"email": f"reader-{number}@example.org"})
            self._api.ask("POST", self._messages, {"data": body})
            time.sleep(SECONDS / SIGNUPS)

    def wait(self) -> None:
        if not self._receiver.enough.wait(WAIT_S_MAX):
            raise RuntimeError(f"signups are still on their way after {WAIT_S_MAX:.0f} s")

    @property
    def refused(self) -> int:
        return self._receiver.refused

    def close(self) -> None:
        self._receiver.shutdown()
        self._receiver.server_close()


class Receiver(ThreadingHTTPServer):
    """A listener's own server. It refuses each seventh request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.enough = threading.Event()
        self.refused = 0
        self._asked = self._taken = 0
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def take(self) -> bool:
        with self._lock:
            self._asked += 1
            if self._asked % 7 == 0:
                self.refused += 1
                return False
            self._taken += 1
            if self._taken >= SIGNUPS:
                self.enough.set()
            return True


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Receiver)
        self._answer(200 if self.server.take() else 503)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Without a line for every request."""


def run(orders: Orders, payments: Payments, signups: Signups) -> None:
    """All of it at once; what fails in one of them fails here."""
    work = [
        orders.publish,
        *(lambda name=name: orders.consume(name) for name in ("packer-1", "packer-2")),
        payments.publish,
        payments.consume,
        signups.publish,
        signups.wait,
    ]
    with ThreadPoolExecutor(len(work)) as threads:
        for each in [threads.submit(task) for task in work]:
            each.result()
