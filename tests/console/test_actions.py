"""Every action of the console: what refuses it, what it does, how it is undone. The journal judges.

Replays need a lake, and are in tests/lake.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest

from tests.console.conftest import Visitor, new_key, new_queue
from tests.server import Server

HOOK = "http://127.0.0.1:9/hook"
PLANS, KEYS, CONNECTIONS = (
    "/console/plans",
    "/console/settings/keys",
    "/console/settings/connections",
)


class World:
    """One queue with three messages, its dead-letter queue with two, and who acts on them."""

    def __init__(self, server: Server, visitor: Visitor, name: str) -> None:
        self.server, self.visitor, self.name = server, visitor, name
        self.dead, self.queue = new_queue(server, f"{name}-dead"), new_queue(server, name)
        self.at = f"/console/queues/{self.queue}"
        with server.client() as http:
            http.post(f"/queues/{self.queue}/consumers", json={
                "type": "http_pull", "dead_letter_queue": f"{name}-dead",
                "settings": {"max_retries": 0}})  # fmt: skip
            self._publish(http, 2)
            pulled = http.post(f"/queues/{self.queue}/messages/pull", json={"batch_size": 2}).json()
            leases = [{"lease_id": each["lease_id"]} for each in pulled["result"]["messages"]]
            http.post(f"/queues/{self.queue}/messages/ack", json={"retries": leases})
            self._publish(http, 3)
        self.mark()

    def _publish(self, http: httpx.Client, count: int) -> None:
        batch = [{"body": n, "content_type": "json"} for n in range(count)]
        http.post(f"/queues/{self.queue}/messages/batch", json={"messages": batch})

    def mark(self) -> None:
        self._after = int(self._journal("/journal/head", {}).json()["last"])

    def _journal(self, path: str, params: dict[str, int]) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {self.server.credentials['admin']['token']}"}
        return httpx.get(f"{self.server.url}{path}", params=params, headers=bearer)

    def kinds(self) -> dict[str, int]:
        """How many events of which kind the console caused since the mark."""
        lines = self._journal("/journal", {"after": self._after, "limit": 5_000}).text.splitlines()
        events = [json.loads(line) for line in lines]
        own = [each["kind"] for each in events if each["dialect"] == "console"]
        return dict(Counter(kind for kind in own if not kind.startswith("session")))

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.visitor.post(path, **fields)

    def planned(self, **fields: str) -> str:
        return self.visitor.follow(self.post(PLANS, **fields)).url.path

    def plan(self, *, confirm: str = "", **fields: str) -> str:
        """Make a plan and run it; the path that undoes it."""
        path = self.planned(**fields)
        answer = self.post(f"{path}/run", confirm=confirm)
        assert answer.status_code == 303, answer.text
        return f"{path}/undo"

    def listener(self) -> str:
        [listener] = self.visitor.facts(self.at)["listeners"] or [None]
        assert listener is not None
        return f"{self.at}/listeners/{listener['id']}"

    def key(self) -> str:
        rows = self.visitor.facts(KEYS)["rows"]
        return next(str(row["id"]) for row in rows if row["name"] == self.name)

    def settings(self, **fields: str) -> httpx.Response:
        facts = self.visitor.facts(self.at)
        form = {"lease": "30s", "attempts": "1", "retry": "0s", "delay": "0s", "retention": "4d",
                "dead_letter": f"{self.name}-dead", "modified": str(facts["modified_ms"]),
                **fields}  # fmt: skip
        return self.post(f"{self.at}/settings", **form)

    def set_back(self) -> httpx.Response:
        query = f"queue={self.queue}&kind=queue_updated"
        event = self.visitor.facts(f"/console/events?{query}")["rows"][0]["offset"]
        shown = self.visitor.facts(f"{self.at}/settings?event={event}")
        return self.settings(**shown["filled"], confirm="true")


def _plain(verb: str) -> Callable[[World], Any]:
    return lambda world: world.post(f"{world.at}/{verb}")


class Action(NamedTuple):
    """`refused` is answered with 4xx and changes nothing; `undo` undoes what `done` did.

    Both may use the path that `done` answered with.
    """

    refused: Callable[[World], httpx.Response]
    done: Callable[[World], Any]
    kinds: dict[str, int]
    undo: Callable[[World, str], Any]
    undone: dict[str, int]


def _undo(world: World, path: str) -> httpx.Response:
    return world.post(path)


def _typed(world: World, action: str, **fields: str) -> httpx.Response:
    return world.post(f"{world.planned(action=action, **fields)}/run", confirm="something else")


UPDATED = {"queue_updated": 1}
ACTIONS = {
    "publish": Action(
        lambda world: world.post(f"{world.at}/publish", body="{", kind="json"),
        lambda world: world.post(f"{world.at}/publish", body="{}", kind="json"),
        {"published": 1},
        lambda world, _: world.plan(action="delete", queue=world.queue, selected="6"),
        {"deleted": 1},
    ),
    **{
        verb: Action(
            lambda world, verb=verb: world.post(f"/console/queues/nowhere/{verb}"),  # type: ignore[misc]
            _plain(verb),
            UPDATED,
            lambda world, _, back=back: world.post(f"{world.at}/{back}"),  # type: ignore[misc]
            UPDATED,
        )
        for verb, back in (("pause", "resume"), ("freeze", "unfreeze"))
    },
    "settings": Action(
        lambda world: world.settings(lease="soon"),
        lambda world: world.settings(lease="2m", confirm="true"),
        UPDATED,
        lambda world, _: world.set_back(),
        UPDATED,
    ),
    "delete messages": Action(
        lambda world: world.post(PLANS, action="delete", queue=world.queue),
        lambda world: world.plan(action="delete", queue=world.queue, selected="3,5"),
        {"deleted": 2},
        _undo,
        {"published": 2},
    ),
    "purge": Action(
        lambda world: world.post(PLANS, action="purge", queue="nowhere"),
        lambda world: world.plan(action="purge", queue=world.queue),
        {"deleted": 3},
        _undo,
        {"published": 3},
    ),
    "redrive": Action(
        lambda world: world.post(PLANS, action="redrive"),
        lambda world: world.plan(action="redrive", selected=world.dead),
        {"published": 2, "deleted": 2},
        _undo,
        {"published": 2, "deleted": 2},
    ),
    "create a queue": Action(
        lambda world: world.post("/console/queues", name="No Name"),
        lambda world: world.post("/console/queues", name=f"{world.name}-more"),
        {"queue_created": 1},
        lambda world, _: world.plan(
            action="delete_queue",
            queue=world.visitor.facts(f"/console?q={world.name}-more")["rows"][0]["id"],
            confirm=f"{world.name}-more",
        ),
        {"queue_deleted": 1},
    ),
    "create a listener": Action(
        lambda world: world.post(f"{world.at}/listeners", name="hook", url="mailto:x"),
        lambda world: world.post(f"{world.at}/listeners", name="hook", url=HOOK),
        {"listener_created": 1},
        lambda world, _: world.post(world.listener(), action="delete", confirm="hook"),
        {"listener_deleted": 1},
    ),
    "backfill a listener": Action(
        lambda world: world.post(PLANS, action="backfill", queue=world.queue, target="nobody"),
        lambda world: (
            world.post(f"{world.at}/listeners", name="hook", url=HOOK),
            world.plan(action="backfill", queue=world.queue,
                       target=world.listener().rpartition("/")[2]),
        ),
        {"listener_created": 1},
        lambda world, _: world.post(world.listener(), action="disable"),
        {"listener_updated": 1},
    ),
    "create a worker": Action(
        lambda world: world.post(CONNECTIONS, action="worker", name=world.name, url="nowhere"),
        lambda world: world.post(CONNECTIONS, action="worker", name=world.name, url=HOOK),
        {"worker_created": 1},
        lambda world, _: world.post(CONNECTIONS, action="remove_worker", target=world.name),
        {"worker_deleted": 1},
    ),
    "create a key": Action(
        lambda world: world.post(KEYS, name=world.name, scopes="everything"),
        lambda world: world.post(KEYS, name=world.name, scopes="read"),
        {"key_created": 1},
        lambda world, _: world.plan(action="delete_key", target=world.key(), confirm=world.name),
        {"key_deleted": 1},
    ),
    "delete a queue": Action(
        lambda world: _typed(world, "delete_queue", queue=world.queue),
        lambda world: world.plan(action="delete_queue", queue=world.queue, confirm=world.name),
        {"queue_deleted": 1, "consumer_deleted": 1},
        _undo,
        {"queue_created": 1, "consumer_created": 1, "queue_updated": 1, "published": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_refused_done_and_undone(server: Server, operator: Visitor, name: str) -> None:
    refused, done, kinds, undo, undone = ACTIONS[name]
    world = World(server, operator, f"act-{name.replace(' ', '-')}")
    answer = refused(world)
    assert 400 <= answer.status_code < 500 and world.kinds() == {}, answer.text
    path = done(world)
    assert world.kinds() == kinds
    world.mark()
    answer = undo(world, path if isinstance(path, str) else "")
    assert not isinstance(answer, httpx.Response) or answer.status_code < 400, answer.text
    assert world.kinds() == undone


@pytest.mark.parametrize("name", ACTIONS)
def test_a_key_that_only_reads_does_nothing(
    server: Server, visitor: Callable[..., Visitor], name: str
) -> None:
    reader = visitor(new_key(server, f"reads-{name.replace(' ', '-')}", ["read"])["token"])
    world = World(server, reader, f"not-{name.replace(' ', '-')}")
    with pytest.raises(AssertionError):
        answer = ACTIONS[name].done(world)
        assert not isinstance(answer, httpx.Response) or answer.status_code != 403
    assert world.kinds() == {}
