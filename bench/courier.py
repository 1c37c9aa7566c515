"""Courier itself, through its Cloudflare dialect, as an installed server runs it."""

import json
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import http
from bench.client import NewScript, Refused, Script
from bench.process import Process, free_port
from bench.workload import BODY, Workload

_LEASE_MS = 30_000
_LEASE_ID = re.compile(rb'"lease_id": ?"([^"]+)"')
_CALLS = re.compile(r"^courier_store_committed_calls_total (\S+)", re.MULTILINE)
_COMMITS = re.compile(r"^courier_store_commits_total (\S+)", re.MULTILINE)
_ACK_COUNT = re.compile(rb'"ackCount": ?(\d+)')


class Queue:
    """The requests of one queue, as bytes."""

    def __init__(self, path: str, token: str) -> None:
        self.id = path.rpartition("/")[2]
        self._path = f"{path}/messages"
        self._token = token

    def _request(self, verb: str, body: bytes) -> bytes:
        return http.request(self._path + verb, token=self._token, body=body)

    def push(self, batch: int, *, delay_s: int = 0) -> bytes:
        draft: dict[str, object] = {"body": BODY.decode(), "content_type": "text"}
        if delay_s:
            draft["delay_seconds"] = delay_s
        if batch == 1:
            return self._request("", json.dumps(draft).encode())
        return self._request("/batch", json.dumps({"messages": [draft] * batch}).encode())

    def pull(self, batch: int, *, lease_ms: int = _LEASE_MS) -> bytes:
        body = {"batch_size": batch, "visibility_timeout_ms": lease_ms}
        return self._request("/pull", json.dumps(body).encode())

    def ack(self, leases: Sequence[bytes]) -> bytes:
        acks = b",".join([b'{"lease_id":"%b"}' % lease for lease in leases])
        return self._request("/ack", b'{"acks":[%b]}' % acks)

    def publishing(self, batch: int, *, delay_s: int = 0) -> NewScript:
        push = self.push(batch, delay_s=delay_s)

        def script() -> Script:
            http.check((yield push, http.whole))
            return batch

        return script

    def filling(self, batch: int) -> NewScript:
        """Publish bodies of which no two are alike, as those of a real queue."""

        def script() -> Script:
            bodies = [secrets.token_hex(len(BODY) // 2) for _ in range(batch)]
            drafts = [{"body": body, "content_type": "text"} for body in bodies]
            push = self._request("/batch", json.dumps({"messages": drafts}).encode())
            http.check((yield push, http.whole))
            return batch

        return script

    def leasing(self, batch: int, *, lease_ms: int) -> NewScript:
        """Pull and leave the messages leased."""
        pull = self.pull(batch, lease_ms=lease_ms)

        def script() -> Script:
            answer = yield pull, http.whole
            return len(leases(answer))

        return script

    def cycling(self, batch: int) -> NewScript:
        publish = self.publishing(batch)
        pull = self.pull(batch)

        def script() -> Script:
            yield from publish()
            pulled = leases((yield pull, http.whole))
            acked = yield self.ack(pulled), http.whole
            check_acked(acked, len(pulled))
            return len(pulled)

        return script


def leases(answer: bytes) -> list[bytes]:
    http.check(answer)
    found: list[bytes] = _LEASE_ID.findall(answer)
    if not found:
        raise Refused("nothing to pull")
    return found


def check_acked(answer: bytes, count: int) -> None:
    http.check(answer)
    acked = _ACK_COUNT.search(answer)
    if acked is None or int(acked[1]) != count:
        raise Refused(f"{count} leases to ack, answer: {answer[-500:]!r}")


class CourierServer:
    """`source`: where it is loaded from, if not from what is installed."""

    def __init__(
        self,
        directory: Path,
        *,
        module: str = "courier",
        args: Sequence[str] = (),
        source: Path | None = None,
    ) -> None:
        self.directory = directory
        self._prefix = ("env", f"PYTHONPATH={source}") if source else ()
        self._module = module
        self._args = args
        self._port = free_port()
        self.start()
        self.credentials = json.loads((directory / "credentials.json").read_text())
        credentials = self.credentials["cloudflare"]
        self._token: str = credentials["api_token"]
        self._queues = f"/client/v4/accounts/{credentials['account_id']}/queues"
        self.queue = self.new_queue("bench")

    def start(self) -> None:
        """Start it and wait until it is ready; called again, it is a restart."""
        self.process = Process(
            [
                *(
                    *self._prefix,
                    sys.executable,
                    "-m",
                    self._module,
                    "serve",
                    "--host",
                    "127.0.0.1",
                ),
                *("--port", str(self._port), "--data", str(self.directory)),
                *self._args,
            ],
            port=self._port,
            directory=self.directory,
        )
        self.process.wait_until(lambda: http.is_ready(self._port))

    @property
    def port(self) -> int:
        return self._port

    @property
    def admin(self) -> str:
        """The operator's token."""
        return str(self.credentials["admin"]["token"])

    def new_bare_queue(self, name: str) -> str:
        """Make a queue; its path."""
        made = http.ask(
            self._port, "POST", self._queues, token=self._token, body={"queue_name": name}
        )
        return f"{self._queues}/{made['result']['queue_id']}"

    def new_queue(self, name: str) -> Queue:
        """Make a queue that can be pulled."""
        path = self.new_bare_queue(name)
        http.ask(
            self._port, "POST", f"{path}/consumers", token=self._token, body={"type": "http_pull"}
        )
        return Queue(path, self._token)

    def new_queue_request(self, name: str) -> bytes:
        body = json.dumps({"queue_name": name}).encode()
        return http.request(self._queues, token=self._token, body=body)

    def new_discue_queue_request(self, name: str) -> bytes:
        body = json.dumps({"name": name}).encode()
        request = http.request("/v1/queues", token="", body=body)
        key = self.credentials["discue"]["api_key"].encode()
        return request.replace(b"Authorization: Bearer ", b"X-API-KEY: %b" % key)

    def calls_per_commit(self) -> float:
        """How many store calls shared a transaction, on average since the start."""
        text = http.fetch(
            self._port, "GET", "/metrics", token=self.credentials["admin"]["token"]
        ).decode()
        calls, commits = (_CALLS.search(text), _COMMITS.search(text))
        if calls is None or commits is None:
            raise Refused("no commit counters in /metrics")
        return float(calls[1]) / float(commits[1])

    def publish(self, client: int, batch: int) -> NewScript:
        return self.queue.publishing(batch)

    def cycle(self, client: int, batch: int) -> NewScript:
        return self.queue.cycling(batch)


class Courier:
    name = "courier"

    def takes(self, workload: Workload) -> bool:
        return True

    def installed(self) -> bool:
        return True

    def start(self, directory: Path) -> CourierServer:
        return CourierServer(directory)
