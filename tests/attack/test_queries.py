"""Query strings that are out of range, out of order, or no query strings at all."""

import pytest

from tests.attack.peer import Account, accepted, refused

SUBSCRIPTIONS = "/event_subscriptions/subscriptions"


@pytest.mark.parametrize("per_page", [1, 1_000])
def test_page_far_behind_the_end_is_empty(account: Account, per_page: int) -> None:
    for page in (10**6, 10**9):
        query = f"?page={page}&per_page={min(per_page, 100)}"
        assert accepted(account.ask("GET", f"/queues{query}")) == []
        assert accepted(account.ask("GET", f"{SUBSCRIPTIONS}{query}")) == []


@pytest.mark.parametrize("query", ["per_page=1001", "per_page=1000000000000"])
def test_page_of_queues_has_a_largest_size(account: Account, query: str) -> None:
    assert "per_page" in refused(account.ask("GET", f"/queues?{query}"), 400)


@pytest.mark.parametrize(
    "query", ["per_page=101", "order=size", "order=", "direction=up", "direction=", "order=NAME"]
)
def test_order_nobody_knows_is_refused_by_name(account: Account, query: str) -> None:
    name = query.partition("=")[0]
    assert name in refused(account.ask("GET", f"{SUBSCRIPTIONS}?{query}"), 400)


def test_name_filter_matches_whole_names_only(account: Account, queue_name: str) -> None:
    accepted(account.ask("POST", "/queues", b'{"queue_name":"%s"}' % queue_name.encode()))
    for odd in (
        queue_name[:-1],
        queue_name.upper(),
        queue_name + "%20",
        queue_name + "%00",
        queue_name[:-1] + "%25",
        queue_name[:-1] + "_",
        "",
    ):
        assert accepted(account.ask("GET", f"/queues?name={odd}")) == []
    assert len(accepted(account.ask("GET", f"/queues?name={queue_name}"))) == 1
