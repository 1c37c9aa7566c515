"""The table of endpoints, with a request that is good for each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, Literal

import httpx
import pytest

from tests.wire.cloudflare.queue import UNKNOWN_ID


@dataclass(frozen=True)
class Endpoint:
    """`read` is true when a key that may only read is enough."""

    name: str
    method: str
    path: str
    family: Literal["queues", "messages", "subscriptions"]
    read: bool = False
    body: Any = None

    def send(
        self,
        http: httpx.Client,
        places: Mapping[str, str],
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send it, with its own body or with `content` in place of it.

        `places` are the ids of the queue, the consumer and the subscription that it names.
        """
        unknown = dict.fromkeys(("queue", "consumer", "subscription"), UNKNOWN_ID)
        places = {**unknown, **places}
        if content is None and self.body is not None:
            content = Template(json.dumps(self.body)).substitute(places).encode()
        path = Template(self.path).substitute(places)
        return http.request(self.method, path, content=content, headers=headers)


_SUBSCRIPTION = {
    "events": ["namespace.created"],
    "source": {"type": "kv"},
    "destination": {"type": "queues.queue", "queue_id": "$queue"},
}
_AT = "/queues/$queue"
_SUBSCRIPTIONS = "/event_subscriptions/subscriptions"

ENDPOINTS = (
    Endpoint("create_queue", "POST", "/queues", "queues", body={"queue_name": "never-made"}),
    Endpoint("list_queues", "GET", "/queues", "queues", read=True),
    Endpoint("get_queue", "GET", _AT, "queues", read=True),
    Endpoint("put_queue", "PUT", _AT, "queues", body={}),
    Endpoint("patch_queue", "PATCH", _AT, "queues", body={}),
    Endpoint("delete_queue", "DELETE", _AT, "queues"),
    Endpoint("metrics", "GET", f"{_AT}/metrics", "queues", read=True),
    Endpoint("create_consumer", "POST", f"{_AT}/consumers", "queues", body={"type": "http_pull"}),
    Endpoint("list_consumers", "GET", f"{_AT}/consumers", "queues", read=True),
    Endpoint("get_consumer", "GET", f"{_AT}/consumers/$consumer", "queues", read=True),
    Endpoint(
        "put_consumer", "PUT", f"{_AT}/consumers/$consumer", "queues", body={"type": "http_pull"}
    ),
    Endpoint("delete_consumer", "DELETE", f"{_AT}/consumers/$consumer", "queues"),
    Endpoint("push", "POST", f"{_AT}/messages", "messages", body={"body": 1}),
    Endpoint(
        "push_batch",
        "POST",
        f"{_AT}/messages/batch",
        "messages",
        body={"messages": [{"body": 1}]},
    ),
    Endpoint("pull", "POST", f"{_AT}/messages/pull", "messages", body={}),
    Endpoint("ack", "POST", f"{_AT}/messages/ack", "messages", body={}),
    Endpoint("peek", "POST", f"{_AT}/messages/peek", "messages", body={}),
    Endpoint("purge_refs", "POST", f"{_AT}/messages/purge", "messages", body={"refs": []}),
    Endpoint("purge", "POST", f"{_AT}/purge", "queues", body={"delete_messages_permanently": True}),
    Endpoint("purge_status", "GET", f"{_AT}/purge", "queues", read=True),
    Endpoint("create_subscription", "POST", _SUBSCRIPTIONS, "subscriptions", body=_SUBSCRIPTION),
    Endpoint("list_subscriptions", "GET", _SUBSCRIPTIONS, "subscriptions", read=True),
    Endpoint("get_subscription", "GET", f"{_SUBSCRIPTIONS}/$subscription", "subscriptions"),
    Endpoint(
        "patch_subscription", "PATCH", f"{_SUBSCRIPTIONS}/$subscription", "subscriptions", body={}
    ),
    Endpoint("delete_subscription", "DELETE", f"{_SUBSCRIPTIONS}/$subscription", "subscriptions"),
)
BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}


def each(*endpoints: Endpoint) -> pytest.MarkDecorator:
    """Run a test once for each endpoint, named after it."""
    return pytest.mark.parametrize("endpoint", endpoints, ids=[one.name for one in endpoints])
