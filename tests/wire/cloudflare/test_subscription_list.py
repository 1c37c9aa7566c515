"""The list of event subscriptions: pages, order, filter."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok, page
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue

AT = "/event_subscriptions/subscriptions"
# More than one page of the default size.
COUNT = 25
KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["name"],
    "created_at": lambda row: row["created_at"],
    "enabled": lambda row: row["enabled"],
    "source": lambda row: row["source"]["type"],
}


@pytest.fixture(scope="module")
def many(new_tenant: Callable[[], httpx.Client]) -> httpx.Client:
    """An account whose subscriptions have another order by each of their fields."""
    http = new_tenant()
    queues = [Queue.create(http, queue_name=name) for name in ("first", "second")]
    for number in range(COUNT):
        body: dict[str, Any] = {
            "name": f"name-{(number * 7) % COUNT // 2:02}",
            "enabled": number % 3 == 0,
            "source": {"type": "workflows.workflow", "workflow_name": f"w{number}"},
            "events": ["instance.completed"],
            "destination": {"type": "queues.queue", "queue_id": queues[number % 2].id},
        }
        if number % 5 == 0:
            body["source"] = {"type": "workersAi.model", "model_name": f"m{number}"}
            body["events"] = ["batch.failed"]
        shapes.check_subscription(ok(http.post(AT, json=body)))
    return http


def everything(http: httpx.Client, **query: str) -> list[Any]:
    rows, info = page(http.get(AT, params={"per_page": 100, **query}))
    assert info["total_count"] == len(rows)
    return rows


def test_an_account_without_subscriptions_has_an_empty_list(
    new_tenant: Callable[[], httpx.Client],
) -> None:
    rows, info = page(new_tenant().get(AT))
    assert rows == []
    assert info == {"page": 1, "per_page": 20, "count": 0, "total_count": 0, "total_pages": 0}


def test_there_are_twenty_to_a_page(many: httpx.Client) -> None:
    rows, info = page(many.get(AT))
    assert info == {"page": 1, "per_page": 20, "count": 20, "total_count": COUNT, "total_pages": 2}
    assert rows == everything(many)[:20]
    rows, info = page(many.get(AT, params={"page": 2}))
    assert (info["page"], info["count"]) == (2, COUNT - 20)
    assert rows == everything(many)[20:]


@pytest.mark.parametrize(
    "query", ["page=3", "page=1000", "page=26&per_page=1", "page=2&per_page=25"]
)
def test_a_page_past_the_end_is_empty(many: httpx.Client, query: str) -> None:
    rows, info = page(many.get(f"{AT}?{query}"))
    assert rows == []
    assert (info["count"], info["total_count"]) == (0, COUNT)


@pytest.mark.parametrize("per_page", [1, 100])
def test_a_page_size_at_its_limit_is_accepted(many: httpx.Client, per_page: int) -> None:
    rows, info = page(many.get(AT, params={"per_page": per_page}))
    assert len(rows) == min(per_page, COUNT)
    assert (info["per_page"], info["total_pages"]) == (per_page, -(-COUNT // per_page))


@pytest.mark.parametrize(
    "query",
    [
        *("page=0", "page=-1", "page=x", "page=1.5", "per_page=0", "per_page=101", "per_page=-1"),
        *("per_page=x", "order=size", "order=NAME", "direction=up", "direction=ASC"),
    ],
)
def test_a_bad_query_is_refused(many: httpx.Client, query: str) -> None:
    fail(many.get(f"{AT}?{query}"), 400, 0)


@pytest.mark.parametrize("order", ["name", "created_at", "enabled", "source"])
def test_a_list_goes_by_the_field_asked_for(many: httpx.Client, order: str) -> None:
    rising = [KEYS[order](row) for row in everything(many, order=order)]
    assert rising == sorted(rising)
    assert len(set(rising)) > 1
    assert rising == [KEYS[order](row) for row in everything(many, order=order, direction="asc")]
    falling = [KEYS[order](row) for row in everything(many, order=order, direction="desc")]
    assert falling == sorted(rising, reverse=True)


def test_a_list_goes_by_name_unless_told_otherwise(many: httpx.Client) -> None:
    assert everything(many) == everything(many, order="name", direction="asc")


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("order", ["name", "created_at", "enabled", "source"])
def test_pages_of_any_order_add_up_to_the_list(
    many: httpx.Client, order: str, direction: str
) -> None:
    query: dict[str, Any] = {"order": order, "direction": direction, "per_page": 7}
    gathered: list[Any] = []
    for number in (1, 2, 3, 4):
        gathered += page(many.get(AT, params={**query, "page": number}))[0]
    assert gathered == everything(many, order=order, direction=direction)


def test_equal_rows_go_by_their_id(many: httpx.Client) -> None:
    rows = everything(many, order="enabled")
    assert rows == sorted(rows, key=lambda row: (row["enabled"], row["id"]))


def test_a_list_can_be_limited_to_one_queue(many: httpx.Client) -> None:
    queues, _ = page(many.get("/queues"))
    for queue, count in zip(queues, (13, 12), strict=True):
        rows, info = page(many.get(AT, params={"queue_id": queue["queue_id"], "per_page": 5}))
        assert (len(rows), info["total_count"], info["total_pages"]) == (5, count, 3)
        assert {row["destination"]["queue_id"] for row in rows} == {queue["queue_id"]}


@pytest.mark.parametrize("queue_id", [UNKNOWN_ID, "x"])
def test_an_unknown_queue_has_no_subscriptions(many: httpx.Client, queue_id: str) -> None:
    rows, info = page(many.get(AT, params={"queue_id": queue_id}))
    assert (rows, info["total_count"]) == ([], 0)
