"""Requests that bend HTTP, and bytes that were never meant to be HTTP."""

import random

import pytest

from tests.attack.peer import Account, Peer, accepted, turned_away
from tests.attack.target import Target

# What is nearly HTTP is in test_heads.py.
GARBAGE = [
    b"\r\n\r\n\r\n\r\n",
    b"\x00" * 200 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"EHLO example.org\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"AMQP\x00\x00\x09\x01",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_what_is_not_http_gets_a_refusal_or_a_closed_connection(
    account: Account, garbage: bytes
) -> None:
    with Peer(account.server) as peer:
        peer.send(garbage)
        # Some of it might go on to become HTTP; a line that cannot settles it.
        peer.send(b"\r\n\x00\r\n\r\n")
        turned_away(peer.answer())


def test_random_bytes_get_a_refusal_or_a_closed_connection(account: Account) -> None:
    chance = random.Random(11)
    for _ in range(60):
        with Peer(account.server) as peer:
            peer.send(chance.randbytes(chance.randint(1, 3_000)))
            peer.send(b"\r\n\x00\r\n\r\n")
            turned_away(peer.answer())


def test_request_with_random_bytes_changed_never_breaks_the_server(target: Target) -> None:
    account = target.account
    chance = random.Random(13)
    whole = account.request("POST", f"{target.path}/messages", b'{"body":{"a":[1,"b"]}}')
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with Peer(account.server) as peer:
            peer.send(bytes(changed))
            if peer.answered(within_s=0.05):
                answer = peer.answer()
                assert answer is None or answer.status < 500, (answer, bytes(changed))


@pytest.mark.parametrize("method", ["BREW", "PROPFIND", "TRACE"])
def test_method_nobody_knows_is_turned_away(target: Target, method: str) -> None:
    account = target.account
    secret = "X-Secret: do not echo"
    with Peer(account.server) as peer:
        peer.send(account.request(method, target.path, b"", secret))
        answer = peer.answer()
        turned_away(answer)
        assert answer is None or b"do not echo" not in answer.body


def test_head_has_no_body_and_keeps_the_connection_in_step(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.request("HEAD", target.path) + account.request("GET", target.path))
        first = peer.answer(head=True)
        assert first is not None and first.status in (200, 405)
        assert accepted(peer.answer())["queue_id"] == target.id


def test_http_1_0_is_answered_and_closed(target: Target) -> None:
    account = target.account
    request = f"GET {account.root}{target.path} HTTP/1.0\r\nAuthorization: Bearer {account.token}"
    with Peer(account.server) as peer:
        peer.send(request.encode() + b"\r\n\r\n")
        assert accepted(peer.answer())["queue_id"] == target.id
        assert peer.hung_up()


def test_connection_is_closed_when_asked(target: Target) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.request("GET", target.path, b"", "Connection: close"))
        accepted(peer.answer())
        assert peer.hung_up()


@pytest.mark.parametrize(
    "path",
    [
        *("//", "//client", "//client/v4", "//client/v4/", "//client/v4/accounts"),
        *("//client/v4/user", "//%2e%2e/%2e%2e/etc/passwd", "//../../etc/passwd"),
        *("//client/v4/../v4/user/tokens/verify", "//client%2Fv4%2Fuser", "//%00", "//%ff", "//%"),
        *("//metrics/../health", "//credentials.json", "//journal/..%2f..%2fcredentials.json"),
        "//health%0d%0aX-Injected:%20yes",
    ],
)
def test_path_off_the_map_gets_an_answer(account: Account, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = account.ask(method, path)
        assert answer.status < 500, answer
        assert "x-injected" not in answer.headers
        assert b"root:" not in answer.body and account.token.encode() not in answer.body


@pytest.mark.parametrize("form", ["http://elsewhere.example", "http://127.0.0.1"])
def test_absolute_target_is_answered_here(target: Target, form: str) -> None:
    """Proxies write the whole URL; it must not be fetched, nor confuse the router."""
    account = target.account
    head = account.head("GET", target.path).replace(b"GET /", b"GET %s/" % form.encode(), 1)
    with Peer(account.server) as peer:
        peer.send(head + b"\r\n")
        answer = peer.answer()
        assert answer is not None and answer.status in (200, 400, 404), answer


@pytest.mark.parametrize(
    "header",
    [
        *("Accept: application/nothing", "Accept: \xff\xfe", "Accept-Encoding: gzip;q=nonsense"),
        *("Range: bytes=0-1", "If-None-Match: *", "X-Forwarded-For: ' or 1=1"),
        *("X-HTTP-Method-Override: DELETE", "Host: other", "Cookie: =;;="),
        *("Expect: the-unexpected", "Content-Type: \xe4\xf6\xfc", "Date: yesterday"),
        *("Connection: \xff", "TE: trailers", "Idempotency-Key: " + "k" * 10_000),
        *("Idempotency-Key: \xe4\xf6\xfc", "Idempotency-Key:"),
    ],
    ids=lambda header: header[:30],
)
def test_header_that_makes_no_sense_does_no_harm(target: Target, header: str) -> None:
    account = target.account
    answer = account.ask("POST", f"{target.path}/messages", b'{"body":1}', header)
    assert answer.status == 200 or 400 <= answer.status < 500, answer
    assert target.backlog() == (answer.status == 200)
    assert accepted(account.ask("GET", target.path))["queue_id"] == target.id
