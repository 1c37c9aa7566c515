"""One queue or exchange as an Anypoint client sees it. Every answer is checked on the way."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.wire.anypoint.answers import nothing, ok, result, results
from tests.wire.anypoint.environment import ADMIN, ADMIN_2, Environment

_CREATED = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_TEXT_HEADERS = ("messageId", "lockId", "created", "deliveryCount", "ttl")
_TEXT_HEADERS_OPTIONAL = ("messageGroupId", "deliveryDelay", "payloadHidden")


def new_name(prefix: str = "q") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


def new_id() -> str:
    return str(uuid.uuid4())


def segment(text: str) -> str:
    """A part of a path, with everything escaped that could be taken for something else."""
    return quote(text, safe="").replace(".", "%2E")


@dataclass(frozen=True)
class Message:
    """A message as a consumer got it."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    body: str | None

    @property
    def id(self) -> str:
        id: str = self.headers["messageId"]
        return id

    @property
    def lock(self) -> str:
        lock: str = self.headers["lockId"]
        return lock

    @property
    def count(self) -> int:
        return int(self.headers["deliveryCount"])

    @property
    def group(self) -> str | None:
        return self.headers.get("messageGroupId")

    @property
    def item(self) -> dict[str, str]:
        """What names it in a batch ack or nack."""
        return {"messageId": self.id, "lockId": self.lock}


def check_message(element: Any) -> Message:
    """The exact shape of an element of a GET."""
    assert isinstance(element, dict)
    assert set(element) in ({"headers", "properties", "body"}, {"headers", "properties"}), element
    headers, properties = element["headers"], element["properties"]
    assert isinstance(headers, dict) and isinstance(properties, dict)
    for name in _TEXT_HEADERS:
        assert isinstance(headers[name], str) and headers[name], headers
    for name in _TEXT_HEADERS_OPTIONAL:
        assert isinstance(headers.get(name, ""), str), headers
    assert _CREATED.fullmatch(headers["created"]), headers
    assert headers["deliveryCount"].isdigit() and headers["ttl"].isdigit(), headers
    body = element.get("body")
    if "body" in element:
        assert isinstance(body, str)
        assert "payloadHidden" not in headers
    else:
        assert headers["payloadHidden"] == "true"
    return Message(headers, properties, body)


def bodies(messages: Sequence[Message]) -> list[str | None]:
    return [message.body for message in messages]


@dataclass(frozen=True)
class Destination:
    """What both kinds have in common: one can publish to them."""

    env: Environment
    name: str

    def at(self, path: str = "") -> str:
        """Below the destination's messages, for `env.broker`."""
        return f"{segment(self.name)}/messages{path}"

    def at_message(self, id: str, path: str = "") -> str:
        return self.at(f"/{segment(id)}{path}")

    def put(self, id: str, json: Any = None, **request: Any) -> httpx.Response:
        return self.env.broker("PUT", self.at_message(id), json, **request)

    def put_batch(self, json: Any, **request: Any) -> httpx.Response:
        return self.env.broker("PUT", self.at(), json, **request)

    def publish(
        self,
        body: str | None = None,
        *,
        id: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> str:
        """Publish one message; its id."""
        id = id or new_id()
        message = {"body": body, "headers": headers, "properties": properties}
        result(self.put(id, _given(message)), id, 201)
        return id

    def publish_batch(self, texts: Sequence[str], **headers: Any) -> list[str]:
        """Publish up to ten texts in one call, all with these headers; their ids."""
        ids = [new_id() for _ in texts]
        items = [
            {"headers": {"messageId": id, **headers}, "body": text}
            for id, text in zip(ids, texts, strict=True)
        ]
        answered = results(self.put_batch(items))
        assert [(each["messageId"], each["status"]) for each in answered] == [
            (id, "successful") for id in ids
        ]
        return ids


@dataclass(frozen=True)
class Queue(Destination):
    @classmethod
    def create(cls, env: Environment, name: str | None = None, **settings: Any) -> "Queue":
        """A queue with nothing in it; settings as the admin API names them."""
        queue = cls(env, name or new_name())
        ok(env.admin("PUT", queue.admin_at(), settings))
        return queue

    def admin_at(self, path: str = "") -> str:
        """Below the queue, for `env.admin`."""
        return f"/destinations/queues/{segment(self.name)}{path}"

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = ok(self.env.admin("GET", self.admin_at()))
        return found

    def change(self, **settings: Any) -> dict[str, Any]:
        """Change these settings and no other."""
        path = self.env.region_path.replace(ADMIN, ADMIN_2, 1) + self.admin_at()
        changed: dict[str, Any] = ok(
            self.env.call("PATCH", path, settings, token=self.env.tokens.user)
        )
        return changed

    def purge(self) -> None:
        nothing(self.env.admin("DELETE", self.admin_at("/messages")))

    def delete(self) -> None:
        nothing(self.env.admin("DELETE", self.admin_at()))

    # --- getting ---

    def poll(self, **query: Any) -> httpx.Response:
        """A GET just as told."""
        return self.env.broker("GET", self.at(), params=query)

    def get(self, **query: Any) -> list[Message]:
        """What is there now, up to ten; told otherwise by `query`."""
        response = self.poll(**{"pollingTime": 0, "batchSize": 10, **query})
        if response.status_code == 204:
            nothing(response)
            return []
        found = ok(response)
        assert isinstance(found, list) and found
        return [check_message(element) for element in found]

    def get_one(self, **query: Any) -> Message:
        """The one message that is there now."""
        (message,) = self.get(**query)
        return message

    def await_one(self, **query: Any) -> Message:
        """The one message that is there now or comes soon."""
        return self.get_one(**{"pollingTime": 10_000, **query})

    # --- ending locks ---

    def delete_message(self, id: str, json: Any = None, **request: Any) -> httpx.Response:
        return self.env.broker("DELETE", self.at_message(id), json, **request)

    def delete_lock(self, id: str, lock: str, **request: Any) -> httpx.Response:
        return self.env.broker("DELETE", self.at_message(id, f"/locks/{segment(lock)}"), **request)

    def patch_lock(self, id: str, lock: str, json: Any = None, **request: Any) -> httpx.Response:
        path = self.at_message(id, f"/locks/{segment(lock)}")
        return self.env.broker("PATCH", path, json, **request)

    def ack(self, message: Message) -> None:
        result(self.delete_message(message.id, {"lockId": message.lock}), message.id)

    def nack(self, message: Message) -> None:
        result(self.delete_lock(message.id, message.lock), message.id)

    def set_lock(self, message: Message, *, ttl_s: int) -> None:
        result(self.patch_lock(message.id, message.lock, {"ttl": ttl_s}), message.id)

    def ack_batch(self, items: Sequence[Any]) -> list[dict[str, str]]:
        return results(self.env.broker("DELETE", self.at(), list(items)), locks=True)

    def nack_batch(self, items: Sequence[Any]) -> list[dict[str, str]]:
        return results(self.env.broker("DELETE", self.at("/locks"), list(items)), locks=True)

    def set_locks(self, items: Sequence[Any]) -> list[dict[str, str]]:
        return results(self.env.broker("PATCH", self.at("/locks"), list(items)), locks=True)


@dataclass(frozen=True)
class Exchange(Destination):
    @classmethod
    def create(cls, env: Environment, name: str | None = None, **settings: Any) -> "Exchange":
        exchange = cls(env, name or new_name("x"))
        ok(env.admin("PUT", exchange.admin_at(), settings))
        return exchange

    def admin_at(self) -> str:
        """The exchange, for `env.admin`."""
        return f"/destinations/exchanges/{segment(self.name)}"

    def binding_at(self, queue: str, path: str = "") -> str:
        """The binding of a queue, for `env.admin`."""
        return f"/bindings/exchanges/{segment(self.name)}/queues/{segment(queue)}{path}"

    def bind(self, queue: Queue, rule: dict[str, Any] | None = None) -> None:
        ok(self.env.admin("PUT", self.binding_at(queue.name)))
        if rule is not None:
            path = self.binding_at(queue.name, "/rules/routing")
            ok(self.env.admin("PUT", path, {"routingRules": [rule]}), 201)

    def unbind(self, queue: Queue) -> None:
        nothing(self.env.admin("DELETE", self.binding_at(queue.name)))

    def delete(self) -> None:
        nothing(self.env.admin("DELETE", self.admin_at()))


def rule(name: str, kind: str, matcher: str, value: Any) -> dict[str, Any]:
    """A routing rule as the admin API writes it."""
    return {"propertyName": name, "propertyType": kind, "matcherType": matcher, "value": value}


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
