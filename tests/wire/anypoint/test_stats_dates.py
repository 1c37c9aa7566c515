"""Dates in all the forms in which clients write them."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.wire.anypoint.answers import admin_fail, ok
from tests.wire.anypoint.destination import Queue
from tests.wire.anypoint.environment import STATS

GOOD = {
    # RFC 1123
    "Sun, 25 Sep 2022 23:35:01 GMT": "2022-09-25T23:35:01.000",
    "Sun, 25 Sep 2022 23:35:01 UTC": "2022-09-25T23:35:01.000",
    "Sun, 25 Sep 2022 23:35:01": "2022-09-25T23:35:01.000",
    "Sun, 25 Sep 2022 23:35:01 +0200": "2022-09-25T21:35:01.000",
    "Sun, 4 Sep 2022 03:05:01 GMT": "2022-09-04T03:05:01.000",
    "Sun, 4 Sep 2022 03:05:01": "2022-09-04T03:05:01.000",
    "Sunday, 25 Sep 2022 23:35:01 GMT": "2022-09-25T23:35:01.000",
    "Wednesday, 7 Sep 2022 23:35:01 UTC": "2022-09-07T23:35:01.000",
    "Thu, 29 Feb 2024 00:00:00 GMT": "2024-02-29T00:00:00.000",
    # ISO 8601
    "2024-07-11T17:51:54.000Z": "2024-07-11T17:51:54.000",
    "2024-07-11T17:51:54.123Z": "2024-07-11T17:51:54.123",
    "2024-07-11T17:51:54Z": "2024-07-11T17:51:54.000",
    "2016-11-01T19:00Z": "2016-11-01T19:00:00.000",
    "2024-07-11T17:51:54": "2024-07-11T17:51:54.000",
    "2024-07-11T17:51:54+02:00": "2024-07-11T15:51:54.000",
    "2024-07-11T17:51:54.500-05:30": "2024-07-11T23:21:54.500",
    "2024-07-11T17:51:54.000+0000": "2024-07-11T17:51:54.000",
    "2024-07-11T17:51:54+0200": "2024-07-11T15:51:54.000",
}
BAD = [
    *("", " ", "yesterday", "2022", "1664148901", "2022-13-01T00:00Z", "2022-02-30T00:00:00Z"),
    *("2022-09-25T25:00:00Z", "Sun, 32 Sep 2022 23:35:01 GMT", "Sun, 25 Foo 2022 23:35:01 GMT"),
    *("Sun, 25 Sep 2022 25:35:01 GMT", "25/09/2022", "99999-01-01T00:00:00Z"),
    *("0000-00-00T00:00:00Z", "-0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"),
    *("Mon, 31 Feb 2022 00:00:00 GMT", "Sun, 25 Sep 2022 23:35:01 +9999"),
    *("Sun, 25 Sep 20222222222222222222 23:35:01 GMT", "2024-07-11T17:51:54+99:99", "\x00"),
    "x" * 5_000,
]


def ask(queue: Queue, query: str) -> httpx.Response:
    env = queue.env
    path = f"{env.stats_path}/queues/{queue.name}?period=86400&{query}"
    return env.call("GET", path, token=env.tokens.user)


def first(response: httpx.Response) -> str:
    """When the first point is."""
    points: list[dict[str, Any]] = ok(response)["messagesSent"]
    date: str = points[0]["date"]
    assert date.endswith("+0000")
    return date.removesuffix("+0000")


@pytest.mark.parametrize(("written", "meant"), GOOD.items())
def test_a_date_is_understood(standing_queue: Queue, written: str, meant: str) -> None:
    end = quote(meant[:10] + "T23:59:59.999Z")
    start = quote(written, safe="")
    assert first(ask(standing_queue, f"startDate={start}&endDate={end}")) == meant
    # As an end it is one period after the start.
    end = start
    found = first(ask(standing_queue, f"endDate={end}"))
    assert found[10:] == meant[10:]
    assert found < meant


def test_a_plus_that_was_not_escaped_is_understood(standing_queue: Queue) -> None:
    query = "startDate=2024-07-11T17:51:54+02:00&endDate=2024-07-11T18:00:00Z"
    assert first(ask(standing_queue, query)) == "2024-07-11T15:51:54.000"
    query = "startDate=Sun,+25+Sep+2022+23:35:01+GMT&endDate=Mon,+26+Sep+2022+23:35:01+GMT"
    assert first(ask(standing_queue, query)) == "2022-09-25T23:35:01.000"


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_another_text_is_no_date(standing_queue: Queue, text: str) -> None:
    env = standing_queue.env
    usage = f"{STATS}/organizations/{env.organization}?period=1day"
    for field in ("startDate", "endDate"):
        query = f"{field}={quote(text, safe='')}"
        assert field in admin_fail(ask(standing_queue, query), 400)
        assert field in admin_fail(env.call("GET", f"{usage}&{query}", token=env.tokens.user), 400)


@pytest.mark.parametrize("end", ["2022-09-25T00:00:00Z", "2022-09-24T23:59:59.999Z"])
def test_the_start_must_be_before_the_end(standing_queue: Queue, end: str) -> None:
    env = standing_queue.env
    query = f"startDate=2022-09-25T00:00:00Z&endDate={end}"
    admin_fail(ask(standing_queue, query), 400)
    for path in (f"{STATS}/organizations/{env.organization}", STATS + env.path):
        response = env.call("GET", f"{path}?period=1hour&{query}", token=env.tokens.user)
        admin_fail(response, 400)
