"""One address has a limit on its connections, unless it is a trusted proxy."""

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.server import Server

MANY = 20
ASK = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
WAIT_S = 10.0


class Crowd:
    """Open connections of one or two addresses of this machine."""

    def __init__(self, server: Server, stack: ExitStack, *, encrypted: bool) -> None:
        self._server = server
        self._stack = stack
        self._trusting = ssl._create_unverified_context() if encrypted else None
        self.open: list[socket.socket] = []

    def status(self, address: str = "127.0.0.1") -> int:
        """That of /health on another connection, which stays open; 0 where it is closed."""
        try:
            link = socket.create_connection(
                ("127.0.0.1", self._server.port), WAIT_S, source_address=(address, 0)
            )
            self._stack.callback(link.close)
            if self._trusting is not None:
                link = self._trusting.wrap_socket(link)
                self._stack.callback(link.close)
            self.open.append(link)
            link.sendall(ASK)
            answer = link.recv(4_096)
        except (OSError, ssl.SSLError):
            return 0
        return int(answer.split()[1]) if answer else 0


def eventually(check: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_one_address_has_a_limit_of_its_own(tmp_path: Path, encrypted: bool) -> None:
    env = {"COURIER_CONNECTIONS_PER_ADDRESS_MAX": str(MANY)}
    with Server(tmp_path, env=env, encrypted=encrypted).start() as server, ExitStack() as stack:
        crowd = Crowd(server, stack, encrypted=encrypted)
        # A connection that asked whether the server is up may not be closed yet.
        eventually(lambda: crowd.status() == 200)
        while (status := crowd.status()) == 200:
            assert len(crowd.open) <= MANY
        assert status == (0 if encrypted else 503)
        assert crowd.status("127.0.0.2") == 200, "another address has a count of its own"
        for link in crowd.open:
            link.close()
        crowd.open.clear()
        eventually(lambda: crowd.status() == 200)


def test_a_trusted_proxy_has_no_limit_of_its_own(tmp_path: Path) -> None:
    env = {
        "COURIER_CONNECTIONS_PER_ADDRESS_MAX": str(MANY),
        "COURIER_TRUSTED_PROXIES": "127.0.0.1/32",
    }
    with Server(tmp_path, env=env).start() as server, ExitStack() as stack:
        crowd = Crowd(server, stack, encrypted=False)
        assert [crowd.status() for _ in range(2 * MANY)] == [200] * (2 * MANY)
