"""Verbs of the Cloudflare account as the tests here say them, and waiting with an end."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.server import Server

LONG_MS = 600_000
CHANGE_SECONDS_MAX = 20.0
POLL_S = 0.05
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"


def result(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def create_queue(
    client: httpx.Client, name: str = "orders", *, consumer: dict[str, Any] | None = None
) -> str:
    """The path of a new queue with a pull consumer."""
    queue = result(client.post("/queues", json={"queue_name": name}))["queue_id"]
    asked = {"type": "http_pull", **(consumer or {})}
    result(client.post(f"/queues/{queue}/consumers", json=asked))
    return f"/queues/{queue}"


def publish(client: httpx.Client, path: str, *bodies: str, **more: Any) -> None:
    drafts = [{"body": body, "content_type": "text", **more} for body in bodies]
    result(client.post(f"{path}/messages/batch", json={"messages": drafts}))


def pull(
    client: httpx.Client, path: str, *, count: int = 100, lease_ms: int = LONG_MS
) -> list[dict[str, Any]]:
    asked = {"batch_size": count, "visibility_timeout_ms": lease_ms}
    messages: list[dict[str, Any]] = result(client.post(f"{path}/messages/pull", json=asked))[
        "messages"
    ]
    return messages


def settle(client: httpx.Client, path: str, **items: list[dict[str, Any]]) -> Any:
    return result(client.post(f"{path}/messages/ack", json=items))


def backlog(client: httpx.Client, path: str) -> int:
    return int(result(client.get(f"{path}/metrics"))["backlog_count"])


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def status_of(server: Server, path: str, **headers: str) -> int:
    url = f"{server.url}{path}"
    return httpx.get(url, headers=headers, trust_env=False, verify=False).status_code


def metrics_of(server: Server) -> str:
    return server.operate("GET", "/metrics").text


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + CHANGE_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(POLL_S)
