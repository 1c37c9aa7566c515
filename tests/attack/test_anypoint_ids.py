"""Names and ids that are none, or that are odd ones."""

from typing import Any
from urllib.parse import quote, unquote_to_bytes

import httpx
import pytest

from tests.attack.environment import (
    Spot,
    accepted,
    body,
    complained,
    refused,
)
from tests.attack.peer import Peer
from tests.attack.requests import everything

ODD = [
    "%2F",
    "%2f..%2f..",
    "%00",
    "%2e%2e",
    "%2e%2e%2f",
    "%20",
    "%0A",
    "%0d%0a",
    "%0d%0aX-Injected:%20yes",
    "%ff",
    "%ed%a0%80",
    "%E2%82%AC",
    "%zz",
    "%",
    "'",
    "%22",
    "%3Cscript%3E",
    "'%20or%201=1--",
    "{queueId}",
    "*",
    "null",
    "0",
    "-1",
    "f" * 32,
    "a" * 10_000,
    "%F0%9F%98%80",
    ";jsessionid=1",
    "a@us-east-2",
    "a@",
    "@us-east-2",
    "_fb",
]
# Any text may be a message's id, when it is encoded.
IDS = [
    "a/b",
    "/",
    "//",
    "..",
    ".",
    "../..",
    "%",
    "%2F",
    "%252F",
    "?a=b",
    "#x",
    ";x",
    "a b",
    " ",
    "\x00",
    "\n",
    "\r\nX-Injected: yes",
    '"',
    "\\",
    "'--",
    "\u20ac",
    "\U0001f600",
    "locks",
    "null",
    "x" * 256,
    "\u20ac" * 256,
    "\U0001f600" * 256,
]


@pytest.mark.parametrize(
    "odd", [*ODD, "a" * 128, "a_b", "a%20b", "a%2Fb"], ids=lambda odd: odd[:20]
)
def test_odd_name_cannot_be_created(spot: Spot, odd: str) -> None:
    if odd in ("%2e%2e", "null", "0", "-1", "f" * 32):  # names like any others
        return
    own = spot.environment
    before = everything(spot)
    for path in (f"/destinations/queues/{odd}", f"/destinations/exchanges/{odd}"):
        complained(own.admin.ask("PUT", path, b"{}"), 400, 404, 405)
    asked = body({"deadLetterQueueId": unquote_to_bytes(odd).decode(errors="replace")})
    complained(own.admin.ask("PUT", f"/destinations/queues/{spot.queue}", asked), 400)
    assert everything(spot) == before


@pytest.mark.parametrize("case", ["upper", "braces", "bare", "padded"])
def test_id_written_otherwise_reaches_the_same_or_nothing(spot: Spot, case: str) -> None:
    own = spot.environment
    id = own.own["environment_id"]
    other = {
        "upper": id.upper(),
        "braces": f"%7B{id}%7D",
        "bare": id.replace("-", ""),
        "padded": f"{id}%20",
    }[case]
    place = own.place.replace(id, other)
    answer = own.broker.ask("PUT", f"//api/v1{place}/destinations/{spot.queue}/messages/m", b"{}")
    assert answer.status in (201, 403), answer
    assert spot.backlog() == (answer.status == 201)


@pytest.mark.parametrize("id", IDS, ids=lambda id: repr(id[:12]))
def test_any_text_may_be_a_messages_id(spot: Spot, id: str) -> None:
    """It comes back as it was sent, and leads to its message in every call."""
    encoded = quote(id, safe="")
    for destination in (spot.queue, spot.line):
        path = f"/{destination}/messages"
        made = accepted(spot.broker.ask("PUT", f"{path}/{encoded}", b'{"body":"x"}'), 201)
        assert made["messageId"] == id
        [found] = spot.get(destination)
        assert found["headers"]["messageId"] == id
        lock = found["headers"]["lockId"]
        for method, value in (("PATCH", b'{"ttl":600}'), ("DELETE", b"")):
            answer = spot.broker.ask(method, f"{path}/{encoded}/locks/{lock}", value)
            assert accepted(answer)["messageId"] == id
            assert "x-injected" not in answer.headers
        [found] = spot.get(destination)
        item = body([{"messageId": id, "lockId": found["headers"]["lockId"]}])
        [result] = accepted(spot.broker.ask("DELETE", path, item))
        assert (result["messageId"], result["status"]) == (id, "successful")
    assert spot.backlog() == 0


@pytest.mark.parametrize("id", ["x" * 257, "\u20ac" * 257, "x" * 10_000, "%20" * 3 + "x" * 254])
def test_id_that_is_too_long_is_refused_by_name(spot: Spot, id: str) -> None:
    for destination in spot.destinations():
        path = f"/{destination}/messages"
        answer = spot.broker.ask("PUT", f"{path}/{quote(id, safe='%')}", b'{"body":"x"}')
        assert "messageId" in refused(answer, 400)
        batch = [{"headers": {"messageId": id.replace("%20", " ")}, "body": "x"}]
        [result] = accepted(spot.broker.ask("PUT", path, body(batch)))
        assert result["status"] == "failure" and "messageId" in result["statusMessage"]
    assert spot.backlog() == 0


@pytest.mark.parametrize("id", ["", 0, 1.5, True, [], {}])
def test_id_that_is_none_is_a_failure(spot: Spot, id: Any) -> None:
    batch = [{"headers": {"messageId": id}, "body": "x"}]
    for destination in spot.destinations():
        [result] = accepted(spot.broker.ask("PUT", f"/{destination}/messages", body(batch)))
        assert result["status"] == "failure" and "messageId" in result["statusMessage"], result
    assert spot.backlog() == 0


def test_ids_that_are_no_text_are_not_taken_for_each_other(spot: Spot) -> None:
    """Bytes that are not UTF-8: refused, or else each is a message of its own."""
    broken = ["%ff", "%fe", "%c0%af", "%ed%a0%80"]
    answers = [
        spot.broker.ask("PUT", f"/{spot.line}/messages/{id}", b'{"body":"x"}') for id in broken
    ]
    assert all(answer.status in (201, 400) for answer in answers), answers
    assert spot.backlog() == sum(answer.status == 201 for answer in answers), "one was dropped"


@pytest.mark.parametrize("host", ["mq-us-east-2.localhost", "mq-eu-west-1.example.org:8787"])
def test_queue_of_another_region_is_another_queue(spot: Spot, host: str) -> None:
    with httpx.Client(base_url=spot.environment.server.url, trust_env=False, verify=False) as http:
        headers = {"Host": host, "Authorization": f"Bearer {spot.broker.token}"}
        for destination in spot.destinations():
            path = f"{spot.broker.root}/{destination}/messages"
            answer = http.put(f"{path}/m1", json={"body": "x"}, headers=headers)
            assert answer.status_code == 404, answer.text
    assert spot.backlog() == 0


@pytest.mark.parametrize(
    "host", ["mq-", "mq-.", "mq-nowhere.x", "mq-us-east-1.", "[::1", "\xff", "", "a" * 10_000]
)
def test_odd_host_does_no_harm(spot: Spot, host: str) -> None:
    head = spot.broker.head("PUT", f"/{spot.queue}/messages/m1", "Content-Length: 2")
    request = head.replace(b"Host: 127.0.0.1", b"Host: " + host.encode("latin-1"))
    with Peer(spot.environment.server) as peer:
        peer.send(request + b"\r\n{}")
        answer = peer.answer()
    assert answer is not None and answer.status in (201, 400), answer
    assert spot.backlog() == (answer.status == 201)
