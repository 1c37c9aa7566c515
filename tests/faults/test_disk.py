"""The disk is full: nothing more is promised, nothing promised is lost, and it passes."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.faults.account import status_of, wait_until
from tests.faults.connection import Connection
from tests.faults.disk import Disk, SmallDisk
from tests.server import Server

pytestmark = pytest.mark.slow
BIG = "x" * 100_000
PUBLISHES_MAX = 200


class Full(NamedTuple):
    """A server whose disk is full, and the queue it was filled through."""

    server: Server
    disk: Disk
    connection: Connection
    path: str
    stored: list[str]
    leases: list[str]


@pytest.fixture
def full(fillable: tuple[Server, Disk]) -> Iterator[Full]:
    server, disk = fillable
    with closing(Connection(server)) as connection:
        yield fill(server, disk, connection)


def fill(server: Server, disk: Disk, connection: Connection) -> Full:
    """Publish until the first refusal; what was accepted by then is in `stored`."""
    # Else a sweep makes room of it as soon as space runs out.
    connection.keep_journal()
    queue = connection.ask("POST", "/queues", {"queue_name": "full"})["queue_id"]
    path = f"/queues/{queue}"
    connection.ask("POST", f"{path}/consumers", {"type": "http_pull"})
    stored = [f"early-{number}" for number in range(10)]
    for body in stored:
        connection.ask("POST", f"{path}/messages", draft(body))
    asked = {"batch_size": 3, "visibility_timeout_ms": 600_000}
    pulled = connection.ask("POST", f"{path}/messages/pull", asked)["messages"]
    disk.fill(server)
    for number in range(PUBLISHES_MAX):
        status, _, _ = connection.try_ask("POST", f"{path}/messages", draft(f"{number}-{BIG}"))
        if status != 200:
            break
        stored.append(f"{number}-{BIG}")
    else:
        raise AssertionError("the disk never fills up")
    leases = [message["lease_id"] for message in pulled]
    return Full(server, disk, connection, path, stored, leases)


def draft(body: str) -> dict[str, Any]:
    return {"body": body, "content_type": "text"}


def drained(connection: Connection, path: str) -> list[str]:
    """All bodies, also those under a lease that somebody else settles."""
    bodies: list[str] = []
    while True:
        asked = {"batch_size": 100, "visibility_timeout_ms": 600_000}
        messages = connection.ask("POST", f"{path}/messages/pull", asked)["messages"]
        if not messages:
            return bodies
        bodies += [message["body"] for message in messages]
        acks = [{"lease_id": message["lease_id"]} for message in messages]
        connection.ask("POST", f"{path}/messages/ack", {"acks": acks})


def test_a_full_disk_refuses_what_is_new_and_what_is_there_is_read(full: Full) -> None:
    batch = {"messages": [draft(BIG), draft(BIG)]}
    for path, asked in (("/messages", draft(BIG)), ("/messages/batch", batch)):
        status, headers, answer = full.connection.try_ask("POST", full.path + path, asked)
        assert status == 503, answer
        assert 0 < int(headers["Retry-After"]) <= 60
        assert headers["Content-Type"].startswith("application/json")
        assert b'"success":false' in answer.replace(b" ", b"")
    wait_until(lambda: status_of(full.server, "/ready") == 503, "still ready")
    assert status_of(full.server, "/health") == 200
    token = f"Bearer {full.server.credentials['admin']['token']}"
    assert status_of(full.server, "/metrics", Authorization=token) == 200
    assert full.connection.ask("GET", full.path)["queue_name"] == "full"
    assert [queue["queue_name"] for queue in full.connection.ask("GET", "/queues")] == ["full"]
    metrics = full.connection.ask("GET", f"{full.path}/metrics")
    assert metrics["backlog_count"] == len(full.stored)
    assert full.connection.ask("POST", f"{full.path}/messages/peek", {})["messages"]
    published = [
        event["body"]
        for event in full.connection.journal(after=0, limit=10_000)
        if event["kind"] == "published"
    ]
    assert published == full.stored
    assert "Traceback" not in full.server.log()


def test_server_works_again_by_itself_once_there_is_room(full: Full) -> None:
    """No restart, and neither more nor less is there than was promised."""
    wait_until(lambda: status_of(full.server, "/ready") == 503, "still ready")
    pid = full.server.pid
    full.disk.free(full.server)
    wait_until(lambda: status_of(full.server, "/ready") == 200, "still not ready")
    assert full.server.pid == pid
    full.connection.ask("POST", f"{full.path}/messages", draft("late"))
    acks = [{"lease_id": lease} for lease in full.leases]
    settled = full.connection.ask("POST", f"{full.path}/messages/ack", {"acks": acks})
    assert settled["ackCount"] == len(acks)
    rest = full.stored[len(acks) :]
    assert sorted(drained(full.connection, full.path)) == sorted([*rest, "late"])


def test_nothing_promised_on_a_filling_disk_is_lost_with_the_process(full: Full) -> None:
    full.server.kill()
    if isinstance(full.disk, SmallDisk):
        full.disk.free(full.server)
    full.connection.close()
    full.server.start()
    acks = [{"lease_id": lease} for lease in full.leases]
    settled = full.connection.ask("POST", f"{full.path}/messages/ack", {"acks": acks})
    assert settled["ackCount"] == len(acks)
    assert sorted(drained(full.connection, full.path)) == sorted(full.stored[len(acks) :])


def test_settling_on_a_full_disk_is_done_or_refused_but_never_half(full: Full) -> None:
    """A small change may still find room; either answer must then be true."""
    path = f"{full.path}/messages/ack"
    acked = []
    for lease in full.leases:
        status, headers, answer = full.connection.try_ask(
            "POST", path, {"acks": [{"lease_id": lease}]}
        )
        assert status in (200, 503), answer
        if status == 200:
            acked.append(lease)
        else:
            assert headers["Retry-After"]
    full.disk.free(full.server)
    wait_until(lambda: status_of(full.server, "/ready") == 200, "still not ready")
    for lease in full.leases:
        settled = full.connection.ask("POST", path, {"acks": [{"lease_id": lease}]})
        assert settled["ackCount"] == (lease not in acked)
    metrics = full.connection.ask("GET", f"{full.path}/metrics")
    assert metrics["backlog_count"] == len(full.stored) - len(full.leases)
