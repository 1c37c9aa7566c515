"""Too much of everything: bodies, headers, paths, queries."""

from collections.abc import Iterator

import pytest

from tests.attack.peer import Account, Peer, accepted, refused, turned_away
from tests.attack.target import Target

pytestmark = pytest.mark.slow


MIB = 1 << 20
REQUEST_BYTES_MAX = 4 * MIB
HEADER_BYTES_MAX = 64 << 10
PUSH = "/messages"


def chunks(total: int) -> Iterator[bytes]:
    """A JSON string that goes on and on, in chunks of 64 KiB."""
    piece = b"x" * (64 << 10)
    yield b'10\r\n{"body":"xxxxxxx\r\n'
    for _ in range(total // len(piece)):
        yield b"%x\r\n%s\r\n" % (len(piece), piece)


def test_body_of_unknown_length_is_cut_off_at_the_cap(target: Target) -> None:
    account = target.account
    sent = 0
    with Peer(account.server) as peer:
        peer.send(account.head("POST", target.path + PUSH, "Transfer-Encoding: chunked") + b"\r\n")
        for chunk in chunks(8 * REQUEST_BYTES_MAX):
            if peer.answered(within_s=0) or not peer.send(chunk):
                break
            sent += len(chunk)
        refused(peer.answer(), 413)
        assert peer.hung_up()
    # What the socket buffers hold comes on top of what the server has read.
    assert sent < 6 * REQUEST_BYTES_MAX
    assert target.backlog() == 0


def test_body_of_exactly_the_cap_is_read(target: Target) -> None:
    body = b'{"body":"small","content_type":"text"}'.ljust(REQUEST_BYTES_MAX)
    accepted(target.post(PUSH, body))
    assert target.backlog() == 1


def test_headers_under_the_cap_are_read(target: Target) -> None:
    long = "X-Long: " + "x" * (HEADER_BYTES_MAX - 2_000)
    accepted(target.account.ask("GET", target.path, b"", long))


@pytest.mark.parametrize(
    "headers",
    [
        ["X-Long: " + "x" * (HEADER_BYTES_MAX + 1)],
        [f"X-Many-{n}: {n}" for n in range(8_000)],
        ["X" * (HEADER_BYTES_MAX + 1) + ": long name"],
        ["Cookie: " + "a=b; " * 40_000],
    ],
    ids=["one long value", "many", "long name", "long cookie"],
)
def test_headers_over_the_cap_are_turned_away(target: Target, headers: list[str]) -> None:
    account = target.account
    with Peer(account.server) as peer:
        peer.send(account.head("GET", target.path, *headers) + b"\r\n")
        turned_away(peer.answer())
        assert peer.hung_up()


def test_headers_that_never_end_are_cut_off_at_the_cap(account: Account) -> None:
    sent = 0
    with Peer(account.server) as peer:
        peer.send(account.head("GET", "/queues"))
        while not peer.answered(within_s=0) and peer.send(b"X-More: and more\r\n" * 500):
            sent += 9_000
            assert sent < 64 * MIB, "the server still listens"
        turned_away(peer.answer())


@pytest.mark.parametrize(
    "path",
    [
        "/queues/" + "a" * 50_000,
        "/queues" + "/a" * 25_000,
        "/queues?name=" + "a" * 50_000,
        "/queues?" + "name=a&" * 7_000,
        "/queues?" + "&" * 50_000,
        "/queues" + "/" * 50_000,
        "/queues/" + "%2F" * 16_000,
    ],
    ids=lambda path: path[:16],
)
def test_long_path_or_query_gets_an_answer(account: Account, path: str) -> None:
    answer = account.ask("GET", path)
    assert answer.status in (200, 400, 404, 414)
    assert answer.headers["content-type"].startswith("application/json")


def test_path_over_the_header_cap_is_turned_away(account: Account) -> None:
    with Peer(account.server) as peer:
        peer.send(account.request("GET", "/queues/" + "a" * 2 * HEADER_BYTES_MAX))
        turned_away(peer.answer())
        assert peer.hung_up()
