"""Heads and bodies that two readers could understand differently, by the classes of llhttp's tests.

Each is followed by a request that must not be answered: if it were, the bad one was taken to end
somewhere else than another reader would say.
"""

import pytest

from tests.attack.peer import Account, Answer, Peer, accepted, refused
from tests.attack.target import Target

HOST = b"Host: 127.0.0.1\r\n"
BEHIND = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def get(*lines: bytes) -> bytes:
    return b"GET /health HTTP/1.1\r\n" + HOST + b"".join(lines) + b"\r\n"


def post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"POST /health HTTP/1.1\r\n" + HOST + b"".join(lines) + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
BAD = {
    # line ends
    "bare LF after the request line": b"GET /health HTTP/1.1\n" + HOST + b"\r\n",
    "bare CR after the request line": b"GET /health HTTP/1.1\r" + HOST + b"\r\n",
    "bare LF after a header": get(b"X: y\n"),
    "bare CR in a value": get(b"X: y\rZ: w\r\n"),
    "CR CR LF": get(b"X: y\r\r\n"),
    "bare LF at the end": b"GET /health HTTP/1.1\r\n" + HOST + b"\n",
    # headers
    "folded value": get(b"X: y\r\n z\r\n"),
    "folded value with a tab": get(b"X: y\r\n\tz\r\n"),
    "fold before the first header": b"GET /health HTTP/1.1\r\n " + HOST + b"\r\n",
    "space before the colon": get(b"X : y\r\n"),
    "tab before the colon": get(b"X\t: y\r\n"),
    "no colon": get(b"X\r\n"),
    "no name": get(b": y\r\n"),
    "brackets in a name": get(b"X(y): z\r\n"),
    "high byte in a name": get(b"X\xe9: z\r\n"),
    "NUL in a name": get(b"X\x00: z\r\n"),
    "NUL in a value": get(b"X: a\x00b\r\n"),
    "control byte in a value": get(b"X: a\x01b\r\n"),
    "DEL in a value": get(b"X: a\x7fb\r\n"),
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": get(b"Host: other\r\n"),
    "two hosts alike": get(HOST),
    "list of hosts": b"GET /health HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "host with a user": b"GET /health HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "host with a path": b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with a space": b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n",
    # lengths
    "two lengths that differ": post(b"Content-Length: 0\r\nContent-Length: 5\r\n", body=b"hello"),
    "two lengths that agree": post(b"Content-Length: 5\r\nContent-Length: 5\r\n", body=b"hello"),
    "list of lengths": post(b"Content-Length: 5, 5\r\n", body=b"hello"),
    "signed length": post(b"Content-Length: +5\r\n", body=b"hello"),
    "negative length": post(b"Content-Length: -5\r\n", body=b"hello"),
    "hexadecimal length": post(b"Content-Length: 0x5\r\n", body=b"hello"),
    "length with an underscore": post(b"Content-Length: 1_0\r\n", body=b"hellohello"),
    "length with a space inside": post(b"Content-Length: 1 0\r\n", body=b"hellohello"),
    "length with a vertical tab": post(b"Content-Length: \x0b5\r\n", body=b"hello"),
    "length beyond 64 bits": post(b"Content-Length: 18446744073709551621\r\n", body=b"hello"),
    "empty length": post(b"Content-Length:\r\n"),
    # transfer codings
    "length and chunks": post(b"Content-Length: 5\r\n", CHUNKED, body=b"0\r\n\r\n"),
    "chunks and length": post(CHUNKED, b"Content-Length: 5\r\n", body=b"0\r\n\r\n"),
    "chunked, then something else": post(
        b"Transfer-Encoding: chunked, gzip\r\n", body=b"0\r\n\r\n"
    ),
    "chunked twice in two lines": post(CHUNKED, b"Transfer-Encoding: gzip\r\n", body=b"0\r\n\r\n"),
    "coding that is not undone": post(b"Transfer-Encoding: gzip, chunked\r\n", body=b"0\r\n\r\n"),
    "the same in two lines": post(b"Transfer-Encoding: gzip\r\n", CHUNKED, body=b"0\r\n\r\n"),
    "the same with an upgrade": post(
        b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: gzip\r\n",
        CHUNKED,
        body=b"0\r\n\r\n",
    ),
    "nothing before chunked": post(b"Transfer-Encoding: ,chunked\r\n", body=b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n", body=b"hello"),
    "no coding": post(b"Transfer-Encoding:\r\nContent-Length: 5\r\n", body=b"hello"),
    "chunks of HTTP/1.0": b"POST /health HTTP/1.0\r\nConnection: keep-alive\r\n"
    + CHUNKED
    + b"\r\n0\r\n\r\n",
    "unknown coding": post(b"Transfer-Encoding: xchunked\r\n", body=b"0\r\n\r\n"),
    "quoted coding": post(b'Transfer-Encoding: "chunked"\r\n', body=b"0\r\n\r\n"),
    "coding after a control byte": post(b"Transfer-Encoding: \x0bchunked\r\n", body=b"0\r\n\r\n"),
    # chunks
    "chunk size that is no number": post(CHUNKED, body=b"zz\r\n\r\n0\r\n\r\n"),
    "negative chunk size": post(CHUNKED, body=b"-1\r\nx\r\n0\r\n\r\n"),
    "chunk size with 0x": post(CHUNKED, body=b"0x1\r\nx\r\n0\r\n\r\n"),
    "chunk size beyond 64 bits": post(CHUNKED, body=b"ffffffffffffffff1\r\nx\r\n0\r\n\r\n"),
    "chunk size with a space before": post(CHUNKED, body=b" 1\r\nx\r\n0\r\n\r\n"),
    "chunk size with a space behind": post(CHUNKED, body=b"1 \r\nx\r\n0\r\n\r\n"),
    "chunk size with a bare LF": post(CHUNKED, body=b"1\nx\r\n0\r\n\r\n"),
    "chunk longer than it says": post(CHUNKED, body=b"1\r\nxy\r\n0\r\n\r\n"),
    "chunk without its end": post(CHUNKED, body=b"1\r\nx0\r\n\r\n"),
    "chunk ending in a bare LF": post(CHUNKED, body=b"1\r\nx\n0\r\n\r\n"),
    "chunk extension with a bare LF": post(CHUNKED, body=b"1;a\nx\r\n0\r\n\r\n"),
    "chunk extension with a NUL": post(CHUNKED, body=b"1;a=\x00\r\nx\r\n0\r\n\r\n"),
    "trailer without a colon": post(CHUNKED, body=b"0\r\nX\r\n\r\n"),
    # request lines
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/0.9 by name": b"GET /health HTTP/0.9\r\n" + HOST + b"\r\n",
    "HTTP/1.2": b"GET /health HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another protocol": b"GET /health ICE/1.0\r\n" + HOST + b"\r\n",
    "version in small letters": b"GET /health http/1.1\r\n" + HOST + b"\r\n",
    "version with a word behind": b"GET /health HTTP/1.1 x\r\n" + HOST + b"\r\n",
    "method in small letters": b"get /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"BREW /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "no target": b"GET HTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the target": b"GET /hea lth HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the target": b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "control byte in the target": b"GET /\x07 HTTP/1.1\r\n" + HOST + b"\r\n",
    "authority as the target": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "authority for GET": b"GET 127.0.0.1:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment in the target": b"GET /health#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment in the query": b"GET /health?a#/b HTTP/1.1\r\n" + HOST + b"\r\n",
    "target of another scheme": b"GET ftp://127.0.0.1/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "target with a bad port": b"GET http://a:99999/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk as the target": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
}


def plain(answer: Answer | None) -> None:
    """A refusal of our own, in no vendor's shape, or no answer at all."""
    if answer is None:
        return
    assert answer.status == 400, answer
    assert set(answer.json()) == {"error"} and set(answer.json()["error"]) == {"code", "message"}
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_refused_and_nothing_behind_it_answered(account: Account, name: str) -> None:
    with Peer(account.server) as peer:
        peer.send(BAD[name] + BEHIND)
        answer = peer.answer()
        if answer is not None and answer.status == 401:
            answer = peer.answer()  # its head was good, and its body was not
        plain(answer)
        assert answer is None or peer.hung_up(), name


@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_refused_byte_by_byte_too(account: Account, name: str) -> None:
    with Peer(account.server) as peer:
        for byte in BAD[name] + BEHIND:
            if not peer.send(bytes([byte])):
                break
        answer = peer.answer()
        if answer is not None and answer.status == 401:
            answer = peer.answer()
        plain(answer)
        assert answer is None or peer.hung_up(), name


def test_bad_chunks_of_a_known_route_are_refused_in_its_sites_shape(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked"))
        peer.send(b'\r\n5\r\n{"bod\r\n')
        assert not peer.answered(within_s=0.2)
        peer.send(b"zz\r\n")
        refused(peer.answer(), 400)
        assert peer.hung_up()
    assert target.backlog() == 0


def test_trailers_are_thrown_away(target: Target) -> None:
    """Neither this request nor the next one on the connection gets a header from a trailer."""
    account = target.account
    head = account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked")
    body = b'a\r\n{"body":1}\r\n0\r\nAuthorization: Bearer other\r\nHost: other\r\n\r\n'
    stranger = f"GET {account.root}{target.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with Peer(account.server) as peer:
        peer.send(head + b"\r\n" + body)
        accepted(peer.answer())
        peer.send(
            head + b"\r\n" + body.replace(b"Bearer other", f"Bearer {account.token}".encode())
        )
        accepted(peer.answer())
        peer.send(stranger.encode() + b"\r\n")
        refused(peer.answer(), 400, code=9106)
    assert target.backlog() == 2


@pytest.mark.parametrize(
    "more",
    [
        b"X: " + b"a" * 200_000,
        b"X: y\r\n" * 40_000,
        b"".join(b"X%d: y\r\n" % n for n in range(20_000)),
    ],
    ids=["one long", "many alike", "many"],
)
def test_trailers_that_go_on_are_cut_off(target: Target, more: bytes) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked"))
        peer.send(b'\r\na\r\n{"body":1}\r\n0\r\n')
        for start in range(0, len(more), 10_000):
            if peer.answered(within_s=0.01) or not peer.send(more[start : start + 10_000]):
                break
        refused(peer.answer(), 400)
    assert target.backlog() == 0


def test_chunk_extensions_that_go_on_are_cut_off(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked"))
        peer.send(b'\r\na\r\n{"body":1}\r\n1;x=')
        for _ in range(20):
            if peer.answered(within_s=0.01) or not peer.send(b"y" * 10_000):
                break
        refused(peer.answer(), 400)
    assert target.backlog() == 0


def test_chunk_extensions_are_read_over(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked"))
        peer.send(b'\r\n5;name=value;other="x y"\r\n{"bod\r\n5\r\ny":1}\r\n0\r\n\r\n')
        accepted(peer.answer())
    assert target.backlog() == 1


def test_body_in_chunks_of_one_byte_is_read(target: Target) -> None:
    account = target.account
    body = b'{"body":"%s","content_type":"text"}' % (b"x" * 3_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", "Transfer-Encoding: chunked"))
        peer.send(b"\r\n" + chunks + b"0\r\n\r\n")
        accepted(peer.answer())
    assert target.pull()[0]["body"] == "x" * 3_000


def test_more_header_fields_than_allowed_are_refused_and_as_many_as_allowed_read(
    account: Account,
) -> None:
    for count, status in ((100, 200), (1_000, 431)):
        for name in ("X-Many-{}", "X-Same"):
            fields = [f"{name.format(number)}: {number}" for number in range(count)]
            assert account.ask("GET", "/queues", b"", *fields).status == status


def test_two_values_of_one_header_are_a_list(account: Account) -> None:
    """And so a second credential does not replace the first one."""
    answer = account.ask("GET", "/queues", b"", "Authorization: Bearer other")
    refused(answer, 400, 403)


def test_http_1_0_with_keep_alive_is_kept(target: Target) -> None:
    account = target.account
    request = (
        f"GET {account.root}{target.path} HTTP/1.0\r\nAuthorization: Bearer {account.token}\r\n"
        "Connection: keep-alive\r\n\r\n"
    )
    with Peer(account.server) as peer:
        for _ in range(2):
            peer.send(request.encode())
            answer = peer.answer()
            assert accepted(answer)["queue_id"] == target.id
            assert answer is not None and answer.headers["connection"] == "keep-alive"


def test_nothing_behind_a_last_request_is_answered(target: Target) -> None:
    account = target.account
    last = account.request("GET", target.path, b"", "Connection: close")
    with Peer(account.server) as peer:
        peer.send(last + BEHIND)
        accepted(peer.answer())
        assert peer.hung_up()


def test_refusal_reaches_a_client_that_is_still_sending(account: Account) -> None:
    """Closing at once would reset the connection, and the answer would be lost on its way."""
    for _ in range(5):
        with Peer(account.server) as peer:
            length = f"Content-Length: {64 << 20}"
            peer.send(account.head("POST", "/nowhere", length) + b"\r\n" + b"x" * (4 << 20))
            refused(peer.answer(), 404)
            assert peer.hung_up()


def test_body_that_was_not_asked_for_is_not_taken_for_a_request(target: Target) -> None:
    """Who waits for 100 Continue and is refused may send the body, or not."""
    account = target.account
    decoy = account.request("POST", f"{target.path}/messages", b'{"body":"decoy"}')
    head = account.head("POST", "/nowhere", f"Content-Length: {len(decoy)}", "Expect: 100-continue")
    with Peer(account.server) as peer:
        peer.send(head + b"\r\n")
        refused(peer.answer(), 404)
        peer.send(decoy)
        assert peer.hung_up()
    assert target.backlog() == 0


def test_request_that_asks_for_an_upgrade_is_answered_and_the_next_one_too(target: Target) -> None:
    account = target.account
    upgrade = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    with Peer(account.server) as peer:
        peer.send(account.head("GET", target.path, *upgrade) + b"\r\n" + BEHIND)
        assert accepted(peer.answer())["queue_id"] == target.id
        answer = peer.answer()
        assert answer is not None and answer.status == 200


JAVA = (
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Upgrade: h2c",
    "User-Agent: Java-http-client/21.0.5",
    "Content-Type: application/json",
)


@pytest.mark.parametrize("cut", ["whole", "after the head", "byte by byte"])
@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_body_of_a_request_that_asks_for_an_upgrade_is_read(
    target: Target, kind: str, cut: str
) -> None:
    """As Java's HttpClient sends every first request to a plain http address."""
    account, path = target.account, f"{target.path}/messages"
    body = b'{"body":"from Java"}'
    if kind == "length":
        head = account.head("POST", path, f"Content-Length: {len(body)}", *JAVA) + b"\r\n"
    else:
        head = account.head("POST", path, "Transfer-encoding: chunked", *JAVA) + b"\r\n"
        body = b"8\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (body[:8], len(body) - 8, body[8:])
    data = head + body + BEHIND
    parts = {
        "whole": [data],
        "after the head": [head, body + BEHIND],
        "byte by byte": [data[place : place + 1] for place in range(len(data))],
    }[cut]
    with Peer(account.server) as peer:
        for part in parts:
            peer.send(part)
        accepted(peer.answer())
        answer = peer.answer()
        assert answer is not None and answer.status == 200
    assert target.backlog() == 1


@pytest.mark.parametrize(
    "framing",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: chunked, identity",),
    ],
)
def test_upgrade_makes_no_bad_framing_good(target: Target, framing: tuple[str, ...]) -> None:
    account = target.account
    decoy = account.request("POST", f"{target.path}/messages", b'{"body":"decoy"}')
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{target.path}/messages", *framing, *JAVA) + b"\r\n")
        peer.send(decoy)
        answer = peer.answer()
        assert answer is not None and answer.status == 400
        assert peer.hung_up()
    assert target.backlog() == 0


def test_connect_has_no_body(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("CONNECT", "127.0.0.1:1", "Content-Length: 5") + b"\r\nhello")
        answer = peer.answer()
        assert answer is not None and answer.status == 400
        assert peer.hung_up()
