"""Every table, row by row, against a recomputation from the journal's lines of JSON.

With messages that were buried, pushed, expired and purged, a gap, and messages that were erased.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, erasure, pipeline, tables
from courier.lake.archive import Span
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.erasure import ErasureAsked, ErasureRecord
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import ARGS, mixed_history, place_of, rows
from tests.lake.recomputed import (
    Recomputed,
    same_consumers_hours,
    same_events,
    same_messages,
    same_queue_minutes,
    same_totals,
)
from tests.server import Server

ERASED = "queue like 'orders%' and outcome <> 'live' and (body->>'n')::int in (3, 25, 26)"


@dataclass(frozen=True)
class Both:
    lake: Lake
    again: Recomputed
    gap: Span
    record: ErasureRecord


@pytest.fixture(scope="module", params=[True, False], ids=["few first", "Spark first"])
def both(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """Made in three runs, of which Spark makes the second one, or the first and the third."""
    home = tmp_path_factory.mktemp("recomputed")

    def run(number: int) -> None:
        few = (number % 2 == 1) == request.param
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tables, "FEW_ROWS", tables.FEW_ROWS if few else 0)
            pipeline.once(spark, lake, place)

    lake = Lake(str(home / "lake"))
    with Server(home, args=ARGS).start() as server, server.client() as http:
        place = place_of(server)
        mixed_history(server)
        held = CloudflareClient(http, "held")
        held.publish_batch([f"held {n}" for n in range(6)])
        run(1)
        # In the gap two are acked and one is leased; two of a queue that nothing else happens to.
        leased = held.pull(3)
        held.ack([each.lease for each in leased[:2]])
        CloudflareClient(http, "unseen").publish_batch(["a", "b"])
        with Client(place) as broker:
            gap = Span(archive.last(lake.events), broker.head().last)
        archive.pass_gap(lake.events, gap, pipeline="lake", now=datetime.now(UTC))
        held.ack([leased[2].lease])
        held.retry(held.pull(1)[0].lease)
        run(2)
        record = erasure.erase(
            lake, ErasureAsked(where=ERASED), actor="ada", now_ms=1_700_000_000_000
        )
        [orders] = http.get("/queues", params={"name": "orders"}).json()["result"]
        later = {"body": "later", "content_type": "text"}
        http.post(f"/queues/{orders['queue_id']}/messages", json=later).raise_for_status()
        held.publish_batch(["later"])
        run(3)
        last = archive.last(lake.events)
        said = Command("--data", str(server.data))("journal", "--json", "--limit", str(last)).out
        (home / "lines").write_text(said)
    again = Recomputed(home / "lines", [(gap.after + 1, gap.upto)])
    yield Both(lake, again, gap, record)


def _erased(both: Both) -> set[tuple[Any, Any]]:
    found = {
        (row["queue_id"], row["seq"])
        for row in rows(both.lake.messages)
        if json.loads(row["detail"] or "{}").get("erased") == both.record.id
    }
    # Two that were acked, one that was buried, and its dead letter is live.
    assert len(found) == both.record.messages == 3
    return found


def test_events(both: Both) -> None:
    same_events(both.lake, both.again, _erased(both))


def test_messages(both: Both) -> None:
    expected = same_messages(both.lake, both.again, _erased(both))
    outcomes = {row["outcome"] for row in expected}
    assert outcomes == {"acked", "buried", "expired", "purged", "live"}
    assert sum(row["gap"] == both.gap.upto for row in expected) >= 2


def test_queue_minutes(both: Both) -> None:
    expected = same_queue_minutes(both.lake, both.again)
    assert sum(row["pushed"] for row in expected) == 6
    assert both.gap.upto in {row["gap"] for row in expected}


def test_consumers_hours(both: Both) -> None:
    expected = same_consumers_hours(both.lake, both.again)
    assert both.gap.upto in {row["gap"] for row in expected}


def test_audit(both: Both) -> None:
    # The broker holds two that were published in the gap, and the lake knows nothing of.
    found = [row for row in rows(both.lake.audit) if row["queue"] is None and row["queue_id"]]
    unseen = max(found, key=lambda row: row["last_offset"])
    assert (unseen["live_broker"], unseen["live_lake"], unseen["difference"]) == (2, 0, 2)
    last = same_totals(both.lake, both.again, {unseen["queue_id"]})
    assert sum(row["gaps"] for row in rows(both.lake.audit)) == both.gap.rows
    assert {row["order_violations"] + row["double_leases"] for row in last.values()} == {0}
    # The run after the erasure says how many messages of the queue are erased.
    [orders] = [row for row in last.values() if row["queue"] == "orders"]
    assert orders["erased"] == both.record.queues[orders["queue_id"]] == 3
