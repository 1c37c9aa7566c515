"""A small lake made of a fixed, mixed history, and how to make one of any server's journal."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pyspark.sql import SparkSession

from courier.lake import pipeline
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place, Slice
from courier.lake.tables import Table
from tests.clients.anypoint import environment_client
from tests.clients.cloudflare import CloudflareClient
from tests.delivery.listeners.organization import organization_of
from tests.delivery.receiver import Receiver
from tests.server import Server

ARGS = ("--push-networks", "127.0.0.0/8", "--push-delay-percent", "1", "--sweep-every-ms", "50")
CHANGE_S_MAX = 30.0
POLL_S = 0.05


@dataclass(frozen=True)
class SmallLake:
    """A lake and the server it was made of, which still runs. Copy the lake to change it."""

    server: Server
    root: Path

    @property
    def lake(self) -> Lake:
        return Lake(str(self.root))


def place_of(server: Server) -> Place:
    return Place(server.url, server.credentials["admin"]["token"])


def bring(spark: SparkSession, server: Server, root: Path | str) -> Lake:
    """Bring all that is in a server's journal into the lake at `root`."""
    lake = Lake(str(root))
    pipeline.once(spark, lake, place_of(server))
    return lake


def rows(table: Table) -> list[dict[str, Any]]:
    """What Delta's own reader finds, in one order."""
    opened = table.open()
    assert opened is not None
    found: list[dict[str, Any]] = opened.to_pyarrow_table().to_pylist()
    return sorted(found, key=str)


def subscribed(http: httpx.Client, *events: str) -> CloudflareClient:
    """A queue that is told of some events of pipelines."""
    told = CloudflareClient(http, "told")
    found = http.get("/queues", params={"name": "told"}).json()["result"]
    wanted = {
        "source": {"type": "courier.pipeline"},
        "events": list(events),
        "destination": {"type": "queues.queue", "queue_id": found[0]["queue_id"]},
    }
    http.post("/event_subscriptions/subscriptions", json=wanted).raise_for_status()
    return told


@contextmanager
def small_lake(spark: SparkSession, directory: Path) -> Iterator[SmallLake]:
    with Server(directory, args=ARGS).start() as server:
        mixed_history(server)
        root = server.data / "lake"
        bring(spark, server, root)
        yield SmallLake(server, root)


def mixed_history(server: Server) -> None:
    """Every kind of life that a message can have, on a handful of queues.

    orders    40 published in JSON with a total and a region; 25 acked, 5 of them at the second
              attempt; 3 buried to orders-dead; the rest wait
    slow      2 whose leases expire
    payments  a FIFO queue with groups a, b, c of 5 each; some of a and b are done
    short     5 that expire unread
    waste     10 that are purged, 1 of them leased
    news      6 pushed to a listener, and done
    """
    with server.client() as http:
        _orders(CloudflareClient(http, "orders", dead_letter="orders-dead"))
        slow = CloudflareClient(http, "slow")
        slow.publish_batch(["slow 0", "slow 1"])
        slow.pull(2, lease_ms=1)
        waste = CloudflareClient(http, "waste")
        waste.publish_batch([f"waste {n}" for n in range(10)])
        waste.pull(1)
        waste.purge()
    _payments(server)
    _news(server)
    ended = {"acked": 25, "lease_expired": 2, "buried": 3, "expired": 5, "purged": 10}
    _wait(server, lambda kinds: all(kinds.get(k, 0) >= n for k, n in ended.items()))


def _orders(orders: CloudflareClient) -> None:
    for start in range(0, 40, 20):
        orders.publish_batch(
            [
                json.dumps({"n": n, "total": n * 10, "region": ("eu", "us")[n % 2]})
                for n in range(start, start + 20)
            ]
        )
    orders.ack([each.lease for each in orders.pull(20)])
    for each in orders.pull(8):
        orders.retry(each.lease)
    second = orders.pull(8)
    assert {each.attempts for each in second} == {2}, second
    orders.ack([each.lease for each in second[:5]])
    for each in second[5:]:
        orders.retry(each.lease)


def _payments(server: Server) -> None:
    anypoint = server.credentials["anypoint"]
    place = (
        f"/organizations/{anypoint['organization_id']}/environments/{anypoint['environment_id']}"
    )
    queues = f"/mq/admin/api/v1{place}/regions/{anypoint['region']}/destinations/queues"
    with environment_client(anypoint) as http:

        def ask(method: str, path: str, body: Any = None) -> Any:
            answer = http.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        def send(queue: str, body: str, **headers: Any) -> None:
            path = f"/api/v1{place}/destinations/{queue}/messages/{uuid.uuid4()}"
            ask("PUT", path, {"headers": headers, "body": body})

        ask("PUT", f"{queues}/payments.fifo", {"fifo": True})
        ask("PUT", f"{queues}/short", {})
        for n in range(5):
            send("short", f"short {n}", ttl=1)
            for group in "abc":
                send("payments.fifo", f"{group}{n}", messageGroupId=group)
        messages = f"/api/v1{place}/destinations/payments.fifo/messages"
        for _ in range(3):
            pulled = ask("GET", f"{messages}?pollingTime=0&batchSize=10&lockTtl=30000") or []
            wanted = [e for e in pulled if e["body"][0] == "a" or e["body"] in ("b0", "b1")]
            locks = [
                {"messageId": e["headers"]["messageId"], "lockId": e["headers"]["lockId"]}
                for e in wanted
            ]
            if locks:
                ask("DELETE", messages, locks)


def _news(server: Server) -> None:
    with Receiver() as receiver, organization_of(server, receiver) as organization:
        queue = organization.queue()
        listener = queue.listen("/news")
        for n in range(6):
            listener.wait(queue.add(f"news {n}"), "acknowledged")


def _wait(server: Server, enough: Callable[[dict[str, int]], bool]) -> None:
    """Until the sweep has done what is due."""
    deadline_s = time.monotonic() + CHANGE_S_MAX
    while not enough(kinds := counted(server)):
        assert time.monotonic() < deadline_s, f"so much has happened: {kinds}"
        time.sleep(POLL_S)


def counted(server: Server, *, upto: int | None = None) -> dict[str, int]:
    """How many events of each kind are in the journal, or in its part up to an offset."""
    found: dict[str, int] = {}
    with Client(place_of(server)) as broker:
        head = broker.head()
        after = head.first - 1
        last = head.last if upto is None else upto
        while after < last:
            part = Slice(head.epoch, after, last, columns=("kind",))
            page, after = broker.page(part, rows=10_000)
            for kind in page.column("kind").to_pylist():
                found[kind] = found.get(kind, 0) + 1
    return found
