"""Courier through its Discue dialect, as far as pushes need it."""

import json
import sys
from pathlib import Path
from typing import Any

from bench import http
from bench.client import NewScript, Script
from bench.courier import Courier, CourierServer
from bench.process import Process, free_port
from bench.receiver import ARRIVALS, Arrivals, body
from bench.workload import BODY, Workload


class Receiver:
    """The process that pushes are sent to."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "bench.receiver", str(self.port)]
        self.process = Process(command, port=self.port, directory=directory)
        self.process.wait_until(self.process.answers)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def arrivals(self) -> Arrivals:
        """What came since the last call."""
        found: Arrivals = http.ask(self.port, "GET", ARRIVALS)
        return found


class DiscueServer(CourierServer):
    """Pushes to this machine."""

    def __init__(self, directory: Path, *args: str) -> None:
        super().__init__(directory, args=("--push-networks", "127.0.0.0/8", *args))

    def ask(self, method: str, path: str, told: Any = None, *, key: str = "") -> Any:
        key = key or self.credentials["discue"]["api_key"]
        headers = {"X-API-KEY": key, "Content-Type": "application/json"}
        answer = http.fetch(self._port, method, f"/v1{path}", body=told, headers=headers)
        return json.loads(answer)

    def new_tenant(self, name: str) -> str:
        """The Discue key of a new tenant."""
        token = self.credentials["admin"]["token"]
        path = "/courier/v1/tenants"
        made = http.ask(self._port, "POST", path, token=token, body={"name": name})
        key: str = made["credentials"]["discue"]["api_key"]
        return key

    def new_push_queue(self, name: str, *, key: str = "") -> "PushQueue":
        """Of the tenant that has this key, else of the first."""
        key = key or self.credentials["discue"]["api_key"]
        made = self.ask("POST", "/queues", {"name": name}, key=key)
        return PushQueue(self, made["queue"]["id"], key)


class DiscuePublisher(DiscueServer):
    """Only publishes: what is published is pushed, and nobody pulls."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        made = self.ask("POST", "/queues", {"name": "bench-discue"})
        key = self.credentials["discue"]["api_key"]
        self._messages = Messages(f"/queues/{made['queue']['id']}", key)

    def publish(self, client: int, batch: int) -> NewScript:
        return self._messages.publishing(batch)


class Discue(Courier):
    name = "courier, discue"

    def takes(self, workload: Workload) -> bool:
        return workload.batch == 1 and not workload.cycle

    def start(self, directory: Path) -> DiscueServer:
        return DiscuePublisher(directory)


class PushQueue:
    def __init__(self, server: DiscueServer, id: str, key: str) -> None:
        self._server = server
        self._key = key
        self._path = f"/queues/{id}"
        self._listeners = 0

    def listen(self, url: str, live: str, *, status: str = "enabled") -> str:
        """The path of a new listener."""
        self._listeners += 1
        told = {
            "name": f"listener-{self._listeners}",
            "notify_url": url,
            "liveness_url": live,
            "status": status,
        }
        made = self._server.ask("POST", f"{self._path}/listeners", told, key=self._key)
        return f"{self._path}/listeners/{made['listener']['id']}"

    def switch(self, listener: str, status: str) -> None:
        self._server.ask("PUT", listener, {"status": status}, key=self._key)

    def switching(self, listener: str, status: str) -> bytes:
        return self._request("PUT", listener, {"status": status})

    def publish(self, number: int) -> bytes:
        told = {"data": body(number, len(BODY)).decode()}
        return self._request("POST", f"{self._path}/messages", told)

    def _request(self, method: str, path: str, told: Any) -> bytes:
        return request(method, path, self._key, told)


def request(method: str, path: str, key: str, told: Any) -> bytes:
    data = json.dumps(told).encode()
    head = (
        f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Messages:
    """The requests of one queue, as bytes; it has no verb for more than one message."""

    def __init__(self, path: str, key: str) -> None:
        self._add = request("POST", f"{path}/messages", key, {"data": BODY.decode()})

    def publishing(self, batch: int) -> NewScript:
        def script() -> Script:
            http.check((yield self._add, http.whole))
            return 1

        return script

    def cycling(self, batch: int) -> NewScript:
        """It has no verb to pull by either."""
        return self.publishing(batch)
