"""SIGTERM: what is running is finished, and then the server goes."""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.faults.account import (
    CHANGE_SECONDS_MAX,
    bodies,
    create_queue,
    pull,
    result,
    wait_until,
)
from tests.faults.connection import InDoubt, Refused
from tests.faults.environment import Environment
from tests.server import Server

pytestmark = pytest.mark.slow
# Less than what must not be waited for: a long poll, 20 s, a body, 30 s, an idle connection, 75 s.
STOP_SECONDS_MAX = 15.0


def begin_publish(server: Server, path: str, body: bytes) -> socket.socket:
    """A publish that the server has begun to work on, and whose body is still to come."""
    account = server.credentials["cloudflare"]
    head = (
        f"POST /client/v4/accounts/{account['account_id']}{path}/messages HTTP/1.1\r\n"
        f"Host: 127.0.0.1\r\nAuthorization: Bearer {account['api_token']}\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    channel = socket.create_connection(("127.0.0.1", server.port), timeout=CHANGE_SECONDS_MAX)
    channel.sendall(head.encode())
    assert channel.recv(1_000).startswith(b"HTTP/1.1 100 ")
    return channel


def refuses(server: Server) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_running_request_is_finished_before_the_server_leaves(fresh_server: Server) -> None:
    with fresh_server.client() as client:
        path = create_queue(client)
    body = b'{"body":"last words","content_type":"text"}'
    with begin_publish(fresh_server, path, body) as channel, ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(fresh_server.stop)
        wait_until(lambda: refuses(fresh_server), "still takes new connections")
        assert not stopped.done()
        channel.sendall(body)
        assert channel.recv(10_000).startswith(b"HTTP/1.1 200 ")
        stopped.result()
    fresh_server.start()
    with fresh_server.client() as client:
        assert bodies(pull(client, path)) == ["last words"]


def test_idle_connections_do_not_hold_up_a_stop(fresh_server: Server) -> None:
    with fresh_server.client() as client:
        result(client.get("/queues"))
        with socket.create_connection(("127.0.0.1", fresh_server.port)):
            began = time.monotonic()
            fresh_server.stop()
            assert time.monotonic() - began < STOP_SECONDS_MAX


def test_request_that_never_ends_does_not_hold_up_a_stop_for_ever(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("impatient")
    with Server(directory, env={"COURIER_DRAIN_WAIT_MS_MAX": "500"}).start() as server:
        with server.client() as client:
            path = create_queue(client)
        with begin_publish(server, path, b'{"body":1}'):
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < STOP_SECONDS_MAX


def test_second_sigterm_changes_nothing(fresh_server: Server) -> None:
    with fresh_server.client() as client:
        path = create_queue(client)
    body = b'{"body":1}'
    with begin_publish(fresh_server, path, body) as channel, ThreadPoolExecutor(1) as pool:
        pid = fresh_server.pid
        stopped = pool.submit(fresh_server.stop)
        wait_until(lambda: refuses(fresh_server), "still takes new connections")
        os.kill(pid, signal.SIGTERM)
        channel.sendall(body)
        assert channel.recv(10_000).startswith(b"HTTP/1.1 200 ")
        stopped.result()


@pytest.mark.parametrize("fifo", [False, True])
def test_long_poll_is_let_go_before_the_server_leaves(fresh_server: Server, fifo: bool) -> None:
    """It ends as one that found nothing, and no message is locked for its sake."""
    with (
        closing(Environment(fresh_server)) as environment,
        closing(Environment(fresh_server)) as waiter,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = environment.create_queue("waited-for", fifo=fifo)
        polled = pool.submit(waiter.try_broker, "GET", f"{queue}/messages?pollingTime=20000")
        time.sleep(0.3)
        assert not polled.done()
        environment.close()
        began = time.monotonic()
        fresh_server.stop()
        assert time.monotonic() - began < STOP_SECONDS_MAX
        assert polled.result()[0] in (204, 503)
        fresh_server.start()
        environment.publish(queue, "m1")
        [found] = environment.get(queue)
        assert found["headers"]["deliveryCount"] == "1"


def test_client_that_polls_on_does_not_hold_up_a_stop(fresh_server: Server) -> None:
    """Consumers ask again as soon as they are answered, on the same connection."""

    def poll(environment: Environment, queue: str) -> None:
        with pytest.raises((Refused, InDoubt)):
            while True:
                status, _, _ = environment.try_broker("GET", f"{queue}/messages?pollingTime=20000")
                assert status in (204, 503)

    with closing(Environment(fresh_server)) as environment, ThreadPoolExecutor(1) as pool:
        queue = environment.create_queue("waited-for")
        polled = pool.submit(poll, environment, queue)
        time.sleep(0.3)
        began = time.monotonic()
        fresh_server.stop()
        assert time.monotonic() - began < STOP_SECONDS_MAX
        polled.result()
