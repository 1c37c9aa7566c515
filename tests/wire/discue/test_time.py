"""What depends on the time: windows of events and stats, challenges, uses of keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from courier.core.types import Actor, Draft, KeyUse
from courier.dialects.discue import events as module
from courier.dialects.discue import names
from tests.clients.discue import DiscueClient, ok
from tests.delivery.receiver import closed_port
from tests.wire.discue.timed import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Timed, timed


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Timed]:
    with timed(tmp_path) as made:
        yield made


def types(client: DiscueClient, query: str = "events=messages") -> list[str]:
    return [event["type"] for event in ok(client.get(f"/events?{query}"))["events"]]


def followed(client: DiscueClient, query: str, pages_max: int = 100) -> list[list[dict[str, Any]]]:
    """The pages that the links lead through."""
    pages = []
    for _ in range(pages_max):
        answer = ok(client.get(f"/events?{query}"))
        pages.append(answer["events"])
        if "next" not in answer["_links"]:
            return pages
        query = urlsplit(answer["_links"]["next"]["href"]).query
    raise AssertionError("the links lead nowhere")


# --- events ---


def test_events_are_shown_for_a_day(place: Timed) -> None:
    queue = place.client.new_queue()
    place.client.add(queue, "x")
    place.clock.advance(DAY_MS)
    assert types(place.client) == ["message_added"]
    place.clock.advance(1)
    assert types(place.client) == []
    place.client.add(queue, "y")
    assert types(place.client) == ["message_added"]
    # Nor does a cursor lead further back.
    cursor = "startAfter=1&startAfterId=evt000000000000000001"
    assert types(place.client, f"events=messages&{cursor}") == ["message_added"]


def test_the_order_is_that_of_what_happened(place: Timed) -> None:
    queue = place.client.new_queue()
    for _ in range(3):
        place.client.add(queue, "x")
        place.client.add(queue, "x")
        place.clock.advance(1)
    found = ok(place.client.get("/events?events=messages"))["events"]
    assert [each["stored_at"] - START_MS for each in found] == [0, 0, 1, 1, 2, 2]
    assert [each["id"] for each in found] == sorted(each["id"] for each in found)


def test_a_request_looks_at_so_many_events(place: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be much busier; the link then leads on, past what is none of one's business."""
    monkeypatch.setattr(module, "LOOKED_MAX", 20)
    monkeypatch.setattr(module, "STEP", 7)
    queue = place.client.new_queue()
    other = place.new_organization("other")
    theirs = other.new_queue()
    own = [place.client.add(queue, "first")]
    for _ in range(50):
        other.add(theirs, "x")
    own.append(place.client.add(queue, "second"))
    for limit in (1, 2, 100):
        pages = followed(place.client, f"events=messages&limit={limit}")
        assert [each["message"]["id"] for page in pages for each in page] == own
        assert [] in pages
    every = [each for page in followed(other, "events=messages&limit=3") for each in page]
    assert [each["message"]["id"] for each in every] == other.messages(theirs)


def test_a_batch_of_another_dialect_is_told_of_one_by_one(place: Timed) -> None:
    """Its events are packed into one row of the journal, and a page may end inside it."""
    queue = place.client.new_queue()
    drafts = [Draft(b"x", id=f"own-{i}", headers={"name": f"no-{i}"}) for i in range(10)]
    place.run(
        place.store.publish(
            [(names.read(queue), drafts)], actor=Actor("me", "test"), now_ms=START_MS
        )
    )
    for limit in (1, 3, 100):
        pages = followed(place.client, f"events=messages&limit={limit}")
        found = [each["message"] for page in pages for each in page]
        assert [each["name"] for each in found] == [f"no-{i}" for i in range(10)]
        assert [each["id"] for each in found] == place.client.messages(queue)


# --- stats ---


def counted(place: Timed) -> tuple[int, ...]:
    """Messages added in the last hour, in the last 24 hours, and today."""
    blocks = ok(place.client.get("/stats/messages"))["aggregated_api_usage_events"]
    return tuple(
        blocks[name]["message_added"] for name in ("last_1_hours", "last_24_hours", "today_so_far")
    )


def test_stats_know_the_hour_the_day_and_today(place: Timed) -> None:
    queue = place.client.new_queue()
    place.client.add(queue, "at 10:00")
    place.clock.advance(40 * MINUTE_MS)
    place.client.add(queue, "at 10:40")
    place.client.add(queue, "at 10:40")
    assert counted(place) == (3, 3, 3)
    place.clock.advance(30 * MINUTE_MS)  # 11:10
    assert counted(place) == (2, 3, 3)
    place.clock.advance(31 * MINUTE_MS)  # 11:41
    assert counted(place) == (0, 3, 3)
    place.clock.advance(12 * HOUR_MS + 18 * MINUTE_MS)  # 23:59
    place.client.add(queue, "at 23:59")
    assert counted(place) == (1, 4, 4)
    place.clock.advance(MINUTE_MS)  # midnight
    assert counted(place) == (1, 4, 0)
    place.client.add(queue, "at 00:00")
    assert counted(place) == (2, 5, 1)
    place.clock.advance(10 * HOUR_MS + MINUTE_MS)  # 10:01
    assert counted(place) == (0, 4, 1)
    place.clock.advance(13 * HOUR_MS + 58 * MINUTE_MS)  # 23:59
    assert counted(place) == (0, 2, 1)
    place.clock.advance(2 * DAY_MS)
    assert counted(place) == (0, 0, 0)


# --- domains ---


def claim(place: Timed) -> dict[str, Any]:
    body = {"alias": "home", "hostname": "127.0.0.1", "port": closed_port()}
    made: dict[str, Any] = ok(place.client.post("/domains", body))["domain"]
    return made


@pytest.mark.parametrize("how", ["PUT", "verify"])
def test_a_challenge_is_renewed_once_it_has_run_out(place: Timed, how: str) -> None:
    made = claim(place)
    path = f"/domains/{made['id']}"

    def renew() -> dict[str, Any]:
        if how == "PUT":
            answer = place.client.put(path, {"alias": "home"})
        else:
            answer = place.client.post(f"{path}/verify")
        found: dict[str, Any] = ok(answer)["domain"]
        return found

    place.clock.advance(7 * DAY_MS - 1)
    assert renew() == made
    place.clock.advance(1)
    assert ok(place.client.get(path))["domain"] == made
    new = renew()
    old_challenge, challenge = made["challenge"]["https"], new["challenge"]["https"]
    assert challenge["created_at"] == START_MS + 7 * DAY_MS
    assert challenge["expires_at"] == START_MS + 14 * DAY_MS
    for member in ("file_name", "file_content"):
        assert challenge[member] != old_challenge[member]
    assert renew() == new == ok(place.client.get(path))["domain"]


# --- keys ---


def test_the_use_of_a_key_is_noted_now_and_then(place: Timed) -> None:
    made = ok(place.client.post("/api_keys", {}))
    key = DiscueClient(place.client.http, made["api_key"])

    def last_used_ms() -> int | None:
        found = ok(place.client.get(f"/api_keys/{made['id']}"))["api_key"]["last_used_at"]
        assert found is None or isinstance(found, int)
        return found

    assert last_used_ms() is None
    ok(key.get("/queues"))
    assert last_used_ms() == START_MS
    place.clock.advance(5 * MINUTE_MS - 1)
    ok(key.get("/queues"))
    assert last_used_ms() == START_MS
    place.clock.advance(1)
    ok(key.get("/queues"))
    assert last_used_ms() == START_MS + 5 * MINUTE_MS


def test_the_end_of_a_key_is_the_end_of_what_was_noted_of_it(place: Timed) -> None:
    made = ok(place.client.post("/api_keys", {}))
    before = len(place.store.records.scan(KeyUse))
    ok(DiscueClient(place.client.http, made["api_key"]).get("/queues"))
    assert len(place.store.records.scan(KeyUse)) == before + 1
    ok(place.client.delete(f"/api_keys/{made['id']}"))
    assert len(place.store.records.scan(KeyUse)) == before
