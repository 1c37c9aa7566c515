"""The workers in `examples/`, run as their users would run them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Command
from tests.outside.node import NODE
from tests.server import Server, free_port
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue, new_name

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {
    "python": [sys.executable, str(EXAMPLES / "worker_python.py")],
    "javascript": [str(NODE), str(EXAMPLES / "worker_javascript.mjs")],
}


class Worker:
    """A worker that runs, and a queue of which it gets the messages."""

    def __init__(self, queue: Queue, url: str, output: Path) -> None:
        self.queue = queue
        self.url = url
        self._output = output

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()


@pytest.fixture(params=PROGRAMS)
def worker(
    request: pytest.FixtureRequest, server: Server, http: httpx.Client, tmp_path: Path
) -> Iterator[Worker]:
    name, port = new_name("script"), free_port()
    url = f"http://127.0.0.1:{port}/"
    secret = Command("--data", str(server.data))("worker", "add", name, url).out.strip()
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            PROGRAMS[request.param],
            env={"PATH": os.environ["PATH"], "SECRET": secret, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        queue = Queue.create(http)
        settings = {"batch_size": 2, "max_wait_time_ms": 100}
        ok(queue.post("/consumers", {"type": "worker", "script_name": name, "settings": settings}))
        yield Worker(queue, url, output)
        ok(http.delete(queue.at()))
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in output.read_text()


def test_an_example_handles_messages_and_has_those_that_fail_sent_again(worker: Worker) -> None:
    worker.queue.push_texts(["one", "fail"])
    eventually(lambda: sum(line.endswith(" fail") for line in worker.lines()) == 4, seconds_max=20)
    eventually(lambda: worker.queue.backlog() == 0)
    lines = worker.lines()
    assert sum(line.endswith(" one") for line in lines) == 1
    assert sum(line.endswith(": as you wish") for line in lines) == 4
    assert all(line.startswith(worker.queue.name) for line in lines if line.endswith(" one"))


def test_an_example_believes_nobody_without_a_signature(worker: Worker) -> None:
    worker.queue.push("one")
    eventually(lambda: worker.lines())
    body = b'{"queue": "q", "messages": [{"id": "1", "body": "forged"}]}'
    forged = {
        "webhook-id": "1",
        "webhook-timestamp": "1763251200",
        "webhook-signature": "v1,AAAA",
    }
    for headers in ({}, forged):
        answer = httpx.post(worker.url, content=body, headers=headers, trust_env=False)
        assert answer.status_code == 401
    assert "forged" not in "".join(worker.lines())
