"""The disk fills up: publishers are refused, and the store can be drained until there is room."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from tests.faults import account
from tests.faults.account import metrics_of, status_of, wait_until
from tests.faults.disk import SmallDisk, may_mount
from tests.faults.environment import Environment, message
from tests.server import Server

pytestmark = pytest.mark.slow
MIB = 1 << 20
SIZE_MIB = 12
BIG = "x" * 100_000
PUBLISHES_MAX = 500


class Fillable(Protocol):
    server: Server

    def leave(self, count: int) -> None:
        """Let others take all but `count` bytes of what is left."""
        ...


class OwnDisk:
    """A real file system."""

    def __init__(self, directory: Path) -> None:
        self.server = Server(directory)
        self._disk = SmallDisk(self.server.data)

    def leave(self, count: int) -> None:
        room = os.statvfs(self._disk.mount)
        taken = room.f_bavail * room.f_frsize - count
        with (self._disk.mount / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, taken)

    def __enter__(self) -> "OwnDisk":
        self._disk.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.__exit__()


class CountedDisk:
    """The server counts the bytes of its own files, where nobody may make file systems."""

    def __init__(self, directory: Path) -> None:
        self._quota = directory / "quota"
        self._write(0)
        env = {"LYING": str(directory / "arm"), "QUOTA": str(self._quota)}
        self.server = Server(directory, env=env, module="tests.faults.lying_server")

    def leave(self, count: int) -> None:
        used = sum(file.stat().st_size for file in self.server.data.glob("courier.*"))
        self._write(SIZE_MIB * MIB - used - count)

    def _write(self, others: int) -> None:
        fresh = self._quota.with_suffix(".new")
        fresh.write_text(f"{SIZE_MIB * MIB} {others}")
        fresh.replace(self._quota)

    def __enter__(self) -> "CountedDisk":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(params=[CountedDisk, OwnDisk] if may_mount() else [CountedDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fillable]:
    with request.param(tmp_path) as disk, disk.server.start():
        yield disk


@pytest.fixture
def client(disk: Fillable) -> Iterator[httpx.Client]:
    with disk.server.client() as client:
        yield client


def publish(client: httpx.Client, path: str, body: str) -> httpx.Response:
    return client.post(f"{path}/messages", json={"body": body, "content_type": "text"})


def fill(client: httpx.Client, path: str) -> tuple[int, httpx.Response]:
    """Publish until the first refusal; how many were stored."""
    for number in range(PUBLISHES_MAX):
        answer = publish(client, path, f"{number}-{BIG}")
        if answer.status_code != 200:
            return number, answer
    raise AssertionError("the disk never fills up")


def drain(client: httpx.Client, path: str) -> int:
    """Every pull and every ack must be answered well."""
    count = 0
    while messages := account.pull(client, path, count=5):
        acks = [{"lease_id": each["lease_id"]} for each in messages]
        settled = account.result(client.post(f"{path}/messages/ack", json={"acks": acks}))
        assert settled["ackCount"] == len(messages)
        count += len(messages)
    return count


def test_a_filling_disk_refuses_publishers_and_can_be_drained(
    disk: Fillable, client: httpx.Client
) -> None:
    path = account.create_queue(client)
    stored, refused = fill(client, path)
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "30"
    assert "must stay free" in refused.json()["errors"][0]["message"]
    ready = httpx.get(f"{disk.server.url}/ready", trust_env=False)
    assert ready.status_code == 503 and "must stay free" in ready.text
    assert status_of(disk.server, "/health") == 200
    metrics = metrics_of(disk.server)
    assert "courier_disk_free_bytes " in metrics
    assert "courier_store_refusals_for_space_total" in metrics
    assert client.post("/queues", json={"queue_name": "more"}).status_code == 503

    assert drain(client, path) == stored
    wait_until(lambda: status_of(disk.server, "/ready") == 200, "still not ready")
    again, _ = fill(client, path)
    assert again > 0
    assert "Traceback" not in disk.server.log()


def test_every_dialect_refuses_publishers_below_the_mark(
    disk: Fillable, client: httpx.Client
) -> None:
    path = account.create_queue(client)
    disk.leave(100_000)
    wait_until(lambda: status_of(disk.server, "/ready") == 503, "still ready")
    assert publish(client, path, "late").status_code == 503
    environment = Environment(disk.server)
    status, headers, body = environment.try_publish("orders", [message("late")])
    assert (status, headers["Retry-After"]) == (503, "30"), body
    own: dict[str, Any] = disk.server.credentials["discue"]
    asked = httpx.post(
        f"{own['base_url']}/queues",
        headers={"X-API-KEY": own["api_key"]},
        json={"name": "more"},
        trust_env=False,
    )
    assert (asked.status_code, asked.headers["Retry-After"]) == (503, "30"), asked.text
    environment.close()


def test_a_tenant_that_is_refused_leaves_no_file(disk: Fillable) -> None:
    server = disk.server
    disk.leave(100_000)
    wait_until(lambda: status_of(server, "/ready") == 503, "still ready")
    refused = httpx.post(
        f"{server.url}/courier/v1/tenants",
        json={"name": "late"},
        headers={"Authorization": f"Bearer {server.credentials['admin']['token']}"},
        trust_env=False,
    )
    assert refused.status_code == 503, refused.text
    assert [file.name for file in server.data.glob("credentials*")] == ["credentials.json"]


def test_a_disk_without_a_byte_left_can_be_drained(disk: Fillable, client: httpx.Client) -> None:
    """The reserve is given up for it, and made again when there is room."""
    path = account.create_queue(client)
    spare = account.create_queue(client, "spare")
    for number in range(20):
        assert publish(client, path, f"{number}-{BIG}").status_code == 200
        assert publish(client, spare, f"{number}-{BIG}").status_code == 200
    disk.leave(0)
    assert drain(client, path) == 20
    account.result(client.post(f"{spare}/purge", json={"delete_messages_permanently": True}))
    assert client.delete(spare).status_code == 200
    wait_until(lambda: status_of(disk.server, "/ready") == 200, "still not ready")
    assert publish(client, path, "late").status_code == 200
    assert "Traceback" not in disk.server.log()


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_a_server_starts_on_a_full_disk_to_be_drained(
    disk: Fillable, client: httpx.Client, end: Callable[[Server], None]
) -> None:
    """Others have taken every byte while it was away."""
    path = account.create_queue(client)
    for number in range(20):
        assert publish(client, path, f"{number}-{BIG}").status_code == 200
    end(disk.server)
    disk.leave(0)
    disk.server.start(ready=False)
    wait_until(lambda: answers(disk.server), "it does not start")
    with disk.server.client() as fresh:
        assert drain(fresh, path) == 20
        wait_until(lambda: status_of(disk.server, "/ready") == 200, "still not ready")
        assert publish(fresh, path, "late").status_code == 200
    assert "Traceback" not in disk.server.log()


def answers(server: Server) -> bool:
    try:
        return status_of(server, "/health") == 200
    except httpx.TransportError:
        return False
