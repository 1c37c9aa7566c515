"""The list of queues: pages, names, order."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, page

# More than one page of the default size.
COUNT = 105


@pytest.fixture(scope="module")
def many(new_tenant: Callable[[], httpx.Client]) -> httpx.Client:
    """An account with queues that were made in the reverse order of their names."""
    http = new_tenant()
    for number in reversed(range(COUNT)):
        assert http.post("/queues", json={"queue_name": f"many-{number:03}"}).status_code == 200
    return http


def names(rows: list[Any]) -> list[str]:
    return [row["queue_name"] for row in rows]


def test_an_account_without_queues_has_an_empty_list(
    new_tenant: Callable[[], httpx.Client],
) -> None:
    http = new_tenant()
    for query in ("", "?page=1", "?page=1&per_page=10", "?name=a"):
        rows, info = page(http.get(f"/queues{query}"))
        assert rows == []
        assert (info["page"], info["total_count"], info["total_pages"]) == (1, 0, 0)


def test_without_a_page_every_queue_is_listed(many: httpx.Client) -> None:
    rows, info = page(many.get("/queues"))
    assert len(set(names(rows))) == COUNT
    assert (info["page"], info["count"], info["total_count"]) == (1, COUNT, COUNT)
    assert info["total_pages"] == 1
    for row in rows:
        shapes.check_queue(row)


def test_the_oldest_queue_is_listed_first(many: httpx.Client) -> None:
    rows, _ = page(many.get("/queues"))
    assert rows == sorted(rows, key=lambda row: (row["created_on"], row["queue_name"]))
    assert rows[0]["created_on"] < rows[-1]["created_on"]


def test_with_a_page_there_are_a_hundred_to_a_page(many: httpx.Client) -> None:
    everything, _ = page(many.get("/queues"))
    first, info = page(many.get("/queues", params={"page": 1}))
    assert info == {
        "page": 1,
        "per_page": 100,
        "count": 100,
        "total_count": COUNT,
        "total_pages": 2,
    }
    second, info = page(many.get("/queues", params={"page": 2}))
    assert (info["page"], info["count"]) == (2, COUNT - 100)
    assert first + second == everything


@pytest.mark.parametrize("per_page", [1, 10, 50, 104, 105, 106, 1000])
def test_pages_of_any_size_add_up_to_the_list(many: httpx.Client, per_page: int) -> None:
    everything, _ = page(many.get("/queues"))
    gathered: list[Any] = []
    # As the vendor's command line does it: on while page * per_page < total_count.
    for number in range(1, 4 if per_page == 1 else 20):
        rows, info = page(many.get("/queues", params={"page": number, "per_page": per_page}))
        assert (info["page"], info["per_page"], info["total_count"]) == (number, per_page, COUNT)
        gathered += rows
        if number * per_page >= info["total_count"]:
            break
    assert gathered == everything[: len(gathered)]
    assert len(gathered) == (3 if per_page == 1 else COUNT)


def test_a_page_size_without_a_page_gives_the_first_page(many: httpx.Client) -> None:
    everything, _ = page(many.get("/queues"))
    rows, info = page(many.get("/queues", params={"per_page": 7}))
    assert rows == everything[:7]
    assert (info["page"], info["per_page"], info["total_pages"]) == (1, 7, 15)


@pytest.mark.parametrize("query", ["page=3", "page=9999", "page=12&per_page=10"])
def test_a_page_past_the_end_is_empty(many: httpx.Client, query: str) -> None:
    rows, info = page(many.get(f"/queues?{query}"))
    assert rows == []
    assert (info["count"], info["total_count"]) == (0, COUNT)


@pytest.mark.parametrize("query", ["name=many-007", "page=1&name=many-007"])
def test_a_name_finds_exactly_that_queue(many: httpx.Client, query: str) -> None:
    rows, info = page(many.get(f"/queues?{query}"))
    assert names(rows) == ["many-007"]
    assert (info["count"], info["total_count"], info["total_pages"]) == (1, 1, 1)


@pytest.mark.parametrize("name", ["many", "many-00", "many-0070", "MANY-007", "Many-007", "*", "%"])
def test_a_name_that_is_not_exactly_a_queues_finds_nothing(many: httpx.Client, name: str) -> None:
    rows, info = page(many.get("/queues", params={"page": 1, "name": name}))
    assert rows == []
    assert info["total_count"] == 0


def test_several_names_find_several_queues(many: httpx.Client) -> None:
    rows, info = page(many.get("/queues?name=many-001&name=many-100&name=nothing&page=1"))
    assert names(rows) == ["many-100", "many-001"]
    assert (info["count"], info["total_count"]) == (2, 2)


def test_a_name_given_twice_counts_once(many: httpx.Client) -> None:
    rows, info = page(many.get("/queues?name=many-001&name=many-001"))
    assert names(rows) == ["many-001"]
    assert info["total_count"] == 1


@pytest.mark.parametrize("size", ["1001", "1000000000000"])
def test_a_page_has_a_largest_size(many: httpx.Client, size: str) -> None:
    assert "per_page" in fail(many.get("/queues", params={"per_page": size}), 400)


def test_names_and_pages_go_together(many: httpx.Client) -> None:
    query = "name=many-005&name=many-050&name=many-100&per_page=2"
    first, info = page(many.get(f"/queues?{query}&page=1"))
    second, _ = page(many.get(f"/queues?{query}&page=2"))
    assert (info["total_count"], info["total_pages"]) == (3, 2)
    assert names(first + second) == ["many-100", "many-050", "many-005"]
