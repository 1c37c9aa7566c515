"""Limits on connections, of one address and of all: nobody can use them up for others."""

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.discue import new_name
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


def poll(server: Server, tenant: dict[str, Any]) -> bytes:
    """A request that waits for a message of a new queue."""
    own = tenant["anypoint"]
    place = f"/organizations/{own['organization_id']}/environments/{own['environment_id']}"
    region = f"/mq/admin/api/v1{place}/regions/{own['region']}"
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        app = {"client_id": own["client_id"], "client_secret": own["client_secret"]}
        app["grant_type"] = "client_credentials"
        user = http.post("/accounts/login", json=own["user"]).json()["access_token"]
        authorized = {"Authorization": f"Bearer {user}"}
        path = f"{region}/destinations/queues/{new_name('polled')}"
        http.put(path, json={}, headers=authorized).raise_for_status()
        token = http.post("/api/v1/authorize", json=app).json()["access_token"]
    name = path.rpartition("/")[2]
    return (
        f"GET /api/v1{place}/destinations/{name}/messages?pollingTime=20000 HTTP/1.1\r\n"
        f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("begun", ["nothing", "a head", "a body", "a long poll"])
def test_connections_that_wait_give_way_when_all_are_taken(tmp_path: Path, begun: str) -> None:
    env = {"COURIER_CONNECTIONS_MAX": str(MANY), "COURIER_TRUSTED_PROXIES": "127.0.0.1/32"}
    with Server(tmp_path, env=env).start() as server, ExitStack() as stack:
        sent = {
            "nothing": b"",
            "a head": b"GET /health HTTP/1.1\r\nHost: x\r\n",
            "a body": b"POST /api/v1/authorize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
            "a long poll": poll(server, server.credentials),
        }[begun]
        crowd = []
        for _ in range(MANY):
            crowd.append(stack.enter_context(socket.create_connection(server.address(), WAIT_S)))
            crowd[-1].sendall(sent)
        time.sleep(0.5)  # until they are all there, and the last look for others is over
        known = Crowd(server, stack, encrypted=False)
        assert [known.status() for _ in range(MANY // 4)] == [200] * (MANY // 4)
        closed = sum(_closed(each) for each in crowd)
        assert 1 <= closed <= MANY // 2, "no more than had to, and of a tenant's polls half stay"


def _closed(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return link.recv(1_000) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_strangers_that_wait_give_way_before_a_caller_with_a_credential(tmp_path: Path) -> None:
    env = {"COURIER_CONNECTIONS_MAX": str(MANY)}
    with Server(tmp_path, env=env).start() as server, ExitStack() as stack, server.client() as http:
        assert http.get("/queues").status_code == 200
        crowd = Crowd(server, stack, encrypted=False)
        assert [crowd.status() for _ in range(3 * MANY)] == [200] * (3 * MANY)
        [idle] = http._transport._pool.connections  # type: ignore[attr-defined]
        assert not idle.has_expired(), "its connection was ended"
