"""What tests of the data source do with a broker: options for it, and messages in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from courier.lake.client import Client, Place
from tests.clients.cloudflare import CloudflareClient
from tests.server import Server


def place(server: Server, *, away_s_max: float = 60) -> Place:
    return Place(server.url, server.credentials["admin"]["token"], away_s_max=away_s_max)


def options(server: Server, **more: Any) -> dict[str, str]:
    token = server.credentials["admin"]["token"]
    return {"url": server.url, "token": token, **{name: str(value) for name, value in more.items()}}


def journal(spark: SparkSession, server: Server, **more: Any) -> DataFrame:
    return spark.read.format("courier").options(**options(server, **more)).load()


def stream(spark: SparkSession, server: Server, **more: Any) -> DataFrame:
    return spark.readStream.format("courier").options(**options(server, **more)).load()


@contextmanager
def queue(server: Server, name: str) -> Iterator[CloudflareClient]:
    """A queue that is created if it is not there."""
    with server.client() as http:
        yield CloudflareClient(http, name)


def last_offset(server: Server) -> int:
    with Client(place(server)) as client:
        return client.head().last


def events(server: Server, *, kind: str, queue: str) -> list[dict[str, Any]]:
    """Events of one kind on one queue, as the journal tells them to anybody who asks."""
    found: list[dict[str, Any]] = []
    after = 0
    headers = {"authorization": f"Bearer {server.credentials['admin']['token']}"}
    with server.client() as http:
        while True:
            query = f"after={after}&limit=10000&kinds={kind}&queues={queue}"
            answer = http.get(f"{server.url}/journal?{query}", headers=headers)
            assert answer.status_code == 200, answer.text
            found += [json.loads(line) for line in answer.text.splitlines()]
            upto = int(answer.headers["x-courier-upto"])
            if upto == after or upto >= last_offset(server):
                return found
            after = upto


def bodies(server: Server, queue: str) -> list[str]:
    """The bodies that were published to a queue, in order."""
    return [event["body"] for event in events(server, kind="published", queue=queue)]
