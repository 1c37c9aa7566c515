"""Query strings of the Anypoint APIs that are out of range, or no query strings at all."""

import time

import pytest

from tests.attack.environment import Spot, accepted, complained

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


@pytest.mark.parametrize("number", range(len(FAR)))
def test_dates_at_the_ends_of_time_get_an_answer(spot: Spot, number: int) -> None:
    own, start = spot.environment, FAR[number]
    for end in (start, FAR[number - 1], FAR[number - 5]):
        dates = f"startDate={start}&endDate={end}".replace(" ", "%20")
        began = time.monotonic()
        for period in (1, 86_400):
            answer = own.stats.ask("GET", f"/queues/{spot.queue}?period={period}&{dates}")
            assert answer.status in (200, 400), answer
        for use in ("1hour", "1month"):
            answer = own.stats.ask("GET", f"//mq/stats/api/v1{own.place}?period={use}&{dates}")
            assert answer.status in (200, 400), answer
        assert time.monotonic() - began < PROMPT_SECONDS_MAX
