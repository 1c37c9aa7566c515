"""Every table, row by row, against a recomputation from the journal's lines of JSON.

With messages that were buried, pushed, expired and purged, a gap, and messages that were erased.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from courier.lake import archive, erasure, pipeline
from courier.lake.archive import Span
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.erasure import Asked, Record
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import ARGS, mixed_history, place_of, rows
from tests.lake.recomputed import Recomputed
from tests.server import Server

ERASED = "queue like 'orders%' and outcome <> 'live' and (body->>'n')::int in (3, 25, 26)"
Row = dict[str, Any]


@dataclass(frozen=True)
class Both:
    lake: Lake
    again: Recomputed
    gap: Span
    record: Record


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    home = tmp_path_factory.mktemp("recomputed")
    lake = Lake(str(home / "lake"))
    with Server(home, args=ARGS).start() as server, server.client() as http:
        place = place_of(server)
        mixed_history(server)
        held = CloudflareClient(http, "held")
        held.publish_batch([f"held {n}" for n in range(6)])
        pipeline.once(spark, lake, place)
        # In the gap two are acked and one is leased; two of a queue that nothing else happens to.
        leased = held.pull(3)
        held.ack([each.lease for each in leased[:2]])
        CloudflareClient(http, "unseen").publish_batch(["a", "b"])
        with Client(place) as broker:
            gap = Span(archive.last(lake.events), broker.head().last)
        archive.pass_gap(lake.events, gap, pipeline="lake", now=datetime.now(UTC))
        held.ack([leased[2].lease])
        held.retry(held.pull(1)[0].lease)
        pipeline.once(spark, lake, place)
        record = erasure.erase(lake, Asked(where=ERASED), actor="ada", now_ms=1_700_000_000_000)
        [orders] = http.get("/queues", params={"name": "orders"}).json()["result"]
        later = {"body": "later", "content_type": "text"}
        http.post(f"/queues/{orders['queue_id']}/messages", json=later).raise_for_status()
        held.publish_batch(["later"])
        pipeline.once(spark, lake, place)
        last = archive.last(lake.events)
        said = Command("--data", str(server.data))("journal", "--json", "--limit", str(last)).out
        (home / "lines").write_text(said)
    again = Recomputed(home / "lines", [(gap.after + 1, gap.upto)])
    yield Both(lake, again, gap, record)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def _passed(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else max(0, until - since)


def _by(found: Iterable[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    named = {tuple(row[name] for name in key): row for row in found}
    assert len(named) == len(list(found))
    return named


def _empty(row: Row, key: str, erased: set[tuple[Any, Any]]) -> Row:
    """What is left of a row if its message was erased."""
    if (row["queue_id"], row["seq"]) not in erased:
        return row
    return {**row, **dict.fromkeys(("message_id", "body", "headers", key))}


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
    erased = _erased(both)
    expected = [_empty(row, "message_group", erased) for row in both.again.events()]
    found = [
        {
            "n": row["offset"],
            "at_ms": _ms(row["at"]),
            "message_group": row["group"],
            "published_ms": _ms(row["published_at"]),
            "first_ms": _ms(row["first_leased_at"]),
            "last_ms": _ms(row["last_leased_at"]),
            **{name: row[name] for name in ("kind", "tenant", "queue_id", "queue", "message_id")},
            **{name: row[name] for name in ("seq", "attempt", "actor", "dialect", "size")},
            **{name: row[name] for name in ("content_type", "body", "sealed")},
            "headers": row["headers"],
        }
        for row in rows(both.lake.events)
        if row["kind"] != archive.GAP
    ]
    _same(found, expected, "n")


def test_messages(both: Both) -> None:
    erased = _erased(both)
    expected = [
        {
            **_empty(row, "message_group", erased),
            "wait_ms": _passed(row["published_ms"], row["first_ms"]),
            "total_ms": _passed(row["published_ms"], row["done_ms"]),
        }
        for row in both.again.messages()
    ]
    found = [
        {
            **{name: row[name] for name in expected[0] if name in row},
            "message_group": row["group"],
            "published_ms": _ms(row["published_at"]),
            "done_ms": _ms(row["done_at"]),
            "first_ms": _ms(row["first_leased_at"]),
            "last_ms": _ms(row["last_leased_at"]),
        }
        for row in rows(both.lake.messages)
    ]
    _same(found, expected, "queue_id", "seq")
    outcomes = {row["outcome"] for row in expected}
    assert outcomes == {"acked", "buried", "expired", "purged", "live"}
    assert sum(row["gap"] == both.gap.upto for row in expected) >= 2


def test_queue_minutes(both: Both) -> None:
    expected = [
        {**row, "oldest_ms": row["oldest_ms"] if row["backlog"] else None}
        for row in both.again.queue_minutes()
    ]
    found = [
        {
            **{name: row[name] for name in expected[0] if name in row},
            "minute_ms": _ms(row["minute"]),
        }
        for row in rows(both.lake.queue_minutes)
    ]
    _same(found, expected, "queue_id", "minute_ms")
    assert sum(row["pushed"] for row in expected) == 6


def test_consumers_hours(both: Both) -> None:
    expected = both.again.consumers_hours()
    found = [
        {
            **{name: row[name] for name in expected[0] if name in row},
            "hour_ms": _ms(row["hour"]),
            "lease_ms": round(row["lease_seconds"] * 1000),
        }
        for row in rows(both.lake.consumers_hours)
    ]
    _same(found, expected, "queue_id", "actor", "hour_ms")


def test_audit(both: Both) -> None:
    expected = both.again.totals()
    last: dict[str, Row] = {}
    for row in sorted(rows(both.lake.audit), key=lambda row: row["last_offset"]):
        last[row["queue_id"]] = row
    # The broker holds two that were published in the gap, and the lake knows nothing of.
    [unseen] = [last.pop(id) for id, row in list(last.items()) if row["queue"] is None and id]
    assert (unseen["live_broker"], unseen["live_lake"], unseen["difference"]) == (2, 0, 2)
    found = [{name: row[name] for name in expected[0]} for id, row in last.items() if id]
    _same(found, expected, "queue_id")
    assert sum(row["gaps"] for row in rows(both.lake.audit)) == both.gap.rows
    assert {row["order_violations"] + row["double_leases"] for row in last.values()} == {0}
    # The run after the erasure says how many messages of the queue are erased.
    [orders] = [row for row in last.values() if row["queue"] == "orders"]
    assert orders["erased"] == both.record.queues[orders["queue_id"]] == 3


def _same(found: list[Row], expected: list[Row], *key: str) -> None:
    assert expected
    ours, theirs = _by(found, *key), _by(expected, *key)
    assert ours.keys() == theirs.keys()
    for name, row in theirs.items():
        if isinstance(row.get("headers"), str):
            ours[name]["headers"] = json.loads(ours[name]["headers"])
            row["headers"] = json.loads(row["headers"])
        assert ours[name] == row, name
