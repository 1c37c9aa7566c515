"""One HTTP request, and what came of it, whatever the other side does."""

import asyncio
import http.cookies
import socket
import ssl
import subprocess
import time
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import uvloop

import courier.delivery.connections
from courier import __version__
from courier.delivery.connections import ANSWER_BYTES_MAX
from courier.delivery.targets import Targets, networks
from courier.delivery.transport import HttpTransport, PushRequest, PushResult, Target
from tests import certificates
from tests.delivery import receiver as answers
from tests.delivery.receiver import MANY_BYTES, Receiver, closed_port

T = TypeVar("T")

BODY = b'{"order": 1}'
TIMEOUT_MS = 1_000
SOON_MS = 500
PAUSE_S = 0.05


def with_transport(use: Callable[[HttpTransport], Coroutine[Any, Any, T]]) -> T:
    """On the event loop that the server runs on."""

    async def main() -> T:
        transport = HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=10)
        try:
            return await use(transport)
        finally:
            await transport.close()

    return uvloop.run(main())


def send(
    *urls: str, body: bytes = BODY, timeout_ms: int = TIMEOUT_MS, pause_s: float = 0.0
) -> list[PushResult]:
    """One push after the other, over one transport.

    In a pause the rest of a lie may arrive, or the end of a connection: nothing tells when.
    """

    async def use(transport: HttpTransport) -> list[PushResult]:
        results = []
        for url in urls:
            push = PushRequest(Target(url, {"x-test": "1"}), body, {})
            results.append(await transport.send(push, timeout_ms=timeout_ms))
            await asyncio.sleep(pause_s)
        return results

    return with_transport(use)


def probe(*urls: str) -> list[PushResult]:
    async def use(transport: HttpTransport) -> list[PushResult]:
        return [await transport.get(url, timeout_ms=TIMEOUT_MS) for url in urls]

    return with_transport(use)


def test_a_push_arrives_byte_by_byte_as_it_was_given(receiver: Receiver) -> None:
    body = bytes(range(256)) * 1_000
    [result] = send(receiver.url("/hook?a=b%2Fc&d=%C3%BC"), body=body)
    assert result.ok
    [request] = receiver.received("/hook?a=b%2Fc&d=%C3%BC")
    assert request.method == "POST"
    assert request.body == body
    assert request.headers["content-length"] == str(len(body))
    assert request.headers["x-test"] == "1"
    assert request.headers["user-agent"] == f"Courier/{__version__}"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "transfer-encoding" not in request.headers


def test_an_empty_body_is_sent_with_its_length(receiver: Receiver) -> None:
    assert send(receiver.url("/empty"), body=b"")[0].ok
    [request] = receiver.received("/empty")
    assert (request.headers["content-length"], request.body) == ("0", b"")


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_two_hundreds_are_good(receiver: Receiver, code: int) -> None:
    receiver.on("/", answers.status(code))
    [result] = send(receiver.url("/"))
    assert (result.ok, result.status, result.error) == (True, code, "")


@pytest.mark.parametrize("code", [300, 301, 302, 304, 400, 401, 404, 410, 418, 429, 500, 503, 599])
def test_everything_else_is_not(receiver: Receiver, code: int) -> None:
    receiver.on("/", answers.status(code))
    [result] = send(receiver.url("/"))
    assert (result.ok, result.status) == (False, code)


def test_an_answer_to_wait_for_another_is_none(receiver: Receiver) -> None:
    """103 and 100 announce an answer; what counts is the one that follows."""

    async def early(peer: answers.Peer) -> None:
        await peer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await answers.status(500)(peer)

    receiver.on("/", early)
    assert send(receiver.url("/"))[0].status == 500


@pytest.mark.parametrize("value", ["120", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_what_a_receiver_asks_for_is_passed_on(receiver: Receiver, value: str) -> None:
    receiver.on("/", answers.retry_after(value))
    [result] = send(receiver.url("/"))
    assert (result.status, result.retry_after) == (503, value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "place", ["itself", "another path", "http://169.254.169.254/latest/meta-data/"]
)
def test_no_redirect_is_followed(receiver: Receiver, code: int, place: str) -> None:
    to = {"itself": receiver.url("/"), "another path": "/elsewhere"}.get(place, place)
    receiver.on("/", answers.redirect(to, code))
    assert [result.status for result in send(receiver.url("/"))] == [code]
    assert [result.status for result in probe(receiver.url("/"))] == [code]
    assert len(receiver.received("/")) == 2
    assert receiver.received("/elsewhere") == []


BAD: dict[str, answers.Answer] = {
    "reset": answers.reset,
    "close": answers.close,
    "too short": answers.too_short,
    "half then reset": answers.half_then_reset,
    "cut chunk": answers.cut_chunk,
    "garbage": answers.garbage,
    "endless head": answers.endless_head,
}
RAW = [
    b"",
    b"\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 -1 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"ICY 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    b"HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: nameless\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 10,
]


@pytest.mark.parametrize("how", BAD)
def test_an_answer_that_is_not_whole_or_none_at_all_is_a_failure(
    receiver: Receiver, how: str
) -> None:
    receiver.on("/", BAD[how])
    for [result] in (send(receiver.url("/")), probe(receiver.url("/"))):
        assert (result.ok, result.status) == (False, 0), result
        assert 0 < len(result.error) <= 500


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_whatever_is_answered_is_a_result_and_the_next_push_is_not_hurt(
    receiver: Receiver, raw: bytes
) -> None:
    async def answer(peer: answers.Peer) -> None:
        await peer.write(raw)
        await peer.close()

    receiver.on("/", answer, answers.status(204))
    first, second = send(*[receiver.url("/")] * 2, pause_s=PAUSE_S)
    assert not first.ok, first
    assert second.status == 204


def test_more_than_was_promised_is_no_answer_to_the_next_push(receiver: Receiver) -> None:
    """Else a receiver could acknowledge what it has never seen."""
    receiver.on("/", answers.too_long, answers.status(500))
    statuses = [result.status for result in send(*[receiver.url("/")] * 3, pause_s=PAUSE_S)]
    assert statuses[1:] == [500, 500]
    assert len(receiver.received("/")) == 3


def test_an_answer_that_ends_with_its_connection_is_whole(receiver: Receiver) -> None:
    receiver.on("/", answers.until_close)
    [result] = send(receiver.url("/"))
    assert (result.status, result.body) == (200, b"ok")


def test_a_receiver_that_hangs_is_left_after_the_timeout(receiver: Receiver) -> None:
    receiver.on("/", answers.hang)
    began_s = time.perf_counter()
    [result] = send(receiver.url("/"), timeout_ms=SOON_MS)
    assert SOON_MS / 1000 <= time.perf_counter() - began_s < 2 * SOON_MS / 1000
    assert (result.status, result.error) == (0, f"no whole answer within {SOON_MS} ms")
    assert SOON_MS <= result.duration_ms < 2 * SOON_MS
    receiver.wait_until("/", lambda received: received[0].answered_s is not None)


def test_an_answer_in_drops_has_no_more_time_than_any_other(receiver: Receiver) -> None:
    receiver.on("/", answers.drip(gap_s=0.05))
    began_s = time.perf_counter()
    [result] = send(receiver.url("/"), timeout_ms=SOON_MS)
    assert time.perf_counter() - began_s < 2 * SOON_MS / 1000
    assert (result.status, result.ok) == (0, False)


def test_an_answer_in_drops_is_good_if_it_is_whole_in_time(receiver: Receiver) -> None:
    receiver.on("/", answers.drip(gap_s=0.002, body=b"fine"))
    [result] = send(receiver.url("/"))
    assert (result.status, result.body) == (200, b"fine")


def test_no_more_than_64_kib_of_an_answer_are_read(receiver: Receiver) -> None:
    receiver.on("/", answers.large(MANY_BYTES))
    [result] = send(receiver.url("/"), timeout_ms=5_000)
    assert result.status == 200
    assert result.body == b"x" * ANSWER_BYTES_MAX
    assert ANSWER_BYTES_MAX == 64 << 10


def test_a_packed_answer_is_not_unpacked(receiver: Receiver) -> None:
    """A few bytes must not become gigabytes."""
    packed = b"\x1f\x8b\x08\x00"
    receiver.on("/", answers.status(200, packed, {"Content-Encoding": "gzip"}))
    [result] = send(receiver.url("/"))
    assert (result.status, result.body) == (200, packed)


def test_nobody_there_is_a_result() -> None:
    url = f"http://127.0.0.1:{closed_port()}/"
    for [result] in (send(url), probe(url)):
        assert result.status == 0
        assert result.error == f"connection refused by {url[7:-1]}"


def test_a_port_that_accepts_and_never_reads_is_left_after_the_timeout() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        results = send(*[url] * 2, body=b"x" * (1 << 20), timeout_ms=SOON_MS)
    assert [result.status for result in results] == [0, 0]


def test_cookies_are_not_kept(receiver: Receiver) -> None:
    cookie = http.cookies.SimpleCookie({"session": "secret"}).output(header="", sep="")
    receiver.on("/", answers.status(200, headers={"Set-Cookie": cookie.strip() + "; Path=/"}))
    assert all(result.ok for result in send(*[receiver.url("/")] * 2))
    assert all("cookie" not in request.headers for request in receiver.received("/"))


def test_proxies_and_credentials_of_the_environment_are_ignored(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login someone password secret\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        assert send(receiver.url("/"))[0].ok
        assert probe(receiver.url("/live"))[0].ok
        assert proxy.connections == 0
    for path in ("/", "/live"):
        assert "authorization" not in receiver.received(path)[0].headers


def test_a_connection_is_used_again(receiver: Receiver) -> None:
    assert all(result.ok for result in send(*[receiver.url("/")] * 20))
    assert receiver.connections == 1


def test_a_connection_that_was_closed_meanwhile_costs_nothing(receiver: Receiver) -> None:
    """The receiver closes an idle connection, as every server does after a while."""

    async def closing(peer: answers.Peer) -> None:
        await answers.OK(peer)
        await peer.close()

    receiver.on("/", closing)
    results = send(*[receiver.url("/")] * 5, pause_s=PAUSE_S)
    assert [result.status for result in results] == [200] * 5


def test_a_probe_is_a_get_without_a_body(receiver: Receiver) -> None:
    receiver.on("/live", answers.status(200, b"alive"))
    [result] = probe(receiver.url("/live"))
    assert (result.status, result.body) == (200, b"alive")
    [request] = receiver.received("/live")
    assert (request.method, request.body) == ("GET", b"")
    assert request.headers["user-agent"] == f"Courier/{__version__}"


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Receiver(tls=context) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        for [result] in (send(url), probe(url)):
            assert result.status == 0
            assert "certificate" in result.error.lower()
        assert receiver.received("/") == []


def test_a_plain_receiver_behind_an_https_url_is_a_failure(receiver: Receiver) -> None:
    [result] = send(f"https://127.0.0.1:{receiver.port}/")
    assert (result.status, bool(result.error)) == (0, True)


# Headers of all requests to a target, and those of one request alone.
in_both = pytest.mark.parametrize("common", [True, False], ids=["common", "own"])


@pytest.mark.parametrize(
    "headers",
    [{"x-bad": "a\r\nx-other: b"}, {"x-bad": "a\nb"}, {"x-bad\r\nx-other": "b"}, {"x bad": "b"}],
)
@in_both
def test_a_header_cannot_smuggle_in_another(
    receiver: Receiver, headers: dict[str, str], common: bool
) -> None:
    async def use(transport: HttpTransport) -> PushResult:
        return await transport.send(
            PushRequest(Target(receiver.url("/"), headers), BODY, {}), timeout_ms=TIMEOUT_MS
        )

    result = with_transport(use)
    for request in receiver.received("/"):
        assert "x-other" not in request.headers
    assert result.status in (0, 200)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection"])
@in_both
def test_headers_that_rule_the_connection_are_the_clients_own(
    receiver: Receiver, name: str, common: bool
) -> None:
    headers = {name: "chunked"}

    async def use(transport: HttpTransport) -> PushResult:
        target = Target(receiver.url("/"), headers if common else {})
        push = PushRequest(target, BODY, {} if common else headers)
        return await transport.send(push, timeout_ms=TIMEOUT_MS)

    assert with_transport(use).status == 0
    assert receiver.received("/") == []


def test_a_header_of_the_owners_takes_the_place_of_a_default(receiver: Receiver) -> None:
    async def use(transport: HttpTransport) -> PushResult:
        push = PushRequest(Target(receiver.url("/"), {"Accept": "text/plain"}), BODY, {})
        return await transport.send(push, timeout_ms=TIMEOUT_MS)

    assert with_transport(use).ok
    assert receiver.received("/")[0].headers["accept"] == "text/plain"


def test_a_user_in_the_operators_url_becomes_a_header(receiver: Receiver) -> None:
    async def use(transport: HttpTransport) -> PushResult:
        url = receiver.url("/").replace("://", "://me:s%40crt@")
        return await transport.send(
            PushRequest(Target(url, {}, trusted=True), BODY, {}), timeout_ms=TIMEOUT_MS
        )

    assert with_transport(use).ok
    [request] = receiver.received("/")
    assert request.headers["authorization"] == "Basic " + b64encode(b"me:s@crt").decode()
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 50_000,
    ],
    ids=["announcements", "chunk extension", "trailers"],
)
def test_what_is_not_the_body_of_an_answer_has_a_limit(receiver: Receiver, raw: bytes) -> None:
    async def answer(peer: answers.Peer) -> None:
        await peer.write(raw)
        await answers.hang(peer)

    receiver.on("/", answer)
    [result] = send(receiver.url("/"), timeout_ms=10_000)
    assert (result.status, "65536 bytes" in result.error) == (0, True), result


def test_open_connections_are_bounded_also_to_many_endpoints(receiver: Receiver) -> None:
    """Each spelling of the address is an endpoint of its own; the oldest idle one is closed."""
    spellings = ["127.0.0.1", "127.0.1", "127.1", "0x7f.1", "2130706433", "017700000001"]

    async def main() -> list[int]:
        transport = HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=2)
        statuses = []
        for host in spellings:
            push = PushRequest(Target(f"http://{host}:{receiver.port}/", {}), BODY, {})
            statuses.append((await transport.send(push, timeout_ms=TIMEOUT_MS)).status)
            await asyncio.to_thread(receiver.wait_for_open, 2)
        await transport.close()
        return statuses

    assert uvloop.run(main()) == [200] * len(spellings)
    assert receiver.connections == len(spellings)


def test_idle_connections_are_closed_after_a_while(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier.delivery.connections, "IDLE_S_MAX", 0.05)

    async def use(transport: HttpTransport) -> None:
        push = PushRequest(Target(receiver.url("/"), {}), BODY, {})
        for _ in range(2):
            assert (await transport.send(push, timeout_ms=TIMEOUT_MS)).ok
            await asyncio.to_thread(receiver.wait_for_open, 0)

    with_transport(use)
    assert receiver.connections == 2


def test_an_encrypted_receiver_that_is_vouched_for_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with Receiver(tls=context) as receiver:
        results = send(*[f"https://127.0.0.1:{receiver.port}/"] * 3, body=b"x" * 1_000_000)
        assert [result.status for result in results] == [200] * 3
        assert receiver.connections == 1


def test_a_probe_is_not_held_up_by_pushes_that_hang(receiver: Receiver) -> None:
    """Else listeners that are well would seem to be down because others are."""
    receiver.on("/hang", answers.hang)

    async def main() -> PushResult:
        transport = HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=1)
        push = PushRequest(Target(receiver.url("/hang"), {}), BODY, {})
        hanging = asyncio.create_task(transport.send(push, timeout_ms=TIMEOUT_MS))
        try:
            await asyncio.to_thread(receiver.wait, "/hang", 1)
            return await transport.get(receiver.url("/live"), timeout_ms=SOON_MS)
        finally:
            await hanging
            await transport.close()

    assert uvloop.run(main()).status == 200


@pytest.mark.parametrize("what", ["probe", "trial"])
def test_a_push_is_not_held_up_by_what_is_none_and_hangs(receiver: Receiver, what: str) -> None:
    """Else one tenant's probes and trials would use up the connections of others' pushes."""
    receiver.on("/hang", answers.hang)

    async def main() -> PushResult:
        transport = HttpTransport(Targets(networks("127.0.0.0/8")), connections_max=1)
        if what == "probe":
            asked = transport.get(receiver.url("/hang"), timeout_ms=TIMEOUT_MS)
        else:
            push = PushRequest(Target(receiver.url("/hang"), {}), BODY, {})
            asked = transport.send(push, timeout_ms=TIMEOUT_MS, trial=True)
        hanging = asyncio.create_task(asked)
        try:
            await asyncio.to_thread(receiver.wait, "/hang", 1)
            push = PushRequest(Target(receiver.url("/"), {}), BODY, {})
            return await transport.send(push, timeout_ms=SOON_MS)
        finally:
            await hanging
            await transport.close()

    assert uvloop.run(main()).status == 200


def test_an_answer_of_very_small_chunks_takes_no_more_memory_than_its_length() -> None:
    """And no receiver needs to end it: as many are held as pushes may be on their way."""
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"2\r\nxx\r\n" * 9_000

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    async def use(transport: HttpTransport) -> int:
        server = await asyncio.start_server(drip, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        push = PushRequest(Target(f"http://127.0.0.1:{port}/", {}), b"", {})
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            pushes = [transport.send(push, timeout_ms=SOON_MS) for _ in range(10)]
            results = await asyncio.gather(*pushes)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            server.close()
        assert {result.status for result in results} == {0}
        return (peak - before) // len(results)

    assert with_transport(use) < 150_000


EARLY = {
    "more may follow": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "nothing follows": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "too long": b"HTTP/1.1 413 Too Long\r\ncontent-length: 3\r\n\r\nno!",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    "more than promised": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc",
}


@pytest.mark.parametrize("answer", EARLY.values(), ids=EARLY)
def test_a_receiver_that_answers_before_it_reads_keeps_no_memory(answer: bytes) -> None:
    """It never reads the rest of the message, and never ends the connection."""
    size, pushes = 16 << 20, 4
    held = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append((reader, writer))
        await reader.readuntil(b"\r\n\r\n")
        cast(asyncio.ReadTransport, writer.transport).pause_reading()
        writer.write(answer)

    async def use(transport: HttpTransport) -> int:
        server = await asyncio.start_server(deaf, "127.0.0.1", limit=1 << 10)
        port = server.sockets[0].getsockname()[1]
        target = Target(f"http://127.0.0.1:{port}/", {})
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(pushes):
                # Not kept by a name of this function.
                result = await transport.send(
                    PushRequest(target, b"x" * size, {}), timeout_ms=5_000
                )
                assert result.status in (200, 204, 413)
                await asyncio.sleep(PAUSE_S)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for _, writer in held:
                writer.transport.abort()
            server.close()
        assert len(held) == pushes
        return after - before

    assert with_transport(use) < size
