"""FIFO queues, exchanges and tokens: what a server knew before it stopped, it still knows."""

from typing import Any

import httpx
import pytest

from tests.faults.environment import locks, message_ids
from tests.faults.stories import Again, Ends, Stories, Story, Tenant
from tests.server import Server

pytestmark = pytest.mark.slow

story = Stories()


@story
def exchange_copies_as_before(tenant: Tenant) -> Story:
    environment = tenant.environment
    queues = [environment.create_queue(name) for name in ("all", "some")]
    exchange = environment.create_exchange("news", *queues)
    rule = {
        "propertyName": "kind",
        "propertyType": "STRING",
        "matcherType": "EQ",
        "value": "big",
    }
    path = f"/bindings/exchanges/{exchange}/queues/some"
    environment.admin("PUT", f"{path}/rules/routing", {"routingRules": [rule]})
    environment.publish(exchange, "before", kind="big")
    yield
    assert environment.admin("GET", f"{path}?inclusion=all")["routingRules"] == [rule]
    environment.publish(exchange, "one", kind="big")
    environment.publish(exchange, "two", "three", kind="small")
    assert environment.drained("all") == ["before", "one", "two", "three"]
    assert environment.drained("some") == ["before", "one"]


@story
def encrypted_message_can_be_read(tenant: Tenant) -> Story:
    environment = tenant.environment
    queue = environment.create_queue("secret", encrypted=True, fifo=True)
    environment.publish(queue, "a1", "a2", messageGroupId="a")
    yield
    environment.publish(queue, "a3", messageGroupId="a")
    assert [each["body"] for each in environment.get(queue)] == ["a1", "a2", "a3"]


@story
def what_was_counted_stays_counted(tenant: Tenant) -> Story:
    environment = tenant.environment
    queue = environment.create_queue("plain")
    exchange = environment.create_exchange("news", queue)
    environment.publish(exchange, "m1", "m2", "m3")
    assert environment.ack(queue, locks(environment.get(queue, count=2))) == [True, True]
    held = environment.get(queue)

    def counted() -> dict[str, int]:
        """Sums over an hour, and what is held now."""
        series = environment.series(f"queues/{queue}") | environment.series(f"exchanges/{exchange}")
        return {name: sum(point["value"] for point in points) for name, points in series.items()}

    before = counted()
    assert before == {
        "messages": 0,
        "inflightMessages": 1,
        "messagesVisible": 0,
        "messagesSent": 3,
        "messagesReceived": 3,
        "messagesAcked": 2,
        "messagesPublished": 3,
        "messagesDelivered": 3,
    }
    yield
    assert counted() == before
    assert environment.ack(queue, locks(held)) == [True]
    assert counted() == {**before, "inflightMessages": 0, "messagesAcked": 3}


# --- tokens ----------------------------------------------------------------------------------


class Desk:
    """Where credentials are traded for tokens, and where tokens are good."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self.own: dict[str, Any] = server.credentials["anypoint"]
        self.place = (
            f"/organizations/{self.own['organization_id']}"
            f"/environments/{self.own['environment_id']}"
        )

    def token(self, path: str, credentials: dict[str, str]) -> str:
        asked = {**credentials, "grant_type": "client_credentials"}
        answer = httpx.post(self._url + path, json=asked, trust_env=False, verify=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def app(self) -> dict[str, str]:
        return {name: self.own[name] for name in ("client_id", "client_secret")}

    def tokens(self) -> list[str]:
        """One each of a client app, a connected app and a user."""
        return [
            self.token("/api/v1/authorize", self.app()),
            self.token("/accounts/api/v2/oauth2/token", self.own["connected_app"]),
            self.token("/accounts/login", self.own["user"]),
        ]

    def ask(self, method: str, path: str, token: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(
            method, self._url + path, headers=headers, json=body, trust_env=False, verify=False
        )

    def statuses(self, token: str) -> tuple[int, int]:
        """Of a broker and of an admin request; 404 and 200 are what a good token gets."""
        message = f"/api/v1{self.place}/destinations/none/messages"
        admin = f"/mq/admin/api/v1{self.place}/regions"
        return (
            self.ask("GET", message, token).status_code,
            self.ask("GET", admin, token).status_code,
        )


@story
def token_stays_good(tenant: Tenant) -> Story:
    desk = Desk(tenant.server)
    tokens = desk.tokens()
    before = [desk.statuses(token) for token in tokens]
    assert before[1:] == [(404, 200), (404, 200)] and before[0][0] == 404
    yield
    assert [desk.statuses(token) for token in tokens] == before
    assert desk.token("/api/v1/authorize", desk.app()) == tokens[0], "apps share one token"
    yield
    assert [desk.statuses(token) for token in tokens] == before


@story
def token_that_was_ended_stays_ended(tenant: Tenant) -> Story:
    """By a new secret, or with its app."""
    desk = Desk(tenant.server)
    user = desk.tokens()[2]
    clients = f"/mq/admin/api/v1{desk.place}/clients"
    tokens = []
    for name, method in (("renewed", "POST"), ("deleted", "DELETE")):
        app = desk.ask("PUT", clients, user, {"name": name}).json()
        asked = {"client_id": app["clientId"], "client_secret": app["clientSecret"]}
        tokens.append(desk.token("/api/v1/authorize", asked))
        assert desk.statuses(tokens[-1])[0] == 404
        assert desk.ask(method, f"{clients}/{app['clientId']}", user).status_code == 200
        assert desk.statuses(tokens[-1]) == (401, 401)
    listed = desk.ask("GET", clients, user).json()
    yield
    assert [desk.statuses(token) for token in tokens] == [(401, 401)] * 2
    assert desk.ask("GET", clients, user).json() == listed
    renewed = next(each for each in listed if each["name"] == "renewed")
    asked = {"client_id": renewed["clientId"], "client_secret": renewed["clientSecret"]}
    assert desk.statuses(desk.token("/api/v1/authorize", asked))[0] == 404


# --- what ends while the server is away -------------------------------------------------------


@story
def message_whose_life_ends_while_the_server_is_away_is_gone(tenant: Tenant) -> Story:
    """And it no longer holds its group back."""
    environment = tenant.environment
    queue = environment.create_queue("line", fifo=True)
    environment.publish(queue, "a1", messageGroupId="a", ttl=400)
    old = environment.get(queue, count=1)
    assert message_ids(old) == ["a1"]
    environment.publish(queue, "a2", messageGroupId="a")
    yield
    assert message_ids(environment.get(queue, wait_ms=10_000)) == ["a2"]
    assert environment.ack(queue, locks(old)) == [False]


# --- all of them ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ends(storied_server: Server, again: Again) -> Ends:
    return story.tell(storied_server, again)


@pytest.mark.parametrize("name", story.names)
def test_what_a_server_knew_it_knows_when_it_is_back(ends: Ends, name: str) -> None:
    if error := ends[name]:
        raise error
