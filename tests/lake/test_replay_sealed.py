"""Bodies that are encrypted in the lake: whoever gets them again can read them."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from courier.lake import replay
from courier.lake.catalog import Lake
from courier.lake.replay import Asked, Chosen, Plans
from courier.lake.tables import BadRequest
from tests.clients.anypoint import AnypointClient, environment_client
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import bring, place_of
from tests.lake.orders import published
from tests.server import Server

BODIES = ["secret ü", '{"secret": 1}']


def _choose(spark: SparkSession, lake: Lake, server: Server, asked: Asked, id: str) -> Chosen:
    tenant = str(server.credentials["cloudflare"]["account_id"])
    return replay.choose(spark, lake, asked, tenant=tenant, replay=id, now_ms=replay.now_ms())


def _encrypted(client: httpx.Client, site: dict[str, Any], name: str) -> AnypointClient:
    place = f"/organizations/{site['organization_id']}/environments/{site['environment_id']}"
    queue = f"{place}/regions/{site['region']}/destinations/queues/{name}"
    client.put(f"/mq/admin/api/v1{queue}", json={"encrypted": True}).raise_for_status()
    return AnypointClient(client, site, name)


def test_sealed_bodies_are_opened_for_those_who_get_them_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Server(tmp_path).start() as server, server.client() as http:
        site, place = server.credentials["anypoint"], place_of(server)
        opened = CloudflareClient(http, "opened")
        with environment_client(site) as client:
            secret, sealed = (_encrypted(client, site, name) for name in ("secret", "sealed"))
            for body in BODIES:
                secret.publish(body)
            lake = bring(spark, server, tmp_path / "lake")
            rows = lake.messages.read(spark).where("queue = 'secret'").collect()
            assert len(rows) == 2
            for row in rows:
                assert row["sealed"] and b"secret" not in bytes(row["body"])

            with pytest.raises(BadRequest, match="'body' is null for 2 of the 2 chosen messages"):
                _choose(spark, lake, server, Asked(queue="secret", sets=("body=body",)), "edit")
            for into in ("opened", "sealed"):
                asked = Asked(queue="secret", into=into)
                plans = Plans(lake.root)
                plan = replay.make(plans, into, asked, _choose(spark, lake, server, asked, into))
                assert replay.publish(plans, plan, place).done
            assert [each.body for each in opened.pull(10)] == BODIES
            assert [each.body for each in sealed.pull(10)] == BODIES
        # What was encrypted is so again where the queue asks for it.
        for into, clear in (("opened", True), ("sealed", False)):
            for found, body in zip(published(place, into), BODIES, strict=True):
                assert (bytes(found["body"]) == body.encode()) == clear
                assert (found["sealed"] is None) == clear
                assert found["headers"]["courier-replay-id"] == into
