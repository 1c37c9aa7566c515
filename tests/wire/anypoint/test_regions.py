"""Regions: how they are listed, how a client names one, and that each has its own names."""

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server import Server
from tests.wire.anypoint.answers import admin_fail, fail, ok
from tests.wire.anypoint.destination import Exchange, Queue, new_name
from tests.wire.anypoint.environment import Environment, root_client
from tests.wire.anypoint.shapes import exchange_object, queue_object

OWN = "us-east-1"
FALLBACKS = {
    "us-east-1": "us-east-2",
    "us-east-2": "us-west-2",
    "us-west-2": "ca-central-1",
    "ca-central-1": "us-east-1",
    "eu-west-1": "eu-west-2",
    "eu-west-2": "eu-west-1",
    "eu-central-1": "eu-west-1",
    "ap-southeast-1": "ap-northeast-1",
    "ap-southeast-2": "ap-southeast-1",
    "ap-northeast-1": "ap-southeast-2",
    "us-gov-west-1": None,
}


def regions(env: Environment, path: str = "", *, token: str | None = None) -> httpx.Response:
    return env.call("GET", f"{env.admin_path}/regions{path}", token=token or env.tokens.user)


def check(region: Any) -> None:
    assert set(region) == {"id", "regionId", "name", "type", "serviceUrl", "fallbackRegion"}
    assert region["id"] == region["regionId"]
    assert isinstance(region["name"], str) and region["name"]
    assert isinstance(region["type"], str) and region["type"]
    assert region["fallbackRegion"] == FALLBACKS[region["id"]]
    url = urlsplit(region["serviceUrl"])
    assert (url.scheme, url.path) == ("http", "/api/v1")


def test_all_regions_are_listed_the_servers_own_first(env: Environment) -> None:
    found = ok(regions(env))
    for region in found:
        check(region)
    ids = [region["id"] for region in found]
    assert ids[0] == OWN == env.region
    assert sorted(ids) == sorted(FALLBACKS)


@pytest.mark.parametrize("id", FALLBACKS)
def test_a_region_is_shown_as_it_is_listed(env: Environment, id: str) -> None:
    region = ok(regions(env, f"/{id}"))
    check(region)
    assert region in ok(regions(env))


@pytest.mark.parametrize("id", ["mars-north-1", "US-EAST-1", "us-east", "us-east-1x", "%20"])
def test_an_unknown_region_is_not_found(env: Environment, id: str) -> None:
    assert admin_fail(regions(env, f"/{id}"), 404) == "region not found"


def test_the_address_of_the_servers_own_region_is_the_servers(
    env: Environment, server: Server, queue: Queue
) -> None:
    url = ok(regions(env, f"/{OWN}"))["serviceUrl"]
    assert url == f"{server.url}/api/v1"


@pytest.mark.parametrize("id", ["us-east-2", "eu-west-1"])
def test_the_address_of_another_region_names_it_in_the_host(
    env: Environment, server: Server, id: str
) -> None:
    url = urlsplit(ok(regions(env, f"/{id}"))["serviceUrl"])
    assert url.hostname is not None and url.hostname.startswith(f"mq-{id}.")
    assert url.port == server.port


# --- what a host names ---


@pytest.fixture
def twins(env: Environment) -> tuple[Queue, Queue]:
    """Queues of the same name, in the server's own region and in Ireland."""
    here = Queue.create(env)
    return here, Queue.create(env.in_region("eu-west-1"), here.name)


def bodies(queue: Queue, host: str | None) -> list[str]:
    """What a client gets who believes to call this host."""
    headers = {} if host is None else {"Host": host}
    path = queue.at("?pollingTime=0&batchSize=10&lockTtl=0")
    response = queue.env.broker("GET", path, headers=headers)
    return [] if response.status_code == 204 else [each["body"] for each in ok(response)]


def test_the_host_says_which_region_is_meant(twins: tuple[Queue, Queue]) -> None:
    here, there = twins
    here.publish("here")
    there.publish("there")
    for host in (
        *(None, "localhost", "127.0.0.1:8787", "mq-us-east-1.anypoint.mulesoft.com"),
        *("mq-mars-north-1.example.org", "mq-eu-west-1", "x-mq-eu-west-1.example.org"),
        "eu-west-1.example.org",
    ):
        assert bodies(here, host) == ["here"], host
    for host in (
        *("mq-eu-west-1.localhost", "mq-eu-west-1.localhost:8787"),
        *("mq-eu-west-1.anypoint.mulesoft.com", "mq-eu-west-1.eu1.anypoint.mulesoft.com"),
        "MQ-EU-WEST-1.example.org",
    ):
        assert bodies(here, host) == ["there"], host


def test_the_host_says_nothing_to_admin_and_stats(twins: tuple[Queue, Queue]) -> None:
    here, there = twins
    here.publish("one")
    there.publish_batch(["one", "two"])
    env = here.env
    for queue, count in ((here, 1), (there, 2)):
        for host in ("mq-us-east-1.example.org", "mq-eu-west-1.example.org"):
            headers = {"Host": host}
            found = queue.env.admin("GET", queue.admin_at(), headers=headers)
            assert ok(found) == queue_object(here.name)
            path = f"{queue.env.stats_path}/queues?destinationIds={here.name}"
            current = env.call("GET", path, token=env.tokens.user, headers=headers)
            assert ok(current) == [
                {"destination": here.name, "messages": count, "inflightMessages": 0}
            ]


# --- names of a region ---


def test_the_same_name_in_another_region_is_another_queue(twins: tuple[Queue, Queue]) -> None:
    here, there = twins
    here.change(defaultTtl=60_000)
    assert there.settings() == queue_object(here.name)
    here.publish("here")
    assert there.get() == []
    here.delete()
    assert there.settings() == queue_object(here.name)
    there.publish("there")
    assert there.get_one().body == "there"
    fail(here.poll(pollingTime=0), 404)


def test_a_name_may_be_a_queue_here_and_an_exchange_there(env: Environment) -> None:
    here = Queue.create(env)
    Exchange.create(env.in_region("eu-west-1"), here.name)
    assert here.settings() == queue_object(here.name)


def test_a_list_holds_what_is_in_its_region(env: Environment) -> None:
    there, prefix = env.in_region("ap-northeast-1"), new_name("list")
    Queue.create(env, f"{prefix}-a")
    Queue.create(there, f"{prefix}-b")
    Exchange.create(there, f"{prefix}-c")
    query = f"/destinations?startsWith={prefix}"
    assert ok(env.admin("GET", query)) == [queue_object(f"{prefix}-a")]
    assert ok(there.admin("GET", query)) == [
        queue_object(f"{prefix}-b"),
        exchange_object(f"{prefix}-c"),
    ]


def test_an_exchange_copies_within_its_region(env: Environment) -> None:
    there = env.in_region("eu-west-2")
    exchange, queue = Exchange.create(there), Queue.create(there)
    exchange.bind(queue)
    path = f"/bindings/exchanges/{exchange.name}"
    assert ok(there.admin("GET", path)) == [
        {"exchangeId": exchange.name, "queueId": queue.name, "fifo": False}
    ]
    admin_fail(env.admin("GET", path), 404)
    exchange.publish("within")
    assert queue.get_one().body == "within"
    fail(Exchange(env, exchange.name).put("m", {"body": "a"}), 404, "m")


def test_a_long_name_in_a_long_region_is_good(env: Environment) -> None:
    there = env.in_region("ap-northeast-1")
    queue = Queue.create(there, ("x" * 110 + new_name())[:127])
    queue.publish("a")
    assert queue.get_one().body == "a"
    queue.delete()


# --- another region of one's own ---


@pytest.fixture(scope="module")
def european(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("european")
    server = Server(directory, env={"COURIER_REGION": "eu-central-1"}).start()
    yield server
    server.stop()


def test_the_operator_says_which_region_is_the_servers_own(european: Server) -> None:
    assert european.credentials["anypoint"]["region"] == "eu-central-1"
    with root_client(european.url) as http:
        env = Environment.of(http, european.credentials)
        assert ok(regions(env))[0]["id"] == "eu-central-1"
        assert ok(regions(env, "/eu-central-1"))["serviceUrl"] == f"{european.url}/api/v1"
        queue = Queue.create(env)
        queue.publish("here")
        assert bodies(queue, None) == ["here"]
        assert bodies(queue, "mq-eu-central-1.example.org") == ["here"]
        american = Queue(env.in_region("us-east-1"), queue.name)
        fail(american.poll(pollingTime=0), 404)
