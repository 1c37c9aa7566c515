"""The disk is full while exchanges and FIFO queues are published to: all of it, or nothing."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.faults.account import status_of, wait_until
from tests.faults.connection import Answer
from tests.faults.disk import Disk
from tests.faults.environment import Environment, Lock, good, locks, message
from tests.server import Server

pytestmark = pytest.mark.slow
BIG = "x" * 100_000
PUBLISHES_MAX = 200
SMALL_PUBLISHES_MAX = 5_000
BOUND = ("left", "right")
LINE = "line"
EXCHANGE = "news"


class Full(NamedTuple):
    """A server whose disk is full. `held` is a lock on `a1`, behind which `a2` waits."""

    server: Server
    disk: Disk
    environment: Environment
    copied: list[str]
    held: Lock

    def freed(self) -> None:
        self.disk.free(self.server)
        wait_until(lambda: status_of(self.server, "/ready") == 200, "still not ready")


@pytest.fixture
def full(fillable: tuple[Server, Disk]) -> Iterator[Full]:
    server, disk = fillable
    with closing(Environment(server)) as environment:
        yield fill(server, disk, environment)


def fill(server: Server, disk: Disk, environment: Environment) -> Full:
    """Publish to the exchange until the first refusal; what was accepted is in `copied`."""
    for queue in BOUND:
        environment.create_queue(queue)
    environment.create_exchange(EXCHANGE, *BOUND)
    environment.create_queue(LINE, fifo=True)
    environment.publish(LINE, "a1", "a2", messageGroupId="a")
    [held] = locks(environment.get(LINE, count=1))
    disk.fill(server)
    copied: list[str] = []
    while publish(environment, EXCHANGE, f"m{len(copied)}")[0] == 201:
        copied.append(f"m{len(copied)}")
        assert len(copied) < PUBLISHES_MAX, "the disk never fills up"
    return Full(server, disk, environment, copied, held)


def big(id: str, **headers: Any) -> dict[str, Any]:
    return {**message(id, **headers), "body": BIG}


def publish(environment: Environment, destination: str, *ids: str, **headers: Any) -> Answer:
    return environment.try_publish(destination, [big(id, **headers) for id in ids])


def check_refused(answer: Answer) -> None:
    status, headers, body = answer
    assert status == 503, body
    assert 0 < int(headers["Retry-After"]) <= 60
    failure = json.loads(body)
    assert failure["status"] == "failure" and failure["statusMessage"], failure


def check_copies(environment: Environment, expected: Sequence[str]) -> None:
    for queue in BOUND:
        assert environment.backlog(queue) == {queue: len(expected)}
        assert environment.drained(queue) == list(expected)


def test_a_full_disk_refuses_and_what_found_no_room_is_on_no_queue(full: Full) -> None:
    """Neither then nor once there is room, and then it works again."""
    for destination in (EXCHANGE, LINE, *BOUND):
        check_refused(publish(full.environment, destination, "one"))
        check_refused(publish(full.environment, destination, "two", "three"))
    status, _, answer = full.environment.try_broker("GET", f"{LINE}/messages?pollingTime=500")
    assert status in (204, 503), answer
    # An app whose token is valid gets the same one, which needs no room.
    own = full.server.credentials["anypoint"]
    asked = {name: own[name] for name in ("client_id", "client_secret")}
    asked["grant_type"] = "client_credentials"
    given = full.environment.send("POST", "/api/v1/authorize", "", asked)
    assert good(given, 200)["access_token"] == full.environment.token
    counts = dict.fromkeys(BOUND, len(full.copied))
    assert full.environment.backlog(*BOUND) == counts
    full.freed()
    assert full.environment.backlog(*BOUND) == counts
    assert publish(full.environment, EXCHANGE, "late", "later")[0] == 200
    check_copies(full.environment, [*full.copied, "late", "later"])
    assert "Traceback" not in full.server.log()


def test_a_server_with_a_full_disk_still_stops_as_planned(full: Full) -> None:
    """What it has counted cannot be written down any more, and that is no failure."""
    for number in range(SMALL_PUBLISHES_MAX):
        if full.environment.try_publish(BOUND[0], [message(f"small-{number}")])[0] == 503:
            break
    else:
        pytest.fail("there was room for everything")
    full.server.stop()
