"""Content that is erased is in no file of the lake any more, and all else stays right."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from courier.lake import audit, erasure, lock, query, replay, retention, views
from courier.lake.catalog import Lake
from courier.lake.erasure import ErasureAsked
from courier.lake.rebuild import rebuild
from courier.lake.tables import LakeError
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.lake.lakes import SmallLake, bring, rows
from tests.server import Server

WHO = "queue in ('orders', 'orders-dead') and (body->>'n')::int in (7, 22, 26)"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def lake(small: SmallLake, tmp_path: Path) -> Iterator[Lake]:
    shutil.copytree(small.root, tmp_path / "lake")
    yield Lake(str(tmp_path / "lake"))


def holding(root: Path, content: bytes) -> list[str]:
    """The files that hold some bytes, also those that Parquet has compressed."""
    found = []
    for file in root.rglob("*"):
        if file.suffix == ".parquet":
            values = pq.ParquetFile(file).read().to_pylist()
            told = [v.encode() if isinstance(v, str) else v for row in values for v in row.values()]
            inside = any(content in v for v in told if isinstance(v, bytes))
        else:
            inside = file.is_file() and content in file.read_bytes()
        if inside:
            found.append(str(file.relative_to(root)))
    return found


def test_what_is_erased_is_in_no_file_and_all_else_is_as_it_was(
    spark: SparkSession, small: SmallLake, lake: Lake
) -> None:
    views.write(lake, Path(lake.root, views.FILE))
    meant = [row for row in rows(lake.messages) if _meant(row["body"])]
    # One of them was buried, so its dead letter has the same body.
    assert sorted(row["queue"] for row in meant) == ["orders"] * 3 + ["orders-dead"]
    for row in meant:
        assert len(holding(Path(lake.root), row["body"])) >= 2
    before = {table.name: rows(table) for table in lake.tables}

    assert erasure.choose(lake, ErasureAsked(where=WHO)).messages == 4
    assert {table.name: rows(table) for table in lake.tables} == before
    record = erasure.erase(lake, ErasureAsked(where=WHO), actor="ada", now_ms=NOW_MS)

    for row in meant:
        assert holding(Path(lake.root), row["body"]) == []
        assert holding(Path(lake.root), row["message_id"].encode()) == []
    keys = {(row["queue_id"], row["seq"]) for row in meant}
    for table in (lake.events, lake.messages):
        for now, then in zip(_ordered(rows(table)), _ordered(before[table.name]), strict=True):
            if (then["queue_id"], then["seq"]) not in keys:
                assert now == then
                continue
            empty: dict[str, object] = dict.fromkeys(("body", "headers", "group", "message_id"))
            tells = now.get("kind", "published") == "published"
            empty["detail"] = json.dumps({"erased": record.id}) if tells else None
            assert now == {**then, **empty}
    for table in lake.tables[2:]:
        assert rows(table) == before[table.name]
    # The record says what was asked, by whom and when; a second run finds nothing.
    [kept] = erasure.records(lake)
    assert kept == record and kept.done
    assert (kept.actor, kept.at, kept.messages) == ("ada", "2023-11-14T22:13:20.000Z", 4)
    assert kept.asked == {"where": WHO} and sum(kept.queues.values()) == 4
    assert erasure.erase(lake, ErasureAsked(where=WHO), actor="ada", now_ms=NOW_MS).messages == 0

    found = {table.name: rows(table) for table in lake.tables}
    list(rebuild(spark, lake))
    assert {table.name: rows(table) for table in lake.tables} == found
    _replay_says_so(spark, small, lake)


def _replay_says_so(spark: SparkSession, small: SmallLake, lake: Lake) -> None:
    tenant = small.server.credentials["cloudflare"]["account_id"]
    asked, now_ms = replay.Asked(queue="orders"), replay.now_ms()
    assert replay.erased(lake, asked, tenant=tenant, now_ms=now_ms) == 3
    chosen = replay.choose(spark, lake, asked, tenant=tenant, replay="r", now_ms=now_ms)
    assert chosen.count == 37
    plain = query.ask(lake, "select count(*) from messages where queue = 'orders'", limit=1)
    assert plain.rows == [[40]]


def _meant(body: bytes | None) -> bool:
    try:
        return json.loads(body or b"null")["n"] in (7, 22, 26)
    except (ValueError, TypeError, KeyError):
        return False


def _ordered(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(found, key=lambda row: str((row["queue_id"], row["seq"], row.get("offset"))))


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        (ErasureAsked(queue="orders", where="outcome = 'buried'"), 3),
        (ErasureAsked(queue="orders", before_ms=NOW_MS), 0),
        (ErasureAsked(before_ms=4_000_000_000_000, queue="short"), 5),
        (ErasureAsked(tenant="nobody"), 0),
        (ErasureAsked(where="queue = 'waste' -- all of it"), 10),
    ],
)
def test_messages_are_chosen_by_queue_age_and_condition(
    small: SmallLake, asked: ErasureAsked, count: int
) -> None:
    assert erasure.choose(small.lake, asked).messages == count


@pytest.mark.parametrize("where", ["true) or (true", "(true", "true, true", "true; select 1"])
def test_a_condition_does_not_reach_beyond_the_queue_that_is_named(
    small: SmallLake, where: str
) -> None:
    with pytest.raises(LakeError):
        erasure.choose(small.lake, ErasureAsked(queue="short", where=where))


def test_a_word_of_sql_in_a_condition_is_said_to_need_quotes(small: SmallLake) -> None:
    with pytest.raises(LakeError, match="'group' is a word of SQL"):
        erasure.choose(small.lake, ErasureAsked(where="group = 'a'"))


def test_it_waits_for_no_one_and_says_what_is_in_the_way(lake: Lake) -> None:
    with lock.hold(lake.root), pytest.raises(LakeError, match="another pipeline is running"):
        erasure.erase(lake, ErasureAsked(queue="orders"), actor="ada", now_ms=NOW_MS)
    plan = Path(lake.root, "_replays", "mine", "key")
    plan.mkdir(parents=True)
    with pytest.raises(LakeError, match="replay 'mine' has not ended"):
        erasure.erase(lake, ErasureAsked(queue="orders"), actor="ada", now_ms=NOW_MS)
    with pytest.raises(LakeError, match='"nope" not found'):
        erasure.choose(lake, ErasureAsked(where="nope"))
    assert erasure.records(lake) == []


def test_the_command_says_what_it_erased(lake: Lake) -> None:
    courier = Command("--lake", lake.root)
    assert "say what to erase" in courier.fails(2, "lake", "erase")
    words = ("lake", "erase", "--queue", "short")
    assert courier(*words, "--dry-run").out == "5 messages of 1 queue, 35 bytes\n"
    assert courier(*words, "--actor", "ada").out.startswith("5 messages erased, 35 bytes; record ")
    [shown] = courier("lake", "erasures", "--json").json
    assert (shown["actor"], shown["messages"], shown["asked"]) == ("ada", 5, {"queue": "short"})
    assert courier("lake", "erasures").rows[0][2:5] == ["ada", "5", "35"]


@pytest.mark.parametrize("asked", ["queue", "tenant", "where", "queue and where"])
def test_rows_are_dropped_by_queue_tenant_and_condition(
    small: SmallLake, lake: Lake, asked: str
) -> None:
    day = retention.day_of(replay.now_ms() + 86_400_000)
    tenant = small.server.credentials["cloudflare"]["account_id"]
    wheres = {"where": "outcome = 'buried'", "queue and where": "data->>'n' in ('3', '4')"}
    wanted = retention.DropAsked(
        day,
        queue="orders" if "queue" in asked else "",
        tenant=tenant if asked == "tenant" else "",
        where=wheres.get(asked, ""),
    )

    def is_of_it(row: dict[str, Any]) -> bool:
        key = "tenant" if asked == "tenant" else "queue_id"
        return bool(row[key] == (tenant if asked == "tenant" else orders))

    def is_meant(message: dict[str, Any]) -> bool:
        """Whether it is, if it has ended."""
        if asked == "where":
            return bool(message["outcome"] == "buried")
        if asked == "queue and where":
            return is_of_it(message) and json.loads(message["body"])["n"] in (3, 4)
        return is_of_it(message)

    [orders] = {row["queue_id"] for row in rows(lake.messages) if row["queue"] == "orders"}
    before = {table.name: rows(table) for table in lake.tables}
    ended = [row for row in before["messages"] if row["ended"] != "live" and is_meant(row)]
    keys = {(row["queue_id"], row["seq"]) for row in ended}
    assert keys
    left = dict(before)
    if wanted.where:
        events = before["events"]
        left["events"] = [row for row in events if (row["queue_id"], row["seq"]) not in keys]
    else:
        for name, found in before.items():
            left[name] = [row for row in found if not is_of_it(row)]
    left["messages"] = [row for row in before["messages"] if row not in ended]
    left["audit"] = before["audit"]  # the last day has the totals of all time

    told = {each.table: each.rows for each in retention.chosen(lake, wanted)}
    assert {table.name: rows(table) for table in lake.tables} == before
    assert told == {name: len(before[name]) - len(left[name]) for name in before}
    retention.drop(lake, wanted, actor="ada", now_ms=NOW_MS)
    assert {table.name: rows(table) for table in lake.tables} == left
    assert [each.rows for each in retention.chosen(lake, wanted)] == [0] * 5
    with pytest.raises(LakeError, match="about a queue 'nope'"):
        retention.chosen(lake, retention.DropAsked(day, queue="nope"))


def test_whole_days_are_dropped_and_totals_and_the_audit_stay_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Server(tmp_path).start() as server, server.client() as http:
        queue = CloudflareClient(http, "orders")
        queue.publish_batch([f"secret {n}" for n in range(10)])
        leased = queue.pull(7)
        queue.ack([each.lease for each in leased[:4]])
        other = CloudflareClient(http, "other")
        other.publish_batch(["noise"] * 3)
        other.ack([each.lease for each in other.pull(2)])
        lake = bring(spark, server, tmp_path / "lake")
        live = [row for row in rows(lake.messages) if row["ended"] == "live"]
        assert len(live) == 7
        day = retention.day_of(replay.now_ms() + 86_400_000)
        none = retention.drop(lake, retention.DropAsked("2001-01-01"), actor="ada", now_ms=NOW_MS)
        assert [each.rows for each in none] == [0] * 5
        list(rebuild(spark, lake))
        of_other = retention.DropAsked(day, queue="other")
        retention.drop(lake, of_other, actor="ada", now_ms=NOW_MS)
        assert not [row for row in rows(lake.events) if row["queue"] == "other"]
        meant = {each.table: each.rows for each in retention.chosen(lake, retention.DropAsked(day))}
        assert (meant["events"], meant["messages"], meant["audit"]) == (
            len(rows(lake.events)),
            4,
            0,
        )
        retention.drop(lake, retention.DropAsked(day), actor="ada", now_ms=NOW_MS + 1)
        assert rows(lake.events) == rows(lake.queue_minutes) == rows(lake.consumers_hours) == []
        assert rows(lake.messages) == live
        for n in (0, 3):
            assert holding(tmp_path / "lake", f"secret {n}".encode()) == []
        first, record = [each for each in erasure.records(lake) if each.messages]
        assert (first.asked, first.messages) == ({"dropped_before": day, "queue": "other"}, 2)
        assert (record.asked, record.messages) == ({"dropped_before": day}, 4) and record.done

        # It goes on from there, what was leased before is acked after.
        queue.ack([each.lease for each in leased[4:6]])
        queue.publish_batch(["later"])
        bring(spark, server, tmp_path / "lake")
        lake = Lake(lake.root)
        messages = [row for row in rows(lake.messages) if row["queue"] == "orders"]
        found = {row["seq"]: row["outcome"] for row in messages}
        assert sorted(found.values()) == ["acked"] * 2 + ["live"] * 5
        last = max(
            (row for row in rows(lake.audit) if row["queue"] == "orders"),
            key=lambda row: row["last_offset"],
        )
        assert (last["accepted"], last["acked"], last["live_lake"]) == (11, 6, 5)
        wrong = ("difference", "gaps", *audit.FINDINGS)
        assert [row for row in rows(lake.audit) if any(row[name] for name in wrong)] == []
        with pytest.raises(LakeError, match=f"events before {day} were dropped"):
            list(rebuild(spark, lake))
