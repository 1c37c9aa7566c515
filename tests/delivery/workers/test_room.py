"""Bytes of batches on their way to workers: bounded, and shared with others."""

import re
import time
from pathlib import Path

import httpx

from tests.delivery.receiver import Receiver
from tests.delivery.workers.scene import Scene
from tests.server import Server
from tests.wire.cloudflare.queue import Queue

MIB = 1 << 20
LARGE = 100_000
SMALL_MAX = 16 << 10


def _held(server: Server) -> int:
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    text = httpx.get(f"{server.url}/metrics", headers=admin, trust_env=False, verify=False).text
    found = re.search(r"^courier_push_bytes_in_flight (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(float(found[1]))


def test_a_worker_that_hangs_leaves_room_for_another(tmp_path: Path, receiver: Receiver) -> None:
    args = ["--pushes-bytes-max", str(MIB)]
    with (
        Server(tmp_path, args=args).start() as server,
        server.client() as http,
        server.operator() as operator,
    ):
        slow, quick = (Scene(server, operator, Queue.create(http), receiver) for _ in range(2))
        for scene in (slow, quick):
            scene.place()
        held = receiver.hold(slow.path)
        slow.queue.push_texts(["x" * LARGE] * 2)
        for _ in range(9):
            slow.queue.push_texts(["x" * LARGE] * 2)
        slow.consume(batch_size=2, max_concurrency=10)
        deadline_s = time.monotonic() + 30
        while _held(server) < 4 * LARGE:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        quick.consume()
        quick.queue.push_texts([str(number) for number in range(5)])
        assert sorted(batch.bodies[0] for batch in quick.sent(5)) == list("01234")
        assert receiver.in_flight(slow.path) < 10
        assert _held(server) <= MIB + 20 * SMALL_MAX
        held.let_go(1_000)
        slow_bodies = 0
        while slow_bodies < 20:
            assert time.monotonic() < deadline_s + 30
            time.sleep(0.02)
            slow_bodies = sum(len(batch.bodies) for batch in slow.so_far())
        while _held(server):
            assert time.monotonic() < deadline_s + 30
            time.sleep(0.02)
        assert "Traceback" not in server.log()
