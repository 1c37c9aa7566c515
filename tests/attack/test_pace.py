"""Clients that take their time, on a server that does not wait for long."""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.attack.peer import Account, Peer, accepted, turned_away
from tests.attack.target import Target, aim
from tests.server import Server

pytestmark = pytest.mark.slow


CUT_SECONDS_MAX = 5.0
PROMPT_SECONDS_MAX = 2.0


@pytest.fixture
def slow(hasty_server: Server, queue_name: str) -> Target:
    return aim(Account(hasty_server), queue_name)


def served(server: Server) -> None:
    """Other clients are not kept waiting."""
    began = time.monotonic()
    with server.client() as client:
        assert client.get("/queues").status_code == 200
    assert time.monotonic() - began < PROMPT_SECONDS_MAX


def letters() -> Iterator[bytes]:
    return itertools.repeat(b"x", 1_000)


def cut_off(peer: Peer, pieces: Iterator[bytes], server: Server) -> None:
    """Sent piece by piece, the request is ended by the server before long."""

    def observed() -> Iterator[bytes]:
        for number, piece in enumerate(pieces):
            if number % 4 == 0:
                served(server)
            yield piece

    peer.trickle(observed(), every_s=0.05, seconds_max=CUT_SECONDS_MAX)
    answer = peer.answer()
    assert answer is None or answer.status == 408, answer
    assert peer.hung_up()


def test_headers_that_trickle_are_cut_off(slow: Target) -> None:
    with Peer(slow.account.server) as peer:
        peer.send(slow.account.head("GET", slow.path) + b"X-Slow: ")
        cut_off(peer, letters(), slow.account.server)


def test_request_line_that_trickles_is_cut_off(slow: Target) -> None:
    with Peer(slow.account.server) as peer:
        cut_off(peer, iter([b"G", b"E", b"T", b" ", b"/", *letters()]), slow.account.server)


def test_header_lines_that_trickle_are_cut_off(slow: Target) -> None:
    with Peer(slow.account.server) as peer:
        peer.send(slow.account.head("GET", slow.path))
        lines = (b"X-%d: x\r\n" % number for number in range(1_000))
        cut_off(peer, lines, slow.account.server)


def test_body_that_trickles_is_cut_off(slow: Target) -> None:
    account = slow.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{slow.path}/messages", "Content-Length: 5000") + b"\r\n")
        peer.send(b'{"body":"')
        cut_off(peer, letters(), account.server)
    assert slow.backlog() == 0


def test_chunks_that_trickle_are_cut_off(slow: Target) -> None:
    account = slow.account
    path = f"{slow.path}/messages"
    with Peer(account.server) as peer:
        peer.send(account.head("POST", path, "Transfer-Encoding: chunked") + b"\r\n")
        peer.send(b'9\r\n{"body":"\r\n')
        cut_off(peer, itertools.repeat(b"1\r\nx\r\n", 1_000), account.server)
    assert slow.backlog() == 0


def test_body_that_never_comes_is_given_up(slow: Target) -> None:
    account = slow.account
    with Peer(account.server) as peer:
        peer.send(account.head("POST", f"{slow.path}/messages", "Content-Length: 10") + b"\r\n")
        assert peer.answered(within_s=CUT_SECONDS_MAX)
        answer = peer.answer()
        assert answer is None or answer.status == 408, answer


def test_connection_that_says_nothing_is_closed(hasty_server: Server) -> None:
    with Peer(hasty_server) as peer:
        assert peer.answered(within_s=CUT_SECONDS_MAX)
        turned_away(peer.answer())


def test_connection_that_sends_only_empty_lines_is_closed(hasty_server: Server) -> None:
    """Empty lines before a request are allowed, but they are no request."""
    with Peer(hasty_server) as peer:
        peer.trickle(itertools.repeat(b"\r\n", 1_000), every_s=0.1, seconds_max=CUT_SECONDS_MAX)
        turned_away(peer.answer())


def test_connection_that_sends_one_empty_line_is_closed(hasty_server: Server) -> None:
    with Peer(hasty_server) as peer:
        peer.send(b"\r\n")
        assert peer.answered(within_s=CUT_SECONDS_MAX)
        turned_away(peer.answer())


def test_connection_that_says_nothing_more_is_closed(slow: Target) -> None:
    with Peer(slow.account.server) as peer:
        peer.send(slow.account.request("GET", slow.path))
        accepted(peer.answer())
        assert peer.answered(within_s=CUT_SECONDS_MAX)
        assert peer.hung_up()


def test_request_after_a_pause_has_its_full_time(slow: Target) -> None:
    """Time spent between two requests does not count against the second."""
    with Peer(slow.account.server) as peer:
        peer.send(slow.account.request("GET", slow.path))
        accepted(peer.answer())
        assert not peer.answered(within_s=0.7), "closed before its idle time was over"
        peer.send(slow.account.request("GET", slow.path))
        accepted(peer.answer())


def test_many_slow_clients_do_not_hold_up_others(slow: Target) -> None:
    account = slow.account
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(account.server)) for _ in range(30)]
        for number, peer in enumerate(peers):
            if number % 2:
                peer.send(account.head("GET", slow.path))
            else:
                path = f"{slow.path}/messages"
                peer.send(account.head("POST", path, "Content-Length: 10") + b"\r\n{")
        served(account.server)
        for peer in peers:
            assert peer.answered(within_s=CUT_SECONDS_MAX)
    served(account.server)
    assert slow.backlog() == 0


def test_client_that_does_not_read_its_answers_does_not_hold_up_others(target: Target) -> None:
    """Answers wait in the sender's buffers only up to a point; the rest must not fill memory."""
    account = target.account
    body = b'{"content_type":"text","body":"%s"}' % (b"x" * 120_000)
    for _ in range(10):
        accepted(target.post("/messages", body))
    peek = account.request("POST", f"{target.path}/messages/peek", b'{"batch_size":10}')
    before = memory_bytes(account.server)
    with Peer(account.server) as peer:
        # 200 answers of 1.2 MB each.
        peer.send(peek * 200)
        for _ in range(20):
            served(account.server)
        held = memory_bytes(account.server) - before
        assert held < 64 << 20, f"{held} bytes held for a client that does not read"
        peer.abort()
    served(account.server)


def memory_bytes(server: Server) -> int:
    with open(f"/proc/{server.pid}/statm") as file:
        return int(file.read().split()[1]) * 4_096
