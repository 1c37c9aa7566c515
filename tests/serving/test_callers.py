"""HTTP clients of others: curl for odd requests, wrk and h2load for many at once."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import Server

pytestmark = pytest.mark.slow

LONG = 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for program in ("curl", "wrk", "h2load"):
        assert shutil.which(program), f"{program} is missing: scripts/callers installs it"
    with Server(tmp_path_factory.mktemp("callers")).start() as server:
        yield server


@pytest.fixture(scope="module")
def messages(server: Server) -> list[str]:
    """What curl is told to publish to a new queue."""
    own = server.credentials["cloudflare"]
    queues = f"{own['base_url']}/accounts/{own['account_id']}/queues"
    token = f"authorization: Bearer {own['api_token']}"
    made = run("curl", "-sS", "-H", token, "-d", '{"queue_name": "callers"}', queues)
    id = json.loads(made)["result"]["queue_id"]
    return ["-H", token, f"{queues}/{id}/messages"]


def run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    "spelling",
    [
        ["--http1.1"],
        ["--http1.0"],
        ["-H", "expect: 100-continue"],
        ["-H", "transfer-encoding: chunked"],
        ["-H", "transfer-encoding: chunked", "-H", "expect: 100-continue"],
        ["-H", "connection: close"],
        ["-H", "connection: upgrade, http2-settings", "-H", "upgrade: h2c"],
        ["--http2"],
        ["--haproxy-protocol"],
    ],
    ids=" ".join,
)
def test_curl_publishes_a_long_message_however_it_sends_it(
    messages: list[str], tmp_path: Path, spelling: list[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"body": "x" * LONG, "content_type": "text"}))
    command = ["curl", "-sS", *spelling, "--data-binary", f"@{body}", "-w", "\n%{http_code}"]
    answer, _, status = run(*command, *messages).rpartition("\n")
    if spelling == ["--haproxy-protocol"]:  # which is not HTTP
        assert (status, json.loads(answer)["error"]["code"]) == ("400", "not_http")
    else:
        assert status == "200" and json.loads(answer)["success"] is True


def test_curl_goes_on_with_its_connection(server: Server) -> None:
    counted = run(
        *("curl", "-sS", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} "),
        *(f"{server.url}/health", f"{server.url}/ready"),
    )
    assert counted.split() == ["1", "0"]


def test_wrk_finds_no_fault(server: Server) -> None:
    said = run("wrk", "-t", "2", "-c", "64", "-d", "2s", f"{server.url}/health")
    assert "Non-2xx" not in said and "Socket errors" not in said
    asked = re.search(r"(\d+) requests in", said)
    assert asked is not None and int(asked[1]) > 100


@pytest.mark.parametrize("pipelined", [1, 8, 32])
def test_h2load_gets_every_answer(server: Server, pipelined: int) -> None:
    said = run(
        *("h2load", "--h1", "-n", "3200", "-c", "20", "-m", str(pipelined)),
        f"{server.url}/health",
    )
    assert "3200 succeeded, 0 failed, 0 errored, 0 timeout" in said
    assert "status codes: 3200 2xx" in said
