"""What a stranger sends, and never finishes or never reads, does not fill the server's memory."""

import asyncio
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from courier.clock import SystemClock
from courier.core.types import BROKER, Draft
from courier.store.embedded import EmbeddedStore
from tests.attack.peer import Account, Client, Peer
from tests.attack.target import aim, no_traceback
from tests.server import Server

pytestmark = pytest.mark.slow

MIB = 1 << 20
SENT_BYTES = 120_000_000
HELD_BYTES_MAX = 48_000_000
GROWTH_BYTES_MAX = 64_000_000
LONG_MESSAGES = 20
LONG_BYTES = 10 * MIB
HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST /client/v4/accounts/x/queues HTTP/1.1\r\n" + HOST
LOGIN = b"POST /accounts/login HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"

# Made once: it takes longer than a request.
UNVERIFIED = ssl._create_unverified_context()

# Each yields what one connection after the other sends.
Shape = Callable[[], Iterator[bytes]]


def repeated(piece: Callable[[int], bytes]) -> Shape:
    def shape() -> Iterator[bytes]:
        sent = number = 0
        while sent < SENT_BYTES:
            yield (data := piece(number))
            sent += len(data)
            number += 1

    return shape


def chunked(rest: bytes) -> bytes:
    return POST + b"Transfer-Encoding: chunked\r\n\r\n" + rest


def path(number: int) -> bytes:
    return b"GET /%d%s HTTP/1.1\r\n%s\r\n" % (number, b"p" * 60_000, HOST)


def query(number: int) -> bytes:
    return b"GET /v1/queues?%d=%s HTTP/1.1\r\n%s\r\n" % (number, b"q" * 60_000, HOST)


SHAPES: dict[str, Shape] = {
    "heads that do not end": repeated(lambda _: GET + b"X: " + b"h" * 60_000),
    "heads of many lines": repeated(
        lambda _: GET + b"".join(b"a%d:b\r\n" % n for n in range(125)) + b"X: " + b"h" * 20_000
    ),
    "targets that do not end": repeated(lambda _: b"GET /" + b"u" * 60_000),
    "paths": repeated(path),
    "queries": repeated(query),
    "hosts": repeated(
        lambda n: b"GET /api/v1/x HTTP/1.1\r\nHost: %d%s\r\n\r\n" % (n, b"h" * 60_000)
    ),
    "credentials": repeated(
        lambda n: GET + b"Authorization: Bearer %d%s\r\n\r\n" % (n, b"c" * 60_000)
    ),
    "addresses": repeated(
        lambda n: GET + b"X-API-KEY: %d\r\nX-Forwarded-For: %s\r\n\r\n" % (n, b"1.1.1.1, " * 6_000)
    ),
    "one long trailer": repeated(lambda _: chunked(b"0\r\nX: " + b"t" * 200_000)),
    "many trailers": repeated(lambda _: chunked(b"0\r\n" + b"X: t\r\n" * 40_000)),
    "chunk extensions": repeated(lambda _: chunked(b"1;x=" + b"e" * 200_000)),
    "bodies without a key": repeated(
        lambda _: POST + b"Content-Length: 4000000\r\n\r\n" + b"b" * 1_000_000
    ),
    "short bodies without a key": repeated(
        lambda _: POST + b"Content-Length: 60000\r\n\r\n" + b"b" * 59_000
    ),
    "chunks without a key": repeated(lambda _: chunked(b"2\r\nxx\r\n" * 30_000)),
    "bodies of a sign-in": repeated(
        lambda _: LOGIN + b"Content-Length: 60000\r\n\r\n" + b"b" * 59_000
    ),
    "chunks of a sign-in": repeated(
        lambda _: LOGIN + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 10_000
    ),
    "pipelined, answers not read": repeated(lambda _: (GET + b"\r\n") * 5_000),
    "pipelined documents, not read": repeated(
        # Each is answered with a thousand times as much.
        lambda _: b"GET /client/v4/openapi.json HTTP/1.1\r\n%s\r\n" % HOST * 1_000
    ),
    "pipelined behind a sign-in": repeated(
        lambda _: LOGIN + b"Content-Length: 10\r\n\r\n" + (GET + b"a:b\r\n" * 100 + b"\r\n") * 300
    ),
    "long heads of short bodies": repeated(
        lambda n: LOGIN + b"X: %d%s\r\nContent-Length: 9\r\n\r\n{" % (n, b"h" * 60_000)
    ),
    "many lines before short chunks": repeated(
        lambda _: (
            LOGIN
            + b"".join(b"a%d:%s\r\n" % (n, b"h" * 480) for n in range(120))
            + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{"
        )
    ),
    "empty lines": repeated(lambda _: b"\r\n" * 100_000),
}


def resident_bytes(server: Server) -> int:
    with open(f"/proc/{server.pid}/statm") as file:
        return int(file.read().split()[1]) * 4_096


def assert_healthy(server: Server) -> None:
    with httpx.Client(trust_env=False, verify=UNVERIFIED, timeout=180) as client:
        answer = client.get(f"{server.url}/health")
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("besieged")).start() as server:
        # What it loads for its first requests is not what is measured.
        with server.client() as client:
            assert client.get("/queues").status_code == 200
        for path in ("/client/v4/openapi.json", "/health", "/nowhere"):
            httpx.get(server.url + path, trust_env=False, verify=False)
        yield server
        no_traceback(server)


@pytest.mark.parametrize("name", SHAPES)
def test_stranger_cannot_fill_the_memory_with(besieged: Server, name: str) -> None:
    """Every connection stays open as long as the server lets it, and reads nothing.

    Others who come meanwhile are answered.
    """
    before = peak = resident_bytes(besieged)
    with ExitStack() as stack:
        for number, data in enumerate(SHAPES[name]()):
            peer = stack.enter_context(Peer(besieged))
            peer.send_what_is_taken(data)
            if number % 20 == 0:
                peak = max(peak, resident_bytes(besieged))
            if number % 200 == 0:
                assert_healthy(besieged)
        # Once this is answered, so is most of what came before it.
        assert_healthy(besieged)
        peak = max(peak, resident_bytes(besieged))
    assert peak - before < HELD_BYTES_MAX, f"{(peak - before) // 1_000_000} MB more"


def test_requests_that_never_end_give_way_to_later_ones(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """More than may be held for strangers: the oldest are refused, later ones are served."""
    data = GET + b"X: " + b"h" * 40_000
    with Server(tmp_path_factory.mktemp("pressed")).start() as server, ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(2 * (24 << 20) // len(data))]
        for peer in peers:
            peer.send(data)
        assert_healthy(server)
        answer = peers[0].answer()
        assert answer is not None and answer.status == 503
        assert not peers[-1].answered(within_s=0)
        peers[-1].send(b"\r\n\r\n")
        answer = peers[-1].answer()
        assert answer is not None and answer.status == 404


@pytest.mark.parametrize("kind", ["plain", "half a handshake", "encrypted"])
def test_stranger_cannot_fill_the_memory_with_connections(
    tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    directory = tmp_path_factory.mktemp("crowded")
    with Server(directory, encrypted=kind != "plain").start() as server, ExitStack() as stack:
        before = peak = resident_bytes(server)
        for number in range(1_500 if kind == "encrypted" else 4_000):
            with suppress(OSError):
                peer = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                stack.callback(peer.close)
                if kind == "encrypted":
                    peer = UNVERIFIED.wrap_socket(peer)
                    stack.callback(peer.close)
                peer.sendall(GET[: -len(HOST)] if kind != "half a handshake" else b"\x16\x03\x01")
            if number % 20 == 0:
                peak = max(peak, resident_bytes(server))
        peak = max(peak, resident_bytes(server))
        assert peak - before < GROWTH_BYTES_MAX, f"{(peak - before) // 1_000_000} MB more"


def test_bodies_in_flight_are_bounded_and_small_ones_still_served(
    tmp_path_factory: pytest.TempPathFactory, queue_name: str
) -> None:
    """Beyond the bound, 503 with Retry-After, before the body is read."""
    directory = tmp_path_factory.mktemp("bounded")
    with Server(directory, env={"COURIER_BODIES_BYTES_MAX": "16MiB"}).start() as server:
        target = aim(Account(server), queue_name)
        head = target.account.head(
            "POST", f"{target.path}/messages/batch", f"Content-Length: {4 * MIB}"
        )
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(server)) for _ in range(6)]
            for peer in peers:
                peer.send(head + b"\r\n" + b" " * 100_000)
            time.sleep(0.3)
            turned = [peer for peer in peers if peer.answered(within_s=0)]
            assert len(turned) == 3, "three quarters of 16 MiB are three bodies of 4 MiB"
            for peer in turned:
                answer = peer.answer()
                assert answer is not None and answer.status == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.json()["errors"][0]["code"] == 15000
            assert target.post("/messages", b'{"body":1}').status == 200
            for peer in peers:
                if peer not in turned:
                    peer.send(b" " * (4 * MIB - 100_000))
                    answer = peer.answer()
                    assert answer is not None and answer.status == 400
        # What was held has been given back.
        with Peer(server) as peer:
            peer.send(head + b"\r\n" + b" " * (4 * MIB))
            answer = peer.answer()
            assert answer is not None and answer.status == 400


def test_messages_on_their_way_to_clients_are_bounded(
    tmp_path_factory: pytest.TempPathFactory, queue_name: str
) -> None:
    """However many pull and do not read; what is longer than small waits for its turn."""
    directory = tmp_path_factory.mktemp("answering")
    server = Server(directory, env={"COURIER_ANSWERS_BYTES_MAX": "32MiB"}).start()
    target = aim(Account(server), queue_name)
    server.stop()
    asyncio.run(_fill(server, target.id))
    with server.start():
        target = target._replace(account=Account(server))
        ask = target.account.request("POST", f"{target.path}/messages/pull", b'{"batch_size":100}')
        before = resident_bytes(server)
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(server)) for _ in range(LONG_MESSAGES)]
            for peer in peers:
                peer.send(ask)
            time.sleep(3)
            peak = resident_bytes(server)
            # Each longer than 10 MiB in memory, and 60 MiB on the wire.
            answers = [peer.answer(head=True) for peer in peers]
            statuses = [answer.status for answer in answers if answer]
            assert (statuses.count(200), statuses.count(503)) == (3, len(peers) - 3)
            refused = [each.headers for each in answers if each and each.status == 503]
            assert {headers["retry-after"] for headers in refused} == {"1"}
            assert target.post("/messages", b'{"body":1}').status == 200
        assert peak - before < 2 * GROWTH_BYTES_MAX, f"{(peak - before) // 1_000_000} MB more"
        # Those who left hold nothing any more, as soon as that is noticed.
        time.sleep(1)
        with Peer(server) as peer:
            peer.send(ask)
            answer = peer.answer()
            assert answer is not None and answer.status == 200
            [message] = answer.json()["result"]["messages"]
            assert message["body"] == "\x01" * LONG_BYTES


def test_what_callers_do_not_read_is_bounded(
    tmp_path_factory: pytest.TempPathFactory, queue_name: str
) -> None:
    """Also where it is no message: those who have read nothing for the longest give way."""
    directory = tmp_path_factory.mktemp("unread")
    with Server(directory, env={"COURIER_ANSWERS_BYTES_MAX": "16MiB"}).start() as server:
        target = aim(Account(server), queue_name)
        batch = json.dumps({"messages": [{"body": "x" * 100}] * 100}).encode()
        for _ in range(100):
            assert target.post("/messages/batch", batch).status == 200
            assert target.post("/messages/pull", b'{"batch_size":100}').status == 200
        admin = Client(server, "", server.credentials["admin"]["token"])
        page = admin.head("GET", "/journal?limit=50000&kinds=leased") + b"\r\n"
        assert admin.ask("GET", "/journal?limit=50000&kinds=leased").status == 200
        before = peak = resident_bytes(server)
        with ExitStack() as stack:
            for _ in range(120):
                link = stack.enter_context(socket.socket())
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
                link.connect(("127.0.0.1", server.port))
                link.sendall(page)
            for _ in range(50):
                time.sleep(0.1)
                peak = max(peak, resident_bytes(server))
            answer = admin.ask("GET", "/journal?limit=50000&kinds=leased")
            assert answer.status == 200 and len(answer.body) > 2 * MIB
        assert peak - before < 2 * GROWTH_BYTES_MAX, f"{(peak - before) // 1_000_000} MB more"


async def _fill(server: Server, queue: str) -> None:
    store = await EmbeddedStore.open(server.data / "courier.db")
    now_ms = SystemClock().now_ms()
    for _ in range(LONG_MESSAGES):
        batch = [(queue, [Draft(b"\x01" * LONG_BYTES, "text")])]
        await store.publish(batch, actor=BROKER, now_ms=now_ms)
    await store.close()


def test_chunked_bodies_in_flight_are_bounded_as_they_grow(
    tmp_path_factory: pytest.TempPathFactory, queue_name: str
) -> None:
    directory = tmp_path_factory.mktemp("growing")
    with Server(directory, env={"COURIER_BODIES_BYTES_MAX": "4MiB"}).start() as server:
        target = aim(Account(server), queue_name)
        head = target.account.head(
            "POST", f"{target.path}/messages/batch", "Transfer-Encoding: chunked"
        )
        chunk = b"%x\r\n%s\r\n" % (50_000, b" " * 50_000)
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(server)) for _ in range(4)]
            for peer in peers:
                peer.send(head + b"\r\n" + chunk * 14)
            time.sleep(0.5)
            # What follows is there for all four at the same moment.
            os.kill(server.pid, signal.SIGSTOP)
            for peer in peers:
                peer.send(chunk * 5)
            os.kill(server.pid, signal.SIGCONT)
            time.sleep(0.5)
            turned = [peer for peer in peers if peer.answered(within_s=0)]
            assert len(turned) == 1, "three bodies of 950 kB are less than three quarters of 4 MiB"
            answer = turned[0].answer()
            assert answer is not None and answer.status == 503
            assert target.post("/messages", b'{"body":1}').status == 200
