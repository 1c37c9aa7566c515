"""The console, by people who mean no good: forms, queries, headers, streams."""

import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.console.live import STREAMS_MAX, STREAMS_PER_KEY_MAX
from tests.server import Server

DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("attack-console")
    with Server(directory).start() as server:
        yield server
    assert "Traceback" not in server.log()


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    token = server.credentials["cloudflare"]["api_token"]
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    with httpx.Client(
        base_url=server.url, headers=headers, timeout=30, trust_env=False, verify=False
    ) as http:
        yield http


@pytest.fixture(scope="module")
def queue(server: Server) -> str:
    with server.client() as http:
        made = http.post("/queues", json={"queue_name": "attacked"}).json()["result"]["queue_id"]
        for body in (DEEP, '{"a":' * 20_000):
            sent = {"body": body, "content_type": "text"}
            assert http.post(f"/queues/{made}/messages", json=sent).status_code == 200
    return str(made)


@pytest.mark.parametrize(
    "fields",
    [
        {"body": DEEP, "kind": "json"},
        {"body": '{"a":' * 100_000, "kind": "json"},
        {"body": "{}", "headers": '{"a":' * 3_000},
        {"body": "{}", "headers": "[" * 3_000},
    ],
    ids=["body-lists", "body-objects", "headers-objects", "headers-lists"],
)
def test_deep_json_is_refused(http: httpx.Client, queue: str, fields: dict[str, str]) -> None:
    answer = http.post(f"/console/queues/{queue}/publish", json=fields)
    assert answer.status_code == 400, answer.text[:300]


def test_deep_messages_are_searched_and_shown(http: httpx.Client, queue: str) -> None:
    for query in ("q=7&path=a.a.a", "q=7&path=0.0.0", "q=a"):
        answer = http.get(f"/console/queues/{queue}?{query}")
        assert answer.status_code == 200, answer.text[:300]
    for row in http.get(f"/console/queues/{queue}").json()["messages"]["rows"]:
        for form in ("pretty", "raw", "hex"):
            path = f"/console/messages/{row['id']}?queue={queue}&body={form}"
            assert http.get(path).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"action": "delete", "selected": ",".join(map(str, range(300_000)))},
        {"action": "purge", "selected": ",".join(["c0" + "1" * 30] * 100_000)},
        {"action": "purge", "selected": "," * 3_000_000},
        {"action": "replay", "sql": "SELECT 1", "selected": "c0/1," * 300_000},
    ],
    ids=["messages", "queues", "commas", "rows"],
)
def test_too_many_are_refused_before_they_are_read(
    server: Server, http: httpx.Client, queue: str, asked: dict[str, Any]
) -> None:
    if asked["action"] == "delete":
        asked = {**asked, "queue": queue}
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    answer = http.post("/console/plans", json=asked, headers=admin)
    assert answer.status_code == 400 and "at most" in answer.text, answer.text[:300]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("br, gzip;q=0.5", "gzip"),
        ("GZIP; q=1", "gzip"),
        ("gzip;q=0", ""),
        ("gzip; q=0.000, identity", ""),
        ("identity", ""),
        ("x-gzip-not", ""),
        ("," * 5_000 + "gzip", ""),
    ],
)
def test_only_who_takes_gzip_gets_it(http: httpx.Client, accepted: str, encoding: str) -> None:
    answer = http.get("/console", headers={"Accept-Encoding": accepted, "Accept": "text/html"})
    assert answer.status_code == 200
    assert answer.headers.get("content-encoding", "") == encoding


def test_streams_that_are_asked_for_together_are_counted(server: Server, queue: str) -> None:
    """One key gets its part of them, and another key still gets one."""
    token = server.credentials["cloudflare"]["api_token"]
    admin = server.credentials["admin"]["token"]
    streams = [_stream(server, token) for _ in range(STREAMS_MAX + 20)]
    try:
        found = Counter(_status(stream) for stream in streams)
        assert found == {
            b"200": STREAMS_PER_KEY_MAX,
            b"429": STREAMS_MAX + 20 - STREAMS_PER_KEY_MAX,
        }
        other = _stream(server, admin)
        streams.append(other)
        assert _status(other) == b"200"
    finally:
        for stream in streams:
            stream.close()


def _stream(server: Server, token: str) -> socket.socket:
    url = httpx.URL(server.url)
    found = socket.create_connection((url.host, url.port or 80), timeout=30)
    head = (
        f"GET /console/live HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    found.sendall(head.encode())
    return found


def _status(stream: socket.socket) -> bytes:
    return stream.recv(12).split(b" ")[1]


def test_plans_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    """Neither on a disk that refuses them, nor in memory."""
    with Server(tmp_path).start() as server:
        token = server.credentials["cloudflare"]["api_token"]
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        plans = server.data / "plans"
        with (
            server.client() as api,
            httpx.Client(base_url=server.url, headers=headers, trust_env=False) as http,
        ):
            made = api.post("/queues", json={"queue_name": "full"}).json()["result"]["queue_id"]
            asked = {"action": "purge", "queue": made}
            plans.write_text("in the way")
            for _ in range(3):
                answer = http.post("/console/plans", json=asked)
                assert answer.status_code == 503 and "retry-after" in answer.headers, answer.text
            assert http.get("/console/plans").json()["rows"] == []
            plans.unlink()
            assert http.post("/console/plans", json=asked).status_code == 303
            [row] = http.get("/console/plans").json()["rows"]
            assert row["state"] == "planned"
        assert "Traceback" not in server.log()
