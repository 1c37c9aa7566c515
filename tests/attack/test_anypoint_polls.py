"""Long polls that are slow, broken off, piled up by the thousand, or overtaken by events."""

import json
import os
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.environment import (
    LONG_MS,
    Environment,
    Spot,
    accepted,
    body,
    refused,
    settle_down,
)
from tests.attack.peer import Peer
from tests.attack.target import no_traceback
from tests.server import Server

pytestmark = pytest.mark.slow

WAITERS = 2_000
ROUNDS = 4
LEAK_BYTES_MAX = 24 << 20
PROMPT_SECONDS_MAX = 2.0
CHANGE_SECONDS_MAX = 15.0
POLL_MS_MAX = 20_000


@pytest.fixture(scope="module")
def roomy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Server and test may both hold a few thousand files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * WAITERS + 500
    limit = max(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    with Server(tmp_path_factory.mktemp("roomy")).start() as server:
        yield server
        no_traceback(server)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def busy(roomy_server: Server, queue_name: str) -> Spot:
    """A spot on a server where thousands may wait."""
    return settle_down(Environment(roomy_server), queue_name)


def poll(
    spot: Spot,
    queue: str,
    *,
    wait_ms: int = POLL_MS_MAX,
    count: int = 10,
    lock_ms: int = LONG_MS,
) -> bytes:
    """A whole request for messages, with locks that outlast the test."""
    query = f"pollingTime={wait_ms}&batchSize={count}&lockTtl={lock_ms}"
    return spot.broker.request("GET", f"/{queue}/messages?{query}")


def waiting(spot: Spot, queue: str, count: int, stack: ExitStack) -> list[Peer]:
    """So many polls under way; once they are, they keep nobody else waiting."""
    peers = []
    for _ in range(count):
        peer = stack.enter_context(Peer(spot.environment.server))
        peer.send(poll(spot, queue))
        peers.append(peer)
    accepted(spot.environment.admin.ask("GET", f"/destinations/queues/{spot.queue}"))
    served(spot)
    return peers


def served(spot: Spot) -> None:
    """Others are not kept waiting."""
    began = time.monotonic()
    accepted(spot.environment.admin.ask("GET", f"/destinations/queues/{spot.queue}"))
    assert time.monotonic() - began < PROMPT_SECONDS_MAX


def wait_until(true: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + CHANGE_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def memory_bytes(server: Server) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4_096


def files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def found_by(peers: list[Peer], *, within_s: float) -> list[list[str]]:
    """The ids in each answer that comes by then; polls that go on are left out."""
    deadline = time.monotonic() + within_s
    answers = []
    for peer in peers:
        if peer.answered(within_s=max(0.0, deadline - time.monotonic())):
            answer = peer.answer()
            assert answer is not None and answer.status in (200, 204), answer
            found = json.loads(answer.body) if answer.body else []
            answers.append([each["headers"]["messageId"] for each in found])
    return answers


# --- piled up --------------------------------------------------------------------------------


def test_thousands_who_wait_and_leave_leave_nothing_behind(busy: Spot) -> None:
    """Neither memory nor connections nor a place in the queue, politely or not."""
    server = busy.environment.server
    before = files(server)
    sizes = []
    for turn in range(ROUNDS):
        with ExitStack() as stack:
            peers = waiting(busy, busy.line if turn % 2 else busy.queue, WAITERS, stack)
            assert files(server) >= WAITERS
            if turn < ROUNDS // 2:
                for peer in peers:
                    peer.abort()
        wait_until(lambda: files(server) <= before + 20, lambda: f"{files(server)} files open")
        served(busy)
        sizes.append(memory_bytes(server))
    # The first round makes room for so many; the others find it.
    assert sizes[-1] - sizes[0] < LEAK_BYTES_MAX, sizes
    for queue in (busy.queue, busy.line):
        busy.publish(queue, "m1")
        [found] = busy.get(queue)
        assert found["headers"]["deliveryCount"] == "1", "handed to somebody who had left"


def test_one_message_for_a_thousand_who_wait_goes_to_one(busy: Spot) -> None:
    for queue in (busy.queue, busy.line):
        with ExitStack() as stack:
            peers = waiting(busy, queue, 1_000, stack)
            began = time.monotonic()
            busy.publish(queue, "only")
            wait_until(
                lambda: any(peer.answered(within_s=0) for peer in peers),  # noqa: B023
                lambda: "nobody was woken",
            )
            assert time.monotonic() - began < PROMPT_SECONDS_MAX
            assert found_by(peers, within_s=1.0) == [["only"]]
    assert busy.backlog() == 2


def test_many_messages_for_many_who_wait_are_each_handed_out_once(busy: Spot) -> None:
    ids = [f"m{number}" for number in range(300)]
    with ExitStack() as stack:
        peers = waiting(busy, busy.queue, 300, stack)
        for start in range(0, len(ids), 10):
            batch = [{"headers": {"messageId": id}, "body": ""} for id in ids[start : start + 10]]
            path = f"/{busy.exchange}/messages"
            accepted(busy.broker.ask("PUT", path, json.dumps(batch).encode()))
        found = [id for answer in found_by(peers, within_s=5.0) for id in answer]
    while rest := busy.get(busy.queue):
        found += [each["headers"]["messageId"] for each in rest]
    assert sorted(found) == sorted(ids)


def test_group_goes_to_one_of_many_who_wait(busy: Spot) -> None:
    """Ten of one group at most, in order, and to one of them; the others wait on."""
    batch = [{"headers": {"messageId": f"m{n}", "messageGroupId": "g"}} for n in range(8)]
    with ExitStack() as stack:
        peers = waiting(busy, busy.line, 200, stack)
        path = f"/{busy.line}/messages"
        accepted(busy.broker.ask("PUT", path, json.dumps(batch).encode()))
        assert found_by(peers, within_s=2.0) == [[f"m{n}" for n in range(8)]]


def test_all_who_wait_for_a_deleted_queue_are_told_at_once(busy: Spot) -> None:
    for queue in (busy.line, busy.queue):
        with ExitStack() as stack:
            peers = waiting(busy, queue, 500, stack)
            began = time.monotonic()
            answer = busy.environment.admin.ask("DELETE", f"/destinations/queues/{queue}")
            assert answer.status == 204
            for peer in peers:
                refused(peer.answer(), 404)
            assert time.monotonic() - began < 5


def test_all_who_wait_on_a_server_that_stops_are_let_go(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path_factory.mktemp("stopping")).start())
        spot = settle_down(Environment(server), "q")
        peers = waiting(spot, spot.queue, 300, stack)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 10
        for peer in peers:
            answer = peer.answer()
            assert answer is None or answer.status in (204, 503), answer
    no_traceback(server)


# --- broken off ------------------------------------------------------------------------------


@pytest.mark.parametrize("politely", [True, False])
def test_message_is_not_kept_for_who_has_left(spot: Spot, politely: bool) -> None:
    """It is there for the next one at once, not when the lock of the absent one ends."""
    for queue in (spot.queue, spot.line):
        for _ in range(50):
            with Peer(spot.environment.server) as peer:
                peer.send(poll(spot, queue))
                if not politely:
                    peer.abort()
        spot.publish(queue, "m1")
        found: list[str] = []

        def came(queue: str = queue, found: list[str] = found) -> bool:
            found += [each["headers"]["messageId"] for each in spot.get(queue)]
            return bool(found)

        wait_until(came, lambda: "kept for somebody who has left")
        assert found == ["m1"]


def test_leaving_at_any_moment_loses_nothing(spot: Spot) -> None:
    """Callers come and go while messages come; each is handed out, and in order."""
    chance = random.Random(17)
    ids = [f"m{number:03}" for number in range(60)]
    for id in ids:
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(spot.environment.server)) for _ in range(3)]
            for peer in peers:
                peer.send(poll(spot, spot.line, count=1, lock_ms=300))
            for peer in peers[:2]:
                peer.answered(within_s=chance.choice([0, 0, 0.002]))
                peer.abort()
            spot.publish(spot.line, id)
            peers[2].answered(within_s=chance.choice([0, 0.001, 0.005]))
            peers[2].abort()
    assert spot.backlog() == len(ids)
    found: list[str] = []

    def drained() -> bool:
        """An answer that was under way when its caller left holds its group up for a moment."""
        headers = [each["headers"] for each in spot.get(spot.line)]
        if headers:
            locks = [{name: each[name] for name in ("messageId", "lockId")} for each in headers]
            accepted(spot.broker.ask("DELETE", f"/{spot.line}/messages", body(locks)))
        found.extend(each["messageId"] for each in headers)
        return len(found) >= len(ids)

    wait_until(drained, lambda: f"only {found}")
    assert found == ids and spot.backlog() == 0


def test_half_closed_connection_does_no_harm(spot: Spot) -> None:
    """A caller that has nothing more to say may still be listening, or not."""
    for _ in range(20):
        channel = socket.create_connection(("127.0.0.1", spot.environment.server.port), timeout=10)
        with channel:
            channel.sendall(poll(spot, spot.line, wait_ms=200))
            channel.shutdown(socket.SHUT_WR)
            assert channel.recv(1_000)[:12] in (b"HTTP/1.1 204", b"")
    spot.publish(spot.line, "m1")
    assert len(spot.get(spot.line)) == 1


def test_request_behind_a_poll_has_its_turn_after_it(spot: Spot) -> None:
    with Peer(spot.environment.server) as peer:
        path = f"/{spot.queue}/messages"
        put = spot.broker.request("PUT", f"{path}/m1", b"{}")
        peer.send(poll(spot, spot.queue, wait_ms=500) + put + poll(spot, spot.queue))
        first = peer.answer()
        assert first is not None and first.status == 204
        accepted(peer.answer(), 201)
        [found] = accepted(peer.answer())
        assert found["headers"]["messageId"] == "m1"


def test_caller_that_leaves_with_requests_behind_its_poll_does_no_harm(spot: Spot) -> None:
    path = f"/{spot.queue}/messages"
    put = spot.broker.request("PUT", f"{path}/m1", b"{}")
    for _ in range(20):
        with Peer(spot.environment.server) as peer:
            peer.send(poll(spot, spot.queue) + put * 3)
            peer.answered(within_s=0.002)
            peer.abort()
    served(spot)
    assert spot.backlog() == 0, "a request was run for a caller who had left before its turn"


def test_garbage_behind_a_poll_ends_the_connection(spot: Spot) -> None:
    with Peer(spot.environment.server) as peer:
        peer.send(poll(spot, spot.queue, wait_ms=300) + b"this is not HTTP\r\n\r\n")
        answer = peer.answer()
        assert answer is None or answer.status in (204, 400), answer
    served(spot)


# --- slow ------------------------------------------------------------------------------------


@pytest.fixture
def hasty(hasty_server: Server, queue_name: str) -> Spot:
    return settle_down(Environment(hasty_server), queue_name)


def test_who_waits_for_us_is_not_cut_off_as_idle(hasty: Spot) -> None:
    """The server closes connections that say nothing for 1.5 s; this one awaits an answer."""
    with Peer(hasty.environment.server) as peer:
        began = time.monotonic()
        peer.send(poll(hasty, hasty.queue, wait_ms=3_000))
        answer = peer.answer()
        assert answer is not None and answer.status == 204
        assert time.monotonic() - began >= 2.9
        peer.send(poll(hasty, hasty.queue, wait_ms=0))
        answer = peer.answer()
        assert answer is not None and answer.status == 204


def test_poll_whose_body_never_comes_is_answered_or_given_up(hasty: Spot) -> None:
    head = hasty.broker.head("GET", f"/{hasty.queue}/messages?pollingTime=0", "Content-Length: 10")
    with Peer(hasty.environment.server) as peer:
        peer.send(head + b"\r\n")
        assert peer.answered(within_s=5)
        answer = peer.answer()
        assert answer is None or answer.status in (204, 408), answer


def test_waiters_above_the_limit_of_connections_are_turned_away(hasty: Spot) -> None:
    """The limit is 40. Those who wait below it get what they wait for."""
    with ExitStack() as stack:
        peers = []
        for _ in range(30):
            peers.append(stack.enter_context(Peer(hasty.environment.server)))
            peers[-1].send(poll(hasty, hasty.queue, wait_ms=10_000, count=1))
        above = [stack.enter_context(Peer(hasty.environment.server)) for _ in range(30)]
        for peer in above:
            if peer.send(poll(hasty, hasty.queue, wait_ms=10_000, count=1)) and peer.answered(
                within_s=0.05
            ):
                answer = peer.answer()
                assert answer is None or answer.status == 503, answer
        for peer in above:
            peer.abort()
        batch = json.dumps([{"body": "x"}] * 10).encode()
        wait_until(lambda: accepts(hasty, batch), lambda: "still full after those above have left")
        assert sum(len(ids) for ids in found_by(peers, within_s=3.0)) >= 10


def accepts(spot: Spot, batch: bytes) -> bool:
    """Whether there is a connection to be had, and a batch to be published with it."""
    with Peer(spot.environment.server) as peer:
        if not peer.send(spot.broker.request("PUT", f"/{spot.queue}/messages", batch)):
            return False
        answer = peer.answer()
        return answer is not None and answer.status == 200
