"""A queue of orders with bodies, headers and outcomes of several kinds, and the lake of it."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from courier.lake.catalog import Lake
from courier.lake.client import Client, Place, Slice, read
from courier.lake.replay import Plans
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import bring, place_of
from tests.server import Server

COUNT = 40
TEXT, BINARY = "not JSON", b"\xff\x00\xfe"


class Orders:
    """40 orders, n = 0 to 39, with total n * 10 and header region eu (even n) or us, then a text
    and some bytes without headers. 10 are acked, the next 5 buried, the rest are live. Besides,
    `many` messages m0, m1, ... on the queue source.
    """

    def __init__(self, spark: SparkSession, server: Server, *, many: int = 1) -> None:
        self.spark = spark
        self.server = server
        self.many = many
        with server.client() as http:
            orders = CloudflareClient(http, "orders", dead_letter="orders-dead")
            for name in ("again", "elsewhere", "source", "paced", "pieces", "unimported"):
                CloudflareClient(http, name)
            http.post("/queues", json={"queue_name": "target"}).raise_for_status()
            self._publish()
            orders.ack([each.lease for each in orders.pull(10)])
            for _ in range(3):
                for each in orders.pull(5):
                    orders.retry(each.lease)
        self.lake: Lake = bring(spark, server, server.data / "lake")
        self.plans = Plans(self.lake.root)

    @property
    def place(self) -> Place:
        return place_of(self.server)

    @property
    def tenant(self) -> str:
        return str(self.server.credentials["cloudflare"]["account_id"])

    def _publish(self) -> None:
        bodies = [json.dumps({"n": n, "total": n * 10}).encode() for n in range(COUNT)]
        headers = [
            json.dumps({"region": ("eu", "us")[n % 2], "weight": n, "tags": ["a", n]})
            for n in range(COUNT)
        ]
        rows = pa.record_batch(
            {
                "body": pa.array([*bodies, TEXT.encode(), BINARY]),
                "content_type": pa.array([*["json"] * COUNT, "text", "bytes"]),
                "headers": pa.array([*headers, None, None]),
            }
        )
        with Client(self.place) as broker:
            broker.publish("orders", rows, once="orders", first=0)
            plain = pa.record_batch({"body": pa.array([f"m{n}" for n in range(self.many)])})
            broker.publish("source", plain, once="source", first=0)

    def published(self, queue: str) -> list[dict[str, Any]]:
        """All that was ever published to a queue, in order."""
        return published(self.place, queue)


def published(place: Place, queue: str) -> list[dict[str, Any]]:
    with Client(place) as broker:
        head = broker.head()
    part = Slice(head.epoch, 0, head.last, queues=(queue,), kinds=("published",))
    found = []
    for page in read(place, part, rows=10_000):
        for row in page.to_pylist():
            row["headers"] = json.loads(row["headers"] or "{}")
            found.append(row)
    return found
