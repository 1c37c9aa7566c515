"""Every call for a file outside the database fails once, in turn.

Keys, credentials, the record of the clock, plans and whatever else the routes below write: the
answer is a success or one clear refusal, no part of a file is left, and the same request, or the
next start, then succeeds.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier import app
from courier.core.errors import Unavailable
from courier.core.types import Tenant
from courier.sealing import BadKey
from tests.console.conftest import Visitor, new_queue
from tests.faults.lying import Fault, lying_disk
from tests.faults.test_lying_server import Lying
from tests.faults.test_power_loss_files import NOW_MS, Started

pytestmark = pytest.mark.slow
OWN_CALLS = "own open,own write,own sync,own delete,own create,own unlink"
CALLS_MAX = 100
MESSAGES = 3
BODY = "kept in a plan"


class World:
    """The server, and names that were not used before."""

    def __init__(self, lying: Lying) -> None:
        self.lying = lying
        self.server = lying.server
        self.numbers = count(1)
        self.visitor = Visitor(self.server)
        self.secret: str = self.server.credentials["admin"]["token"]
        self.visitor.sign_in(self.secret)

    def ask(self, method: str, path: str, value: Any = None) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.server.url}{path}",
            json=value,
            headers=(
                {"X-API-KEY": self.secret}
                if path.startswith("/v1")
                else {"Authorization": f"Bearer {self.secret}"}
            ),
            trust_env=False,
        )

    def tenant(self) -> dict[str, Any]:
        made = self.ask("POST", "/courier/v1/tenants", {"name": f"tenant-{next(self.numbers)}"})
        assert made.status_code == 200, made.text
        return dict(made.json())

    def plan(self) -> str:
        """A new plan to purge a queue with messages."""
        queue = new_queue(self.server, f"q{next(self.numbers)}")
        with self.server.client() as http:
            for _ in range(MESSAGES):
                assert http.post(f"/queues/{queue}/messages", json={"body": BODY}).is_success
        made = self.visitor.post("/console/plans", action="purge", queue=queue)
        assert made.status_code == 303, made.text
        return str(made.headers["location"])


Act = Callable[[], httpx.Response]


def create_tenant(world: World) -> Act:
    body = {"name": f"tenant-{next(world.numbers)}"}
    return lambda: world.ask("POST", "/courier/v1/tenants", body)


def rename_tenant(world: World) -> Act:
    made = world.ask("POST", "/v1/api_clients", {"name": f"tenant-{next(world.numbers)}"}).json()
    path, body = (
        f"/v1/api_clients/{made['api_client']['id']}",
        {"name": f"renamed-{next(world.numbers)}"},
    )
    return lambda: world.ask("PUT", path, body)


def delete_tenant(world: World) -> Act:
    path = f"/courier/v1/tenants/{world.tenant()['tenant']['name']}"
    return lambda: world.ask("DELETE", path)


def rotate_key(world: World) -> Act:
    """The answer is the only place of the new secret if the file could not be written."""
    keys = "/courier/v1/tenants/operator/keys"
    [key] = [each["id"] for each in world.ask("GET", keys).json()["keys"]]

    def rotate() -> httpx.Response:
        made = world.ask("POST", f"{keys}/{key}/rotate", {})
        assert made.status_code == 200, "it has another secret by then, which nobody would know"
        world.secret = made.json()["token"]
        assert world.ask("GET", keys).status_code == 200
        return made

    return rotate


def make_plan(world: World) -> Act:
    queue = new_queue(world.server, f"q{next(world.numbers)}")
    return lambda: world.visitor.post("/console/plans", action="purge", queue=queue)


def _over(world: World, answer: httpx.Response) -> httpx.Response:
    """Wait until the plan is over; it has met the fault, or done everything."""
    if answer.status_code != 303:
        return answer
    path, deadline = answer.headers["location"], time.monotonic() + 30
    while (facts := world.visitor.facts(path))["state"] in ("running", "choosing"):
        assert time.monotonic() < deadline, facts
        time.sleep(0.02)
    if facts["state"] == "done":
        assert facts["done"] == MESSAGES, facts
        return answer
    assert facts["plan"]["problem"] or facts["state"] in ("interrupted", "stopped"), facts
    return httpx.Response(503, json=facts)


def run_plan(world: World) -> Act:
    path = world.plan()
    return lambda: _over(world, world.visitor.post(f"{path}/run", confirm=str(MESSAGES)))


def undo_plan(world: World) -> Act:
    path = world.plan()
    assert _over(world, world.visitor.post(f"{path}/run", confirm=str(MESSAGES))).is_redirect
    undone: list[str] = []

    def undo() -> httpx.Response:
        """An undo that was begun is gone on with."""
        path_now = f"{undone[0]}/run" if undone else f"{path}/undo"
        answer = world.visitor.post(path_now)
        if answer.status_code == 303:
            undone[:] = [answer.headers["location"]]
        return _over(world, answer)

    return undo


STEPS = [
    create_tenant, rename_tenant, delete_tenant, rotate_key, make_plan, run_plan, undo_plan,
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    lying = Lying(tmp_path_factory.mktemp("lying"))
    with lying.server.start():
        world = World(lying)
        yield world
        world.visitor.close()
    assert "Traceback" not in lying.server.log()


def _said(answer: httpx.Response) -> str:
    """The words of a page, or all of another answer."""
    page = answer.text.partition("<main")[2].partition(">")[2] or answer.text
    return " ".join(re.sub("<[^>]*>", " ", page).split())[:500]


def whole(data: Path) -> None:
    """There are no parts of files, and what is there can be read."""
    assert [*data.rglob("*.new")] == []
    for file in data.rglob("*.json"):
        json.loads(file.read_bytes())


@pytest.mark.parametrize(
    ("kinds", "times", "error"),
    [
        pytest.param(OWN_CALLS, 1, "EIO", id="once-EIO"),
        pytest.param(OWN_CALLS, 1, "ENOSPC", id="once-ENOSPC"),
        pytest.param(OWN_CALLS, 1, "short", id="once-short"),
        pytest.param("own write", 1_000_000, "ENOSPC", id="all-writes"),
        pytest.param("own sync", 1_000_000, "EIO", id="all-syncs"),
    ],
)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_call_for_a_file_that_fails_is_one_refusal_at_most(
    world: World, step: Callable[[World], Act], error: str, kinds: str, times: int
) -> None:
    for number in range(1, CALLS_MAX):
        act = step(world)
        said = len(world.server.log())
        failed = world.lying.failed()
        world.lying.fail(kinds, number, error, times)
        answer = act()
        world.lying.heal()
        told = f"{error} {number} {world.lying.failed()[len(failed) :]}: {_said(answer)}"
        assert answer.is_success or answer.status_code in (303, 503), told
        assert "Traceback" not in world.server.log()[said:], told
        whole(world.server.data)
        if answer.status_code == 503:
            again = act()
            assert again.is_success or again.status_code == 303, f"{told}\n{_said(again)}"
        if len(world.lying.failed()) == len(failed):
            break
    assert number < CALLS_MAX - 1 and (number > 1 or times > 1)


def test_a_body_that_was_damaged_in_a_plan_is_not_published_again(world: World) -> None:
    path = world.plan()
    assert _over(world, world.visitor.post(f"{path}/run", confirm=str(MESSAGES))).is_redirect
    file = world.server.data / "plans" / f"{path.rpartition('/')[2]}.arrow"
    good = file.read_bytes()
    file.write_bytes(good.replace(BODY.encode(), BODY.upper().encode(), 1))
    stopped = _over(world, world.visitor.post(f"{path}/undo"))
    assert stopped.status_code == 503 and "damaged" in stopped.json()["plan"]["problem"]
    assert stopped.json()["done"] == 0
    file.write_bytes(good)
    assert _over(world, world.visitor.post(f"{path}/undo")).is_redirect


async def start(data: Path) -> None:
    """All that a server does before it listens, on a directory that may be new."""
    app._prepare(data)
    async with Started(data) as started:
        await app._first_start(started.courier, started.config)
        for tenant in started.store.records.scan(Tenant):
            await started.check_tenant(tenant)
        with suppress(OSError):  # the next one goes by the wall clock
            started.record.keep(NOW_MS)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "short"])
def test_a_call_for_a_file_that_fails_once_costs_one_start_at_most(
    tmp_path: Path, error: str
) -> None:
    """What it raises is what `serve` says in one sentence."""
    for number in range(1, CALLS_MAX):
        data = tmp_path / f"{number}" / "data"
        with lying_disk(tmp_path, Fault(tuple(OWN_CALLS.split(",")), number, error)) as disk:
            with suppress(Unavailable, OSError):
                asyncio.run(start(data))
            disk.fault = None
            whole(tmp_path)
            asyncio.run(start(data))
        if not disk.failed:
            break
    assert 10 < number < CALLS_MAX - 1


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 512, b"\xff", b"null", b"{}", b'{"a":1}', b'["a"]', b"[" * 100_000]
)
def test_a_file_that_is_not_what_was_written_is_one_sentence_or_does_not_matter(
    tmp_path: Path, content: bytes
) -> None:
    """What `start` may raise, `serve` says in one sentence."""
    data = tmp_path / "data"
    asyncio.run(start(data))
    ours = [file for file in data.iterdir() if not file.name.startswith("courier.db")]
    assert len(ours) == 4
    for file in ours:
        before = file.read_bytes()
        file.write_bytes(content)
        try:
            asyncio.run(start(data))
        except (Unavailable, BadKey, OSError) as error:
            assert "\n" not in str(error) and len(str(error)) < 500
        else:
            assert file.name in ("clock.json", "courier.reserve")
        file.write_bytes(before)
    asyncio.run(start(data))
