"""What a key for one queue could do to another by way of its own: each is refused."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.conformance.reach.world import WRITE, Credential, Side, World


class Holder:
    """A key for `alpha`, and where to use it."""

    def __init__(self, world: World, *sides: Side, names: tuple[str, ...] = ()) -> None:
        self.world = world
        self.key: Credential = world.credential(WRITE, *(side.queue for side in sides), *names)

    def send(self, site: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.world.http.request(method, path, json=body, headers=self.key.headers(site))

    def queue(self, side: Side) -> str:
        own = side.params["cloudflare"]
        return f"/client/v4/accounts/{own['account_id']}/queues/{own['queue_id']}"

    def region(self, side: Side) -> str:
        own = side.params["anypoint"]
        environment = f"/organizations/{own['organizationId']}/environments/{own['environmentId']}"
        return f"/mq/admin/api/v1{environment}/regions/{own['regionId']}"

    def messages(self, side: Side, destination: str) -> str:
        own = side.params["anypoint"]
        environment = f"/organizations/{own['organizationId']}/environments/{own['environmentId']}"
        return f"/api/v1{environment}/destinations/{destination}/messages"


@pytest.fixture
def alpha(new_side: Callable[[], Side]) -> Side:
    return new_side()


@pytest.fixture
def charlie(world: World) -> Side:
    """Beyond reach, and free to be changed."""
    return world.side("charlie")


@pytest.fixture
def holder(world: World, alpha: Side) -> Holder:
    return Holder(world, alpha)


@pytest.mark.parametrize("name", ["bravo", "unknown"])
def test_dead_letters_go_nowhere_beyond_reach(
    world: World, holder: Holder, alpha: Side, bravo: Side, name: str
) -> None:
    target = bravo.queue if name == "bravo" else "unknown"
    consumers = f"{holder.queue(alpha)}/consumers/{alpha.params['cloudflare']['consumer_id']}"
    wanted = {"type": "http_pull", "dead_letter_queue": target}
    answer = holder.send("cloudflare", "PUT", consumers, wanted)
    assert answer.status_code == 403, answer.text
    queue = f"{holder.region(alpha)}/destinations/queues/{alpha.queue}"
    for method in ("PUT", "PATCH"):
        answer = holder.send("anypoint", method, queue, {"deadLetterQueueId": target})
        assert answer.status_code == 400 and "does not exist" in answer.text
    assert "deadLetterQueueId" not in world.call("anypoint", "GET", queue)


def test_dead_letters_go_to_a_queue_within_reach(world: World, alpha: Side, charlie: Side) -> None:
    holder = Holder(world, alpha, charlie)
    queue = f"{holder.region(alpha)}/destinations/queues/{alpha.queue}"
    answer = holder.send("anypoint", "PUT", queue, {"deadLetterQueueId": charlie.queue})
    assert answer.json()["deadLetterQueueId"] == charlie.queue


def test_neither_end_of_dead_letters_is_shown_beyond_reach(
    world: World, holder: Holder, alpha: Side, charlie: Side
) -> None:
    region = holder.region(alpha)
    for side, into in ((alpha, charlie), (charlie, alpha)):
        queue = f"{region}/destinations/queues/{side.queue}"
        world.call("anypoint", "PATCH", queue, {"deadLetterQueueId": into.queue})
    own = f"{region}/destinations/queues/{alpha.queue}"
    assert charlie.queue in json.dumps(world.call("anypoint", "GET", own))
    for site, path in (
        ("anypoint", own),
        ("anypoint", f"{region}/destinations"),
        ("cloudflare", holder.queue(alpha)),
        ("cloudflare", f"{holder.queue(alpha)}/consumers"),
    ):
        answer = holder.send(site, "GET", path)
        assert answer.status_code == 200 and alpha.queue in answer.text
        assert charlie.queue not in answer.text, path


def test_a_queue_that_others_bury_in_is_not_deleted_from_under_them(
    world: World, holder: Holder, alpha: Side, charlie: Side
) -> None:
    other = f"{holder.region(alpha)}/destinations/queues/{charlie.queue}"
    world.call("anypoint", "PATCH", other, {"deadLetterQueueId": alpha.queue})
    for site, path in (
        ("cloudflare", holder.queue(alpha)),
        ("anypoint", f"{holder.region(alpha)}/destinations/queues/{alpha.queue}"),
        ("discue", f"/v1/queues/{alpha.params['discue']['queue_id']}"),
    ):
        answer = holder.send(site, "DELETE", path)
        assert answer.status_code == 403, answer.text
        assert charlie.queue not in answer.text
    assert world.call("anypoint", "GET", other)["deadLetterQueueId"] == alpha.queue


def test_a_queue_is_not_renamed(holder: Holder, alpha: Side, bravo: Side) -> None:
    for name in (bravo.queue, "free-name"):
        changed = holder.send("cloudflare", "PATCH", holder.queue(alpha), {"queue_name": name})
        assert changed.status_code == 403, changed.text
        path = f"/v1/queues/{alpha.params['discue']['queue_id']}"
        assert holder.send("discue", "PUT", path, {"name": name}).status_code == 403
    same = holder.send("cloudflare", "PATCH", holder.queue(alpha), {"queue_name": alpha.queue})
    assert same.status_code == 200, same.text


def test_an_exchange_is_reached_with_all_queues_bound_to_it_or_by_name(
    world: World, holder: Holder, alpha: Side, charlie: Side
) -> None:
    exchange = alpha.params["anypoint"]["exchangeId"]
    at = holder.messages(alpha, exchange)
    assert holder.send("anypoint", "PUT", at, [{"body": "x"}]).status_code == 200
    # Bound to another queue as well, what is published there would reach that too.
    bindings = f"{holder.region(alpha)}/bindings/exchanges/{exchange}"
    world.call("anypoint", "PUT", f"{bindings}/queues/{charlie.queue}")
    before = len(world.call("discue", "GET", _listed(charlie))["messages"])
    assert holder.send("anypoint", "PUT", at, [{"body": "x"}]).status_code == 403
    assert holder.send("anypoint", "DELETE", f"{bindings}/queues/{alpha.queue}").status_code == 403
    assert holder.send("anypoint", "GET", bindings).status_code == 403
    of_queue = f"{holder.region(alpha)}/bindings/queues/{alpha.queue}"
    assert holder.send("anypoint", "GET", of_queue).json() == []
    assert len(world.call("discue", "GET", _listed(charlie))["messages"]) == before
    named = Holder(world, names=(exchange,))
    assert named.send("anypoint", "PUT", at, [{"body": "x"}]).status_code == 200
    assert named.send("anypoint", "GET", bindings).json() == []
    assert len(world.call("discue", "GET", _listed(charlie))["messages"]) == before + 1


def test_a_queue_is_not_bound_to_an_exchange_beyond_reach(
    holder: Holder, alpha: Side, bravo: Side
) -> None:
    for exchange, queue in (
        (bravo.params["anypoint"]["exchangeId"], alpha.queue),
        (alpha.params["anypoint"]["exchangeId"], bravo.queue),
    ):
        binding = f"{holder.region(alpha)}/bindings/exchanges/{exchange}/queues/{queue}"
        assert holder.send("anypoint", "PUT", binding).status_code == 403


def test_a_subscription_is_not_moved_out_of_reach(
    world: World, holder: Holder, alpha: Side, bravo: Side
) -> None:
    own = alpha.params["cloudflare"]
    at = f"/client/v4/accounts/{own['account_id']}/event_subscriptions/subscriptions"
    away = {"type": "queues.queue", "queue_id": bravo.params["cloudflare"]["queue_id"]}
    moved = holder.send(
        "cloudflare", "PATCH", f"{at}/{own['subscription_id']}", {"destination": away}
    )
    assert moved.status_code == 403, moved.text
    found = world.call("cloudflare", "GET", f"{at}/{own['subscription_id']}")["result"]
    assert found["destination"]["queue_id"] == own["queue_id"]


@pytest.mark.parametrize("kind", ["courier.queue", "courier.message"])
def test_what_courier_tells_of_all_queues_is_not_for_a_key_of_one(
    holder: Holder, alpha: Side, kind: str
) -> None:
    own = alpha.params["cloudflare"]
    at = f"/client/v4/accounts/{own['account_id']}/event_subscriptions/subscriptions"
    body = {
        "source": {"type": kind},
        "events": ["created" if kind == "courier.queue" else "buried"],
        "destination": {"type": "queues.queue", "queue_id": own["queue_id"]},
    }
    assert holder.send("cloudflare", "POST", at, body).status_code == 403


def test_dead_letters_are_not_sent_back_beyond_reach(
    world: World, holder: Holder, alpha: Side, charlie: Side
) -> None:
    source = f"{holder.region(alpha)}/destinations/queues/{charlie.queue}"
    limits = {"deadLetterQueueId": alpha.queue, "maxDeliveries": 1}
    world.call("anypoint", "PATCH", source, limits)
    at = holder.messages(charlie, charlie.queue)
    (got,) = world.call("anypoint", "GET", f"{at}?pollingTime=0&batchSize=1")
    headers = got["headers"]
    world.call("anypoint", "DELETE", f"{at}/{headers['messageId']}/locks/{headers['lockId']}")
    redrive = f"/courier/v1/tenants/{world.tenant}/queues/{alpha.queue}/redrive"
    answer = holder.send("courier", "POST", redrive, {})
    assert answer.status_code == 200 and answer.json()["redriven"] == 0, answer.text
    assert world.call("courier", "POST", redrive, {})["redriven"] == 1


def test_a_key_for_some_queues_is_given_no_scope_of_the_whole_tenant(
    world: World, alpha: Side
) -> None:
    keys = f"/courier/v1/tenants/{world.tenant}/keys"
    admin = {"Authorization": f"Bearer {world.server.credentials['admin']['token']}"}
    for scope in ("journal", "admin"):
        body = {"name": f"no-{scope[:4]}", "scopes": ["write", scope], "targets": [alpha.queue]}
        answer = world.http.post(keys, json=body, headers=admin)
        assert answer.status_code == 400 and scope in answer.text, answer.text


def test_a_limited_key_that_makes_keys_gives_no_more_than_it_has(
    world: World, holder: Holder, alpha: Side, bravo: Side
) -> None:
    holder.key = world.credential([*WRITE, "keys:read", "keys:write"], alpha.queue)
    own = bravo.params["anypoint"]
    clients = (
        f"/mq/admin/api/v1/organizations/{own['organizationId']}"
        f"/environments/{own['environmentId']}/clients"
    )
    assert world.call("anypoint", "GET", clients) != []
    assert holder.send("anypoint", "GET", clients).json() == [], "apps reach all queues"
    assert holder.send("anypoint", "PUT", clients, {"name": "new-app"}).status_code == 403
    assert holder.send("anypoint", "POST", f"{clients}/{own['clientId']}").status_code == 403
    assert holder.send("discue", "POST", "/v1/api_keys", {}).status_code == 403
    for target, status in ((bravo, 403), (alpha, 200)):
        targets = [target.params["discue"]["queue_id"]]
        scopes = [{"resource": "queues", "access": "read", "targets": targets}]
        answer = holder.send("discue", "POST", "/v1/api_keys", {"scopes": scopes})
        assert answer.status_code == status, answer.text


def test_a_key_for_one_queue_sees_no_domain(holder: Holder) -> None:
    assert holder.send("discue", "GET", "/v1/domains").json()["domains"] == []


def _listed(side: Side) -> str:
    return f"/v1/queues/{side.params['discue']['queue_id']}/messages?per_page=100"
