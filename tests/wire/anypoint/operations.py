"""The table of operations, with a request that is good for each and the scopes that allow it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, fail
from tests.wire.anypoint.destination import new_name
from tests.wire.anypoint.environment import ADMIN, ADMIN_2, BROKER, STATS, Environment

Api = Literal["broker", "admin", "stats"]

_ORGANIZATION = "/organizations/{organizationId}"
_ENVIRONMENT = _ORGANIZATION + "/environments/{environmentId}"
_REGION = _ENVIRONMENT + "/regions/{regionId}"
_QUEUE = _REGION + "/destinations/queues/{queueId}"
_EXCHANGE = _REGION + "/destinations/exchanges/{exchangeId}"
_BINDINGS = _REGION + "/bindings/exchanges/{exchangeId}"
_BINDING = _BINDINGS + "/queues/{queueId}"
_MESSAGES = _ENVIRONMENT + "/destinations/{destinationId}/messages"
_LOCK = _MESSAGES + "/{messageId}/locks/{lockId}"

_RULE = {"propertyName": "p", "propertyType": "STRING", "matcherType": "EQ", "value": "v"}
_LOCKED = {"messageId": "m", "lockId": "l"}


@dataclass(frozen=True)
class Operation:
    """`status` shows that the request was let through: there is no message m with a lock l.

    `scopes` are the vendor's; one of them is enough. None: any token of the API will do.
    `naming`: the body is a name that nobody has yet.
    """

    name: str
    api: Api
    method: str
    path: str
    scopes: tuple[str, ...] | None
    status: int = 200
    query: str = ""
    body: Any = None
    naming: bool = False

    def url(self, places: Mapping[str, str]) -> str:
        return self.path.format_map(places) + self.query

    def send(self, env: Environment, places: Mapping[str, str], *, token: str) -> httpx.Response:
        body = {"name": new_name("app")} if self.naming else self.body
        return env.call(self.method, self.url(places), body, token=token)

    def fails(self, response: httpx.Response, status: int) -> str:
        """The text of the answer, which must be this failure in the words of its API."""
        if self.api == "broker":
            return fail(response, status, "m" if "{messageId}" in self.path else None)
        return admin_fail(response, status)


def places(env: Environment, **others: str) -> dict[str, str]:
    """What paths name: the environment, and whatever else is given, like `queueId`."""
    known = {
        "organizationId": env.organization,
        "environmentId": env.id,
        "regionId": env.region,
        "messageId": "m",
        "lockId": "l",
    }
    return {**known, **others}


_WRITE = ("administer:destinations",)
_READ = ("administer:destinations", "view:destinations", "clear:destinations")
_PUBLISH = ("publish:destinations",)
_CONSUME = ("subscribe:destinations",)
_LOCKS = _PUBLISH + _CONSUME


def _admin(
    name: str, method: str, path: str, scopes: tuple[str, ...] | None, *rest: Any, **fields: Any
) -> Operation:
    return Operation(name, "admin", method, ADMIN + path, scopes, *rest, **fields)


def _stats(name: str, path: str, scopes: tuple[str, ...], query: str) -> Operation:
    return Operation(name, "stats", "GET", STATS + path, scopes, query=query)


def _broker(
    name: str, method: str, path: str, scopes: tuple[str, ...], *rest: Any, **fields: Any
) -> Operation:
    return Operation(name, "broker", method, BROKER + path, scopes, *rest, **fields)


BROKER_OPERATIONS = (
    _broker("get", "GET", _MESSAGES, _CONSUME, query="?pollingTime=0&lockTtl=0"),
    _broker("publish_batch", "PUT", _MESSAGES, _PUBLISH, body=[{"body": "a"}]),
    _broker("ack_batch", "DELETE", _MESSAGES, _CONSUME, body=[_LOCKED]),
    _broker("set_locks", "PATCH", _MESSAGES + "/locks", _LOCKS, body=[{**_LOCKED, "ttl": 1}]),
    _broker("nack_batch", "DELETE", _MESSAGES + "/locks", _CONSUME, body=[_LOCKED]),
    _broker("publish", "PUT", _MESSAGES + "/{messageId}", _PUBLISH, 201, body={"body": "a"}),
    _broker("ack", "DELETE", _MESSAGES + "/{messageId}", _CONSUME, 400, body={"lockId": "l"}),
    _broker("set_lock", "PATCH", _LOCK, _LOCKS, 400, body={"ttl": 1}),
    _broker("nack", "DELETE", _LOCK, _CONSUME, 400),
)

STATS_OPERATIONS = (
    _stats("current", _REGION + "/queues", _READ, "?destinationIds=q"),
    _stats("queue_series", _REGION + "/queues/{queueId}", _READ, "?period=60"),
    _stats("exchange_series", _REGION + "/exchanges/{exchangeId}", _READ, "?period=60"),
    _stats("organization_use", _ORGANIZATION, ("read:stats",), "?period=1hour"),
    _stats("environment_use", _ENVIRONMENT, ("read:stats",), "?period=1hour"),
)

# In an order in which all of them find what they need, one after the other.
ADMIN_OPERATIONS = (
    _admin("list_regions", "GET", _ENVIRONMENT + "/regions", None),
    _admin("get_region", "GET", _REGION, None),
    _admin("list_destinations", "GET", _REGION + "/destinations", _READ),
    _admin("put_queue", "PUT", _QUEUE, _WRITE, body={}),
    _admin("get_queue", "GET", _QUEUE, _READ),
    _admin("patch_queue", "PATCH", _QUEUE, _WRITE, body={}),
    Operation("patch_queue_2", "admin", "PATCH", ADMIN_2 + _QUEUE, _WRITE, body={}),
    _admin("fallback", "PUT", _QUEUE + "/fallback", _WRITE, 501, body={"fallbackEnabled": True}),
    _admin("put_exchange", "PUT", _EXCHANGE, _WRITE, body={}),
    _admin("get_exchange", "GET", _EXCHANGE, _READ),
    _admin("patch_exchange", "PATCH", _EXCHANGE, _WRITE, body={"encrypted": False}),
    _admin("bindings_of_exchange", "GET", _BINDINGS, _READ),
    _admin("bindings_of_queue", "GET", _REGION + "/bindings/queues/{queueId}", _READ),
    _admin("put_binding", "PUT", _BINDING, _WRITE, body={}),
    _admin("get_binding", "GET", _BINDING, _READ),
    _admin(
        "put_rule", "PUT", _BINDING + "/rules/routing", _WRITE, 201, body={"routingRules": [_RULE]}
    ),
    _admin("delete_rule", "DELETE", _BINDING + "/rules/routing", _WRITE, 204),
    _admin("list_clients", "GET", _ENVIRONMENT + "/clients", ("view:clients",)),
    _admin("create_client", "PUT", _ENVIRONMENT + "/clients", ("manage:clients",), naming=True),
    _admin("renew_client", "POST", _ENVIRONMENT + "/clients/{clientId}", ("manage:clients",)),
    _admin("delete_client", "DELETE", _ENVIRONMENT + "/clients/{clientId}", ("manage:clients",)),
    _admin("purge_queue", "DELETE", _QUEUE + "/messages", _WRITE, 204),
    _admin("delete_binding", "DELETE", _BINDING, _WRITE, 204),
    _admin("delete_exchange", "DELETE", _EXCHANGE, _WRITE, 204),
    _admin("delete_queue", "DELETE", _QUEUE, _WRITE, 204),
)

# No single scope is enough for these.
EVERYTHING_OPERATIONS = (
    _admin("delete_environment", "DELETE", _ENVIRONMENT, (), 204),
    _admin("delete_organization", "DELETE", _ORGANIZATION, (), 204),
)

OPERATIONS = (
    *BROKER_OPERATIONS,
    *STATS_OPERATIONS,
    *ADMIN_OPERATIONS,
    *EVERYTHING_OPERATIONS,
)


def each(*operations: Operation) -> pytest.MarkDecorator:
    """Run the test for each of these; it gets the argument `operation`."""
    return pytest.mark.parametrize("operation", operations, ids=[one.name for one in operations])
