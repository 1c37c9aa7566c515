"""A server whose disk fails, seen from outside: what it refused never happens."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults import account
from tests.faults.account import status_of, wait_until
from tests.server import Server

pytestmark = pytest.mark.slow
Act = Callable[[httpx.Client, str, list[dict[str, Any]]], httpx.Response]


class Lying:
    """A server on a disk that fails when it is told to."""

    def __init__(self, directory: Path) -> None:
        self._arm = directory / "arm"
        env = {"LYING": str(self._arm)}
        self.server = Server(directory, env=env, module="tests.faults.lying_server")

    def fail(self, kinds: str, number: int, error: str, times: int = 1) -> None:
        fresh = self._arm.with_suffix(".new")
        fresh.write_text(f"{kinds};{number};{error};{times}")
        fresh.replace(self._arm)

    def heal(self) -> None:
        self._arm.unlink()

    def failed(self) -> list[str]:
        """The calls that have failed so far."""
        listed = self._arm.with_suffix(".failed")
        return listed.read_text().splitlines() if listed.exists() else []


@pytest.fixture
def lying(tmp_path: Path) -> Iterator[Lying]:
    lying = Lying(tmp_path)
    with lying.server:
        yield lying


def publish(client: httpx.Client, path: str, _: list[dict[str, Any]]) -> httpx.Response:
    return client.post(f"{path}/messages", json={"body": "late", "content_type": "text"})


def ack(client: httpx.Client, path: str, held: list[dict[str, Any]]) -> httpx.Response:
    acks = [{"lease_id": held[0]["lease_id"]}]
    return client.post(f"{path}/messages/ack", json={"acks": acks})


def delete_queue(client: httpx.Client, path: str, _: list[dict[str, Any]]) -> httpx.Response:
    return client.delete(path)


def begun(client: httpx.Client) -> tuple[str, list[dict[str, Any]]]:
    """A queue with three messages, one of which is leased."""
    path = account.create_queue(client)
    account.publish(client, path, "a", "b", "c")
    return path, account.pull(client, path, count=1)


def check_unchanged(client: httpx.Client, path: str, held: list[dict[str, Any]]) -> None:
    assert [each["body"] for each in account.pull(client, path)] == ["b", "c"]
    settled = account.result(ack(client, path, held))
    assert settled["ackCount"] == 1


@pytest.mark.parametrize("act", [publish, ack, delete_queue])
def test_what_was_refused_does_not_come_back_after_a_kill(lying: Lying, act: Act) -> None:
    server = lying.server.start()
    with server.client() as client:
        path, held = begun(client)
        lying.fail("sync", 1, "EIO")
        answer = act(client, path, held)
        assert answer.status_code == 503, answer.text
        assert answer.headers["Retry-After"]
        server.kill()
        lying.heal()
    server.start()
    with server.client() as client:
        check_unchanged(client, path, held)
    assert "Traceback" not in server.log()


def test_a_disk_that_stays_broken_gets_no_false_answer_and_recovers(lying: Lying) -> None:
    """Neither 200 nor 503 would be true: the connection is closed. Others are refused at once."""
    server = lying.server.start()
    with server.client() as client:
        path, held = begun(client)
        lying.fail("sync", 1, "EIO", times=100_000)
        with pytest.raises(httpx.RemoteProtocolError):
            publish(client, path, held)
        refused = publish(client, path, held)
        assert refused.status_code == 503 and refused.headers["Retry-After"]
        assert status_of(server, "/ready") == 503
        assert status_of(server, "/health") == 200
        lying.heal()
        wait_until(lambda: status_of(server, "/ready") == 200, "still not ready")
        check_unchanged(client, path, held)


def test_a_broken_disk_does_not_keep_the_server_from_stopping(lying: Lying) -> None:
    server = lying.server.start()
    with server.client() as client:
        path, held = begun(client)
        lying.fail("sync", 1, "EIO", times=100_000)
        with pytest.raises(httpx.RemoteProtocolError):
            publish(client, path, held)
    server.stop()


@pytest.mark.parametrize(
    ("kinds", "number", "error"),
    [
        ("open", 1, "EIO"),
        ("write", 1, "EIO"),
        ("write", 1, "ENOSPC"),
        ("write", 9, "short"),
        ("write", 60, "EIO"),
        ("sync", 3, "EIO"),
        ("delete", 1, "EIO"),
    ],
)
def test_a_first_start_that_fails_says_why_in_one_sentence(
    lying: Lying, kinds: str, number: int, error: str
) -> None:
    lying.fail(kinds, number, error, times=100_000)
    server = lying.server.start(ready=False)
    assert server.ended() == 1
    last = server.log().strip().splitlines()[-1]
    assert last.startswith("courier: "), server.log()
    assert "Traceback" not in server.log()
    lying.heal()
    server.start()
