"""Unknown routes, wrong methods, and which of several mistakes is answered first."""

from typing import Any

import httpx
import pytest

from tests.wire.cloudflare.envelope import fail
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue

NO_ROUTE = (404, 7003)
WRONG_METHOD = (405, 7001)
NO_CREDENTIAL = (400, 9106)
NO_ACCESS = (403, 10000)
OTHER_ACCOUNT = "c0" + "7" * 30


ORDER: list[tuple[str, str, Any, tuple[int, int]]] = [
    # no access to the account, and besides: unknown queue, not JSON, bad body
    ("GET", f"/accounts/{OTHER_ACCOUNT}/queues/{UNKNOWN_ID}", None, NO_ACCESS),
    ("POST", f"/accounts/{OTHER_ACCOUNT}/queues", "{", NO_ACCESS),
    ("POST", f"/accounts/{OTHER_ACCOUNT}/queues/{UNKNOWN_ID}/messages", "{", NO_ACCESS),
    # the route comes before the account
    ("GET", f"/accounts/{OTHER_ACCOUNT}/nothing", None, NO_ROUTE),
    ("DELETE", f"/accounts/{OTHER_ACCOUNT}/queues", None, WRONG_METHOD),
    # an unknown queue comes before what the body says
    ("PUT", f"$account/queues/{UNKNOWN_ID}", "{", (404, 11000)),
    ("PATCH", f"$account/queues/{UNKNOWN_ID}", '{"queue_name": ""}', (404, 11000)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/consumers", "{", (404, 11000)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/purge", "{", (404, 11000)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages", "{", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages", "{}", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages/batch", "{", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages/pull", "{", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages/ack", "{", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages/peek", "{", (404, 10104)),
    ("POST", f"$account/queues/{UNKNOWN_ID}/messages/purge", "{", (404, 10104)),
    ("PATCH", f"$account/event_subscriptions/subscriptions/{UNKNOWN_ID}", "{", (404, 0)),
    # the body comes before the state: this queue has no pull consumer
    ("POST", "$queue/messages/pull", "{", (400, 10026)),
    ("POST", "$queue/messages/pull", '{"batch_size": 0}', (400, 10026)),
    ("POST", "$queue/messages/pull", "{}", (405, 0)),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    ORDER,
    ids=[f"{method}-{path.rpartition('/')[2]}-{code}" for method, path, _, (_, code) in ORDER],
)
def test_the_first_of_several_mistakes_is_answered(
    anonymous: httpx.Client,
    token: str,
    account: str,
    queue: Queue,
    method: str,
    path: str,
    body: str | None,
    expected: tuple[int, int],
) -> None:
    path = path.replace("$queue", f"$account/queues/{queue.id}")
    path = path.replace("$account", f"/accounts/{account}")
    content = None if body is None else body.encode()
    headers = {"Authorization": f"Bearer {token}"}
    fail(anonymous.request(method, path, content=content, headers=headers), *expected)


@pytest.mark.parametrize(
    "path", ["/nothing", "/accounts", f"/accounts/{OTHER_ACCOUNT}/queues/{UNKNOWN_ID}"]
)
@pytest.mark.parametrize("method", ["GET", "TRACE", "DELETE"])
def test_the_credential_comes_before_the_route(
    anonymous: httpx.Client, method: str, path: str
) -> None:
    fail(anonymous.request(method, path), *NO_CREDENTIAL)


@pytest.mark.parametrize(
    ("body", "code"), [("{", 10026), ('{"batch_size": 101}', 10026), ('{"batch_size": "1"}', 10026)]
)
def test_a_bad_pull_is_answered_before_the_pause(pull_queue: Queue, body: str, code: int) -> None:
    pull_queue.change(delivery_paused=True)
    path = pull_queue.at("/messages/pull")
    fail(pull_queue.http.post(path, content=body.encode()), 400, code)


def test_bad_settings_are_answered_before_a_taken_name(queue: Queue) -> None:
    body = {"queue_name": queue.name, "settings": {"delivery_delay": -1}}
    fail(queue.http.post("/queues", json=body), 400, 100128)


def test_bad_settings_are_answered_before_a_second_consumer(pull_queue: Queue) -> None:
    body = {"type": "http_pull", "settings": {"batch_size": 0}}
    fail(pull_queue.post("/consumers", body), 400, 100127)


def test_a_queue_id_that_is_none_is_malformed_for_messages_and_else_unknown(
    http: httpx.Client,
) -> None:
    """Ids have letters and digits; of these may be as many as somebody likes."""
    paths = [f"/messages{path}" for path in ("", "/batch", "/pull", "/ack", "/peek", "/purge")]
    for queue_id in ("not-an-id", "a.b", "a_b", "a%20b", "%E2%82%AC", "a~"):
        for path in paths:
            fail(http.post(f"/queues/{queue_id}{path}", json={}), 400, 10107)
        for path in ("", "/metrics", "/consumers", "/consumers/x", "/purge"):
            fail(http.get(f"/queues/{queue_id}{path}"), 404, 11000)
    for queue_id in ("abc", "0", "z" * 32, "f" * 33, "c0" + "0" * 30):
        for path in paths:
            fail(http.post(f"/queues/{queue_id}{path}", json={}), 404, 10104)
        fail(http.get(f"/queues/{queue_id}"), 404, 11000)
