"""Query strings of the Anypoint APIs that are out of range, or no query strings at all."""

import time

import pytest

from tests.attack.environment import Spot, accepted, complained, refused

NO_DATE = [
    "",
    "abc",
    "0",
    "-1",
    "1e10",
    "9" * 5_000,
    "2024",
    "2024-13-01T00:00:00Z",
    "2024-02-30T00:00:00Z",
    "2024-01-01T25:00:00Z",
    "2024-01-01T00:00:00+99:99",
    "10000-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "Sun, 99 Sep 2022 23:35:01 GMT",
    "Sun, 25 Xxx 2022 23:35:01 GMT",
    "Sun, 25 Sep 2022 23:35:01 +9999",
    "Sun, 25 Sep 99999999999 23:35:01 GMT",
    "Mon, 31 Feb 2022 00:00:00 GMT",
    "%00",
    "%ff",
    "%D9%A2024-01-01T00:00:00Z",
    "now",
    "null",
    "{}",
]
# Dates there are, at the ends of what can be written.
FAR = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00%2B23:59",
    "0001-01-01T00:00:00-23:59",
    "1582-10-15T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59%2B23:59",
    "Sat, 01 Jan 0001 00:00:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "1 Jan 70 00:00:00",
]
PROMPT_SECONDS_MAX = 3.0


@pytest.mark.parametrize(
    "query",
    [
        "pollingTime=20001",
        "batchSize=0",
        "batchSize=11",
        "lockTtl=86400001",
        "pollingTime=-0",
        "batchSize=1000000000000",
        "payloadVisibility=",
        "payloadVisibility=FULL",
        "payloadVisibility=%00",
        "payloadVisibility=" + "x" * 10_000,
    ],
    ids=lambda query: query[:40],
)
def test_value_out_of_range_is_refused_by_name(spot: Spot, query: str) -> None:
    spot.publish(spot.line, "m1")
    name = query.partition("=")[0]
    assert name in refused(spot.broker.ask("GET", f"/{spot.line}/messages?{query}"), 400)
    assert len(spot.get(spot.line)) == 1, "refused, and locked all the same"


def test_parameter_given_twice_gets_an_answer(spot: Spot) -> None:
    for query in (
        "pollingTime=0&pollingTime=20000",
        "batchSize=1&batchSize=x",
        "lockTtl=0&lockTtl",
    ):
        began = time.monotonic()
        answer = spot.broker.ask("GET", f"/{spot.queue}/messages?{query}&pollingTime=0")
        assert answer.status in (200, 204, 400), answer
        assert time.monotonic() - began < 12


@pytest.mark.parametrize(
    "query",
    [
        "destinationType=both",
        "destinationType=",
        "destinationType=%00",
        "inclusion=some",
        "inclusion=",
        "inclusion=" + "x" * 10_000,
        "limit=100000000000000",
    ],
    ids=lambda query: query[:30],
)
def test_choice_nobody_offers_is_refused_by_name(spot: Spot, query: str) -> None:
    name = query.partition("=")[0]
    assert name in complained(spot.environment.admin.ask("GET", f"/destinations?{query}"), 400)


@pytest.mark.parametrize("text", ["%25", "%5F", ".*", "%2A", "%00", "%ff", "'--", "x" * 10_000])
def test_prefix_is_text_and_nothing_else(spot: Spot, text: str) -> None:
    admin = spot.environment.admin
    for path in ("/destinations", f"/bindings/queues/{spot.queue}"):
        assert accepted(admin.ask("GET", f"{path}?startsWith={text}")) == []
    assert accepted(admin.ask("GET", f"/destinations?destinationIds={text}")) == []
    whole = accepted(admin.ask("GET", f"/destinations?startsWith={spot.queue}"))
    assert len(whole) == len(spot.destinations())


def test_very_many_ids_get_an_answer(spot: Spot) -> None:
    own = spot.environment
    few, many = ",".join(["a"] * 999), ",".join(["a"] * 20_000)
    for client, path in ((own.admin, "/destinations"), (own.stats, "/queues")):
        assert accepted(client.ask("GET", f"{path}?destinationIds={few}")) == []
        complained(client.ask("GET", f"{path}?destinationIds={many}"), 400)
        assert client.ask("GET", f"{path}?destinationIds=,,,").status in (200, 400)


# --- numbers of the past ---------------------------------------------------------------------


@pytest.mark.parametrize("date", NO_DATE, ids=lambda date: repr(date[:24]))
@pytest.mark.parametrize("name", ["startDate", "endDate"])
def test_date_that_is_none_is_refused_by_name(spot: Spot, name: str, date: str) -> None:
    own = spot.environment
    query = f"{name}={date.replace(' ', '%20')}"
    for path in (f"/queues/{spot.queue}", f"/exchanges/{spot.exchange}"):
        answer = own.stats.ask("GET", f"{path}?period=60&{query}")
        assert name in complained(answer, 400)
    for place in (own.place, own.organization):
        answer = own.stats.ask("GET", f"//mq/stats/api/v1{place}?period=1hour&{query}")
        assert name in complained(answer, 400)


@pytest.mark.parametrize("start", FAR)
@pytest.mark.parametrize("end", FAR)
def test_dates_at_the_ends_of_time_get_an_answer(spot: Spot, start: str, end: str) -> None:
    own = spot.environment
    dates = f"startDate={start}&endDate={end}".replace(" ", "%20")
    began = time.monotonic()
    for period in (1, 86_400):
        answer = own.stats.ask("GET", f"/queues/{spot.queue}?period={period}&{dates}")
        assert answer.status in (200, 400), answer
    for use in ("1hour", "1month"):
        answer = own.stats.ask("GET", f"//mq/stats/api/v1{own.place}?period={use}&{dates}")
        assert answer.status in (200, 400), answer
    assert time.monotonic() - began < PROMPT_SECONDS_MAX


def test_series_of_very_many_points_is_refused(spot: Spot) -> None:
    dates = "startDate=2000-01-01T00:00:00Z&endDate=2026-01-01T00:00:00Z"
    for path in (f"/queues/{spot.queue}", f"/exchanges/{spot.exchange}"):
        answer = spot.environment.stats.ask("GET", f"{path}?period=1&{dates}")
        assert "points" in complained(answer, 400)


@pytest.mark.parametrize("missing", ["destinationIds", "period"])
def test_missing_parameter_is_refused_by_name(spot: Spot, missing: str) -> None:
    path = "/queues" if missing == "destinationIds" else f"/queues/{spot.queue}"
    assert missing in complained(spot.environment.stats.ask("GET", path), 400)
