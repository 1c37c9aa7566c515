"""Paths, methods, hosts and headers of the broker API."""

import pytest

from tests.wire.anypoint.answers import JSON, fail, ok
from tests.wire.anypoint.destination import Queue, bodies, segment
from tests.wire.anypoint.environment import Environment

REGION, OTHER_REGION = "us-east-1", "us-east-2"


def test_a_slash_at_the_end_is_tolerated(queue: Queue) -> None:
    env, at = queue.env, queue.at
    assert env.broker("PUT", at("/m/"), {"body": "a"}).status_code == 201
    assert ok(env.broker("PUT", at("/"), [{"body": "b"}]))
    first, second = ok(env.broker("GET", at("/?pollingTime=0&batchSize=10")))
    lock = first["headers"]["lockId"]
    assert env.broker("PATCH", at(f"/m/locks/{lock}/"), {"ttl": 60}).status_code == 200
    assert env.broker("DELETE", at(f"/m/locks/{lock}/")).status_code == 200
    item = {name: second["headers"][name] for name in ("messageId", "lockId")}
    assert ok(env.broker("PATCH", at("/locks/"), [{**item, "ttl": 60}]))[0]["status"] == (
        "successful"
    )
    assert ok(env.broker("DELETE", at("/locks/"), [item]))[0]["status"] == "successful"
    found = queue.get()
    lock = {"lockId": found[0].lock}
    assert env.broker("DELETE", at("/m/"), lock).status_code == 200
    assert ok(env.broker("DELETE", at("/"), [found[1].item]))[0]["status"] == "successful"


def test_every_answer_is_json_in_utf_8_or_nothing(standing_queue: Queue) -> None:
    for method, path, body in (
        ("GET", "?batchSize=0", None),
        ("PUT", "/m", {"body": 5}),
        ("PUT", "", []),
        ("DELETE", "/m", {"lockId": "é"}),
        ("DELETE", "", [{"messageId": "é", "lockId": "🚚"}]),
    ):
        response = standing_queue.env.broker(method, standing_queue.at(path), body)
        assert response.headers["content-type"] == JSON
        assert response.content.decode() == response.text
    assert "content-type" not in standing_queue.poll(pollingTime=0).headers


@pytest.mark.parametrize(
    "headers",
    [
        {"X-ANYPNT-ORG-ID": "another", "X-ANYPNT-ENV-ID": "another"},
        {"Cache-Control": "no-cache", "X-Correlation-ID": "c", "Postman-Token": "t"},
        {"Accept": "application/xml"},
        {"Accept-Encoding": "gzip, deflate"},
        {"Origin": "https://example.com"},
    ],
)
def test_other_headers_are_ignored(queue: Queue, headers: dict[str, str]) -> None:
    assert queue.put("m", {"body": "a"}, headers=headers).status_code == 201
    [found] = ok(queue.env.broker("GET", queue.at("?pollingTime=0"), headers=headers))
    lock = {"lockId": found["headers"]["lockId"]}
    assert queue.delete_message("m", lock, headers=headers).status_code == 200


@pytest.mark.parametrize("query", ["?a=b", "?a", "?a=1&a=2", "?&&", "?pollingTime=x"])
def test_unknown_parameters_are_ignored(queue: Queue, query: str) -> None:
    env = queue.env
    assert env.broker("PUT", queue.at("/m" + query), {"body": "a"}).status_code == 201
    assert env.broker("PUT", queue.at(query), [{"body": "a"}]).status_code == 200


def test_a_name_may_be_escaped_in_the_path(queue: Queue) -> None:
    escaped = "".join(f"%{ord(character):02x}" for character in queue.name)
    assert queue.env.broker("PUT", f"{escaped}/messages/m", {"body": "a"}).status_code == 201
    assert bodies(queue.get()) == ["a"]


def test_an_escaped_slash_stays_inside_its_segment(queue: Queue) -> None:
    for escaped, id in (("a%2Fb", "a/b"), ("a%2fb", "a/b"), ("a%252Fb", "a%2Fb"), ("%2F", "/")):
        response = queue.env.broker("PUT", queue.at(f"/{escaped}"), {"body": "x"})
        assert ok(response, 201)["messageId"] == id
        found = queue.get_one()
        assert found.id == id
        lock = {"lockId": found.lock}
        response = queue.env.broker("DELETE", queue.at(f"/{escaped}"), lock)
        assert ok(response)["messageId"] == id


def test_ids_of_organization_and_environment_may_be_in_capitals(env: Environment) -> None:
    queue = Queue.create(env)
    path = env.broker_path.replace(env.id, env.id.upper()).replace(
        env.organization, env.organization.upper()
    )
    response = env.call("PUT", f"{path}/{queue.at('/m')}", {"body": "a"}, token=env.tokens.app)
    assert response.status_code == 201


def test_a_name_that_nobody_could_create_is_not_found(standing_queue: Queue) -> None:
    for name in ("a/b", "a b", "ünï", "x" * 128, "_", "%", f"{standing_queue.name}@us-east-1"):
        response = standing_queue.env.broker("GET", f"{segment(name)}/messages?pollingTime=0")
        assert fail(response, 404) == "Destination not found"


# --- regions ---


@pytest.mark.parametrize(
    ("host", "reaches"),
    [
        ("mq-us-east-2.anypoint.mulesoft.com", True),
        ("mq-us-east-2.eu1.anypoint.mulesoft.com", True),
        ("MQ-US-EAST-2.x", True),
        ("mq-us-east-2.localhost:8787", True),
        ("mq-us-east-1.anypoint.mulesoft.com", False),
        ("mq-us-west-2.anypoint.mulesoft.com", False),
        ("mq-nowhere-9.anypoint.mulesoft.com", False),
        ("us-east-2.anypoint.mulesoft.com", False),
        ("example.com", False),
        ("x.mq-us-east-2.com", False),
    ],
)
def test_only_a_known_region_counts(env: Environment, host: str, reaches: bool) -> None:
    there = Queue.create(env.in_region(OTHER_REGION))
    response = env.broker("PUT", there.at("/m"), {"body": "a"}, headers={"Host": host})
    assert response.status_code == (201 if reaches else 404), response.text


def test_another_regions_destinations_do_everything(env: Environment) -> None:
    there = env.in_region("eu-west-1")
    dead = Queue.create(there)
    queue = Queue.create(there, deadLetterQueueId=dead.name, maxDeliveries=1)
    fifo = Queue.create(there, fifo=True)
    queue.publish("a", id="m")
    queue.nack(queue.get_one())
    assert dead.get_one().id == "m"
    for _ in range(2):
        fifo.publish("b", id="same")
    assert bodies(fifo.get()) == ["b"]
    # The names are those of that region only.
    for each in (dead, queue, fifo):
        assert Queue(env, each.name).poll(pollingTime=0).status_code == 404
