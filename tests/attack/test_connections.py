"""Connections that break, pile up, or carry many requests at once."""

import json
import random
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.attack.peer import Account, Peer, accepted, refused, turned_away
from tests.attack.target import Target, aim, no_traceback
from tests.server import Server

pytestmark = pytest.mark.slow


IDLE = 1_000


def batch(*bodies: str) -> bytes:
    drafts = [{"body": body, "content_type": "text"} for body in bodies]
    return json.dumps({"messages": drafts}).encode()


def everything(target: Target) -> list[str]:
    """Drain the queue; the bodies in the order they came."""
    bodies: list[str] = []
    while messages := target.pull():
        bodies += [message["body"] for message in messages]
        acks = {"acks": [{"lease_id": message["lease_id"]} for message in messages]}
        accepted(target.post("/messages/ack", json.dumps(acks).encode()))
    assert target.backlog() == 0
    return bodies


@pytest.mark.parametrize("politely", [True, False])
def test_request_broken_off_in_its_body_stores_nothing(target: Target, politely: bool) -> None:
    account = target.account
    whole = account.request("POST", f"{target.path}/messages/batch", batch("a", "b", "c"))
    chunked = account.head(
        "POST", f"{target.path}/messages/batch", "Transfer-Encoding: chunked"
    ) + b"\r\n%x\r\n%s\r\n" % (len(batch("a")), batch("a"))
    start = whole.index(b"\r\n\r\n")
    cuts = [whole[:end] for end in range(start, len(whole), 7)]
    for part in [*cuts, whole[:-1], chunked]:
        with Peer(account.server) as peer:
            peer.send(part)
            if not politely:
                peer.abort()
    assert target.backlog() == 0


def test_batch_whose_caller_leaves_is_stored_whole_or_not_at_all(target: Target) -> None:
    account = target.account
    chance = random.Random(7)
    for number in range(60):
        bodies = [f"{number}-{place}" for place in range(20)]
        with Peer(account.server) as peer:
            peer.send(account.request("POST", f"{target.path}/messages/batch", batch(*bodies)))
            peer.answered(within_s=chance.choice([0, 0, 0.001, 0.003]))
            peer.abort()
    stored = everything(target)
    assert len(stored) % 20 == 0
    assert len(set(stored)) == len(stored)
    for number in range(60):
        assert sum(body.startswith(f"{number}-") for body in stored) in (0, 20)


def test_pull_whose_caller_leaves_loses_nothing(target: Target) -> None:
    account = target.account
    consumer = accepted(account.ask("GET", f"{target.path}/consumers"))[0]["consumer_id"]
    patient = b'{"type":"http_pull","settings":{"max_retries":100}}'
    accepted(account.ask("PUT", f"{target.path}/consumers/{consumer}", patient))
    accepted(target.post("/messages/batch", batch(*"abcdefgh")))
    pull = b'{"batch_size":2,"visibility_timeout_ms":1}'
    for _ in range(30):
        with Peer(account.server) as peer:
            peer.send(account.request("POST", f"{target.path}/messages/pull", pull))
            peer.abort()
    found: set[str] = set()
    deadline = time.monotonic() + 10
    while len(found) < 8:
        found |= {message["body"] for message in target.pull()}
        assert time.monotonic() < deadline, f"only {found}"
    assert target.backlog() == 8


def test_pipelined_requests_are_answered_in_order(target: Target) -> None:
    account = target.account
    path = f"{target.path}/messages"
    bodies = [f"body-{number}" for number in range(40)]
    drafts = [json.dumps({"body": body, "content_type": "text"}).encode() for body in bodies]
    with Peer(account.server) as peer:
        peer.send(b"".join(account.request("POST", path, draft) for draft in drafts))
        for count, _ in enumerate(bodies, start=1):
            metrics = accepted(peer.answer())["metadata"]["metrics"]
            assert metrics["backlog_count"] == count
    assert everything(target) == bodies


def test_long_answers_among_short_ones_come_whole_and_in_order(target: Target) -> None:
    """More than the connection holds, so that they wait for a peer who takes his time."""
    account = target.account
    bodies = [str(number) * 120_000 for number in range(10)]
    for body in bodies:
        accepted(target.post("/messages/batch", batch(body)))
    pull = account.request("POST", f"{target.path}/messages/pull", b'{"batch_size":10}')
    look = account.request("GET", target.path)
    peek = account.request("POST", f"{target.path}/messages/peek", b'{"batch_size":10}')
    with Peer(account.server) as peer:
        peer.send((peek + look) * 8 + pull + look)
        peer.answered(within_s=1)
        time.sleep(0.2)
        for _ in range(9):
            messages = accepted(peer.answer())["messages"]
            assert [message["body"] for message in messages] == bodies
            assert accepted(peer.answer())["queue_id"] == target.path.rpartition("/")[2]


def test_refused_request_in_a_pipeline_spoils_none_of_its_neighbours(target: Target) -> None:
    account = target.account
    good = account.request("POST", f"{target.path}/messages", b'{"body":1}')
    with Peer(account.server) as peer:
        peer.send(
            good
            + account.request("POST", f"{target.path}/messages", b'{"body":')
            + good
            + account.request("GET", "/nowhere")
            + account.request("TRACE", target.path)
            + good
        )
        accepted(peer.answer())
        refused(peer.answer(), 400, code=10208)
        accepted(peer.answer())
        refused(peer.answer(), 404, code=7003)
        refused(peer.answer(), 405, code=7001)
        accepted(peer.answer())
    assert target.backlog() == 3


def test_garbage_behind_good_requests_is_not_taken_for_their_answer(target: Target) -> None:
    """A publish that was stored must not look refused because of what was sent after it."""
    account = target.account
    good = account.request("POST", f"{target.path}/messages", b'{"body":1}')
    done = 0
    with Peer(account.server) as peer:
        peer.send(good * 3 + b"this is not HTTP\r\n\r\n")
        while (answer := peer.answer()) is not None and answer.status == 200:
            done += 1
        if answer is not None:
            turned_away(answer)
            assert done == 3, "refused in place of an answer"
    assert done <= target.backlog() <= 3


def test_caller_that_leaves_in_a_pipeline_does_no_harm(target: Target) -> None:
    account = target.account
    good = account.request("POST", f"{target.path}/messages", b'{"body":1}')
    for _ in range(20):
        with Peer(account.server) as peer:
            peer.send(good * 5)
            peer.abort()
    assert target.backlog() <= 100


def test_refusal_before_the_body_is_read_keeps_the_connection_in_step(target: Target) -> None:
    """The refused request's body must not be taken for the next request."""
    account = target.account
    decoy = account.request("POST", f"{target.path}/messages", b'{"body":"decoy"}')
    for path in ("/nowhere", f"/queues/{'0' * 32}/messages", "//client/v4/nowhere"):
        with Peer(account.server) as peer:
            peer.send(account.request("POST", path, decoy))
            refused(peer.answer(), 404)
            if peer.send(account.request("GET", target.path)):
                answer = peer.answer()
                assert answer is None or accepted(answer)["queue_id"] == target.id
    assert target.backlog() == 0


def test_very_many_pipelined_requests_are_all_answered(account: Account) -> None:
    count = 2_000
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with Peer(account.server) as peer:
        for _ in range(count // 100):
            peer.send(request * 100)
        for _ in range(count):
            answer = peer.answer()
            assert answer is not None and answer.status == 200


@pytest.fixture
def roomy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server and test may both hold a few thousand files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * IDLE
    limit = max(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    with Server(tmp_path_factory.mktemp("roomy")).start() as server:
        yield server
        no_traceback(server)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections_do_no_harm(roomy_server: Server, queue_name: str) -> None:
    account = Account(roomy_server)
    target = aim(account, queue_name)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(roomy_server)) for _ in range(IDLE)]
        for peer in peers[: IDLE // 2]:
            peer.send(account.request("GET", target.path))
        for peer in peers[: IDLE // 2]:
            accepted(peer.answer())
        began = time.monotonic()
        for number in range(50):
            accepted(target.post("/messages", b'{"body":%d}' % number))
        assert time.monotonic() - began < 10
        assert target.backlog() == 50
        peers[-1].send(account.request("GET", target.path))
        accepted(peers[-1].answer())
    assert target.backlog() == 50
