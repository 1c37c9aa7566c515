"""Every request that the Anypoint APIs know, for attacks that try them all."""

from typing import Any

from tests.attack.environment import Spot, accepted


def message_requests(destination: str, message: str, lock: str) -> list[tuple[str, str, Any]]:
    """Every request there is on the messages of a destination, below the environment."""
    path = f"/{destination}/messages"
    item = {"messageId": message, "lockId": lock, "ttl": 1}
    return [
        ("GET", f"{path}?pollingTime=0", None),
        ("PUT", path, [{"body": "x"}]),
        ("DELETE", path, [item]),
        ("PATCH", f"{path}/locks", [item]),
        ("DELETE", f"{path}/locks", [item]),
        ("PUT", f"{path}/{message}", {"body": "x"}),
        ("DELETE", f"{path}/{message}", {"lockId": lock}),
        ("PATCH", f"{path}/{message}/locks/{lock}", {"ttl": 1}),
        ("DELETE", f"{path}/{message}/locks/{lock}", None),
    ]


def settings_requests(queue: str, exchange: str) -> list[tuple[str, str, Any]]:
    """Every request there is on settings, below the region."""
    rule = {"propertyName": "a", "propertyType": "NUMERIC", "matcherType": "EQ", "value": 1}
    at_queue = f"/destinations/queues/{queue}"
    at_exchange = f"/destinations/exchanges/{exchange}"
    binding = f"/bindings/exchanges/{exchange}/queues/{queue}"
    return [
        ("GET", at_queue, None),
        ("PATCH", at_queue, {"defaultTtl": 1_000}),
        ("DELETE", f"{at_queue}/messages", None),
        ("PUT", f"{at_queue}/fallback", {"fallbackEnabled": True}),
        ("GET", at_exchange, None),
        ("PATCH", at_exchange, {"encrypted": True}),
        ("GET", f"/bindings/exchanges/{exchange}", None),
        ("GET", f"/bindings/queues/{queue}", None),
        ("GET", binding, None),
        ("PUT", binding, None),
        ("PUT", f"{binding}/rules/routing", {"routingRules": [rule]}),
        ("DELETE", f"{binding}/rules/routing", None),
        ("DELETE", binding, None),
        ("DELETE", at_queue, None),
        ("DELETE", at_exchange, None),
    ]


def environment_requests(client: str) -> list[tuple[str, str, Any]]:
    """Every request there is on an environment, below it."""
    return [
        ("GET", "/regions", None),
        ("GET", "/regions/us-east-1", None),
        ("GET", "/regions/us-east-1/destinations", None),
        ("PUT", "/regions/us-east-1/destinations/queues/new", {}),
        ("PUT", "/regions/us-east-1/destinations/exchanges/new", None),
        ("GET", "/clients", None),
        ("PUT", "/clients", {"name": "mine"}),
        ("POST", f"/clients/{client}", None),
        ("DELETE", f"/clients/{client}", None),
        ("DELETE", "", None),
    ]


def stats_requests(queue: str, exchange: str) -> list[str]:
    return [
        f"/queues?destinationIds={queue}",
        f"/queues/{queue}?period=60",
        f"/exchanges/{exchange}?period=60",
    ]


def everything(spot: Spot) -> list[Any]:
    """What a stranger must not be able to change."""
    return [spot.backlog(), *settings(spot)]


def settings(spot: Spot) -> list[Any]:
    """Everything a refused request might have changed."""
    admin = spot.environment.admin
    clients = f"//mq/admin/api/v1{spot.environment.place}/clients"
    paths = ("/destinations", f"/bindings/queues/{spot.queue}?inclusion=all", clients)
    return [accepted(admin.ask("GET", path)) for path in paths]
