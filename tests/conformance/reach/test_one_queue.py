"""A key for one queue, on every route of every site; and a key of another tenant.

What such a key is aimed at is `alpha`; beside it, in the same tenant, is `bravo`. Every route
comes from the server's own tables: a new one that cannot be aimed fails here.
"""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.reach.aims import send
from tests.conformance.reach.tables import Place, places
from tests.conformance.reach.watch import Watch
from tests.conformance.reach.world import WRITE, Credential, Side, World

with tempfile.TemporaryDirectory() as directory:
    PLACES = [place for place in places(Path(directory)) if place.route.reach != "public"]

REFUSED = (403, 404)
SETTINGS = ("_created", "_updated", "_deleted")
# Answers that hold numbers only; those of one queue differ from those of all.
NUMBERS = ("message_stats",)
# These are refused for a reason of their own, with any key.
FAILING = {
    "put_fallback": 501,
    "create_consumer": 400,
    "retry_delivery": 422,
    "undo_plan": 409,
    "set_back": 404,
}

_OF_NOW = re.compile(
    r'"(at_ms|oldest_age_ms|in_rate|out_rate|url|(?:oldest|in|out)-[^"]+)": ("[^"]*"|[\d.]+)'
)

each_place = pytest.mark.parametrize("place", PLACES, ids=str)


@pytest.fixture(scope="module")
def alpha(new_side: Callable[[], Side]) -> Side:
    """For requests that change nothing."""
    return new_side()


@pytest.fixture(scope="module")
def key_of(world: World) -> Callable[[Place, Side], Credential]:
    """The key that reaches one side only; of domains that is one that Discue makes."""
    known: dict[tuple[str, bool], Credential] = {}

    def key(place: Place, side: Side) -> Credential:
        of_domain = str(place.route.scope).startswith("domains:")
        found = known.get((side.queue, of_domain))
        if found is None:
            found = world.domain_key(side) if of_domain else world.credential(WRITE, side.queue)
            known[side.queue, of_domain] = found
        return found

    return key


@pytest.fixture(scope="module")
def untouched(world: World, bravo: Side) -> Callable[[], None]:
    """Checks that `bravo` is as it was."""
    before = _state(world, bravo)

    def check() -> None:
        assert _state(world, bravo) == before

    return check


def _state(world: World, side: Side) -> list[Any]:
    """Everything that the sites show of a side."""
    own, shown = side.params["cloudflare"], side.params["discue"]
    queue = f"/client/v4/accounts/{own['account_id']}/queues/{own['queue_id']}"
    subscriptions = f"/client/v4/accounts/{own['account_id']}/event_subscriptions/subscriptions"
    place = side.params["anypoint"]
    region = (
        f"/mq/admin/api/v1/organizations/{place['organizationId']}"
        f"/environments/{place['environmentId']}/regions/{place['regionId']}"
    )
    return [
        world.call("cloudflare", "GET", queue),
        world.call("cloudflare", "GET", f"{queue}/metrics")["result"]["backlog_count"],
        world.call("cloudflare", "GET", f"{subscriptions}/{own['subscription_id']}"),
        world.call("anypoint", "GET", f"{region}/destinations/queues/{place['queueId']}"),
        world.call("anypoint", "GET", f"{region}/bindings/queues/{place['queueId']}?inclusion=all"),
        world.call(
            "discue", "GET", f"/v1/queues/{shown['queue_id']}/listeners/{shown['listener_id']}"
        ),
        world.call("discue", "GET", f"/v1/queues/{shown['queue_id']}/messages"),
        world.call("discue", "GET", f"/v1/domains/{shown['domain_id']}"),
    ]


def _shows(answer: httpx.Response, side: Side) -> list[str]:
    """What of a side an answer gives away: its own words, not those of the request."""
    asked = f"{answer.request.url}{answer.request.content.decode('latin-1')}"
    return [mark for mark in side.marks if mark in answer.text and mark not in asked]


def _masked(answer: httpx.Response, side: Side) -> tuple[int, str]:
    text = answer.text
    for params in side.params.values():
        for value in sorted(params.values(), key=len, reverse=True):
            text = text.replace(value, "~")
    if answer.headers.get("content-type", "").startswith("application/json") and text:
        body = json.loads(text)
        if isinstance(body, dict):
            body.pop("request_id", None)
        # What the console says of now differs from moment to moment, and so do links to enter by.
        text = _OF_NOW.sub(r'"\1": 0', json.dumps(body))
    return answer.status_code, text


@each_place
def test_a_key_for_one_queue_does_nothing_to_another(
    world: World,
    alpha: Side,
    bravo: Side,
    key_of: Callable[[Place, Side], Credential],
    untouched: Callable[[], None],
    place: Place,
) -> None:
    key, watch = key_of(place, alpha), Watch(world)
    aimed = send(world.http, place, bravo, key)
    assert not _shows(aimed, bravo), aimed.text
    assert watch.events(key) == []
    if place.route.reach in ("own", "listed"):
        assert aimed.status_code == place.route.status, aimed.text
    else:
        assert aimed.status_code == 403, aimed.text
    nobody = world.nobody(bravo)
    unknown = send(world.http, place, nobody, key)
    if place.site == "discue" and place.route.reach == "target":
        # The vendor's answer; ids there are random, and nobody comes by one that is not theirs.
        assert unknown.status_code == 404, unknown.text
    else:
        # It cannot tell what is beyond its reach from what does not exist.
        assert _masked(aimed, bravo) == _masked(unknown, nobody)
    if place.route.method != "GET":
        untouched()


@each_place
def test_a_key_for_one_queue_does_there_what_any_key_does(
    world: World,
    alpha: Side,
    bravo: Side,
    new_side: Callable[[], Side],
    key_of: Callable[[Place, Side], Credential],
    place: Place,
) -> None:
    route = place.route
    if route.reach == "whole":
        assert send(world.http, place, alpha, key_of(place, alpha)).status_code == 403
        return
    changes = route.method != "GET" or route.operation in ("get", "read_claim")
    side, twin = (new_side(), new_side()) if changes else (alpha, alpha)
    key, watch = key_of(place, side), Watch(world)
    expected = send(world.http, place, twin, world.own)
    answer = send(world.http, place, side, key)
    assert answer.status_code == expected.status_code, (answer.text, expected.text)
    wanted = FAILING.get(route.operation, route.status)
    assert expected.status_code == wanted, expected.text
    assert not _shows(answer, bravo), answer.text
    for event in watch.events(key):
        assert not any(mark in json.dumps(event) for mark in bravo.marks)
        if event["kind"].endswith(SETTINGS):
            assert event["detail"]["address"] == "127.0.0.1", event
    if route.reach == "listed":
        if route.operation in NUMBERS:
            assert answer.text != expected.text
        else:
            assert any(mark in answer.text for mark in side.marks), answer.text
            if route.operation != "current":
                assert _shows(expected, bravo), "the list would not have shown it to anybody"


@each_place
def test_a_key_of_another_tenant_reaches_nothing(
    world: World,
    stranger: World,
    bravo: Side,
    untouched: Callable[[], None],
    place: Place,
) -> None:
    watch = Watch(world)
    aimed = send(world.http, place, bravo, stranger.own)
    assert not _shows(aimed, bravo), aimed.text
    if place.route.reach in ("target", "named"):
        assert aimed.status_code in REFUSED, aimed.text
    events = watch.events(stranger.own)
    assert [event for event in events if event["tenant"] == world.account] == []
    if place.route.method != "GET":
        untouched()
