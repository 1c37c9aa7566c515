"""Ten thousand connections that have asked once and now wait for their client."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server import Server

CONNECTIONS = 10_000
# All that the server takes up more, whichever way it is counted.
BYTES_MAX = 200 << 20
ASKED_AT_ONCE = 500
FILES = CONNECTIONS + 1_000
REQUEST = b"GET /health HTTP/1.1\r\nHost: courier\r\n\r\n"

pytestmark = pytest.mark.slow


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Server]:
    """Server and test may each hold that many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= FILES, "too few files may be open here"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    env = dict.fromkeys(
        ("COURIER_CONNECTIONS_MAX", "COURIER_CONNECTIONS_PER_ADDRESS_MAX"), str(FILES)
    )
    with Server(tmp_path, env=env).start() as server:
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def answered(connection: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(4_096)
        assert part, "the server has closed it"
        answer += part
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_ten_thousand_idle_connections_take_up_at_most_200_mb(roomy: Server) -> None:
    before = resident_bytes(roomy.pid)
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        while len(connections) < CONNECTIONS:
            fresh = [
                stack.enter_context(socket.create_connection(roomy.address(), timeout=30))
                for _ in range(ASKED_AT_ONCE)
            ]
            for connection in fresh:
                connection.sendall(REQUEST)
            for connection in fresh:
                answered(connection)
            connections += fresh
        taken = resident_bytes(roomy.pid) - before
        print(f"{taken / CONNECTIONS / 1024:.1f} KiB for each connection")
        assert taken < BYTES_MAX
        for connection in connections[:: CONNECTIONS // 50]:  # none of them was cut off
            connection.sendall(REQUEST)
            answered(connection)
