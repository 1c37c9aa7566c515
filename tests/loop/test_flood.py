"""New connections, however many arrive at once, do not keep the server from answering others."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.peer import Account, Peer
from tests.loop.pulse import Pulse
from tests.server import Server

pytestmark = pytest.mark.quiet

CONNECTIONS = 1_000
WAIT_MS_MAX = 250
# A busy machine is slow now and then, a server that cannot cope is so every time.
TRIES = 3
_ASKS = {
    "silent": b"",
    "half a head": b"GET /health HTTP/1.1\r\nhost: ",
    "asking": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "asking for much": b"GET /client/v4/openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
}

HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_LONG_ASKS = {
    "short requests": b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n" * 500,
    "header lines": (b"GET /x HTTP/1.1\r\nhost: x\r\n" + b"a:b\r\n" * 120 + b"\r\n") * 20,
}
# As many escapes as a body may have that anybody may send: a sign-in, of which the last byte is
# missing.
SIGN_IN = b"username=a&password=" + "é%41".encode() * 800
# Nearly as long as bodies that may be decoded at once, and refused for the key at its end.
COSTLY = b'{"messages":[],%s,"messages":[]' % b",".join(b'"k%05d":0' % n for n in range(5_900))
CROWD = 100
# Requests one after the other that are answered while what came before is handled.
FOLLOWING = 5
SENDERS = 8
BODY_BYTES = 4 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("flooded")).start() as server:
        yield server


@pytest.mark.parametrize("ask", _ASKS)
def test_a_flood_of_connections_holds_up_nobody(server: Server, tmp_path: Path, ask: str) -> None:
    waits = []
    with Pulse(server.port, tmp_path / "pulse") as pulse:
        for _ in range(TRIES):
            began_s = time.monotonic()
            # Of a process of its own, so that the two do not hold up each other.
            flood = [sys.executable, "-m", "tests.loop.test_flood", str(server.port), ask]
            subprocess.run(flood, check=True, timeout=120)
            waits.append(pulse.longest_ms(began_s, time.monotonic()))
            if waits[-1] <= WAIT_MS_MAX:
                break
    assert min(waits) <= WAIT_MS_MAX, f"others waited {waits} ms"


@pytest.mark.parametrize("ask", _LONG_ASKS)
def test_what_strangers_send_at_one_moment_is_read_in_turns(server: Server, ask: str) -> None:
    assert _cpu_before_an_answer(server, [_LONG_ASKS[ask]] * CONNECTIONS) <= WAIT_MS_MAX


def test_sign_ins_that_end_at_one_moment_hold_up_nobody(server: Server) -> None:
    head = b"POST /accounts/login HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    begun = head % (len(SIGN_IN) + 1) + SIGN_IN
    assert _cpu_before_an_answer(server, [b"a"] * CONNECTIONS, begun) <= WAIT_MS_MAX


def test_bodies_that_end_at_one_moment_are_decoded_in_turns(server: Server) -> None:
    with server.client() as client:
        made = client.post("/queues", json={"queue_name": "ending"}).json()
    path = f"/queues/{made['result']['queue_id']}/messages/batch"
    head = Account(server).head("POST", path, f"Content-Length: {len(COSTLY) + 1}")
    waited_ms = _cpu_before_an_answer(server, [b"}"] * CROWD, head + b"\r\n" + COSTLY)
    assert waited_ms <= WAIT_MS_MAX, waited_ms


def test_bodies_in_small_chunks_are_read_in_turns(server: Server) -> None:
    """As much of each as the kernel takes, and all of it there at one moment."""
    with server.client() as client:
        made = client.post("/queues", json={"queue_name": "chunks"}).json()
    target = f"/queues/{made['result']['queue_id']}/messages/batch"
    account = Account(server)
    head = account.head("POST", target, "Transfer-Encoding: chunked")
    body = b"\r\n" + b"3\r\n   \r\n" * (BODY_BYTES // 3)
    assert _cpu_before_an_answer(server, [head + body] * SENDERS) <= WAIT_MS_MAX


def _cpu_before_an_answer(server: Server, sent: list[bytes], begun: bytes = b"") -> int:
    """How many ms the server works until it answers a request that came last of all; or one of
    those that follow, if that is more.

    It does not run while all that is sent, so that no machine is too busy to send it in time.
    `begun`: what it has read of each before.
    """
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in sent]
        last = stack.enter_context(Peer(server))
        for peer in (*peers, last):  # so that all of them have been accepted
            peer.send(HEALTH)
            assert peer.answer() is not None
        for peer in peers if begun else ():
            peer.send(begun)
        _rest(server)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            for peer, data in zip(peers, sent, strict=True):
                peer.send_what_is_taken_at_once(data)
            last.send(HEALTH)
            before = _cpu_ms(server)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        waits = []
        for _ in range(FOLLOWING if begun else 1):
            assert last.answer() is not None
            now = _cpu_ms(server)
            waits.append(now - before)
            before = now
            last.send(HEALTH)
        return max(waits)


def _rest(server: Server) -> None:
    """Wait until it has nothing to do."""
    worked_ms = -1
    while (now_ms := _cpu_ms(server)) != worked_ms:
        worked_ms = now_ms
        time.sleep(0.5)


def _cpu_ms(server: Server) -> int:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 // os.sysconf("SC_CLK_TCK")


def flood(port: int, ask: bytes) -> None:
    """Connect all at once, send all at once."""
    with ExitStack() as stack:
        links = [stack.enter_context(socket.socket()) for _ in range(CONNECTIONS)]
        for link in links:
            link.setblocking(False)
            link.connect_ex(("127.0.0.1", port))
        for link in links:
            link.settimeout(30)
            link.sendall(ask)
        time.sleep(0.5)


if __name__ == "__main__":
    flood(int(sys.argv[1]), _ASKS[sys.argv[2]])
