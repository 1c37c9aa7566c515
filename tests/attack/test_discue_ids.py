"""Ids that are none, or somebody else's."""

from urllib.parse import quote

import pytest

from tests.attack.discue import Discue, Spot, accepted, body, refused, settle_down
from tests.attack.peer import new_tenant
from tests.server import Server

ODD = [
    "x",
    "A" * 20,
    "A" * 21,
    "A" * 22,
    "_" * 21,
    "-" * 21,
    "9" * 21,
    "A" * 5_000,
    "..",
    ".",
    "%00",
    "%2e%2e",
    "%2F",
    "%ff",
    "%F0%9F%A6%86",
    "null",
    "c0" + "0" * 30,
    "*",
    "'; DROP TABLE message; --",
    "{{7*7}}",
    "\u00e9",
]


@pytest.fixture
def spot(discue: Discue, queue_name: str) -> Spot:
    return settle_down(discue, queue_name)


@pytest.fixture(scope="module")
def neighbour(server: Server) -> Discue:
    return Discue(server, new_tenant(server)["discue"]["api_key"])


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_id_is_not_found_anywhere(spot: Spot, odd: str) -> None:
    before = spot.discue.everything()
    shown = odd if "%" in odd else quote(odd, safe="")
    for part in ("queue", "schema", "listener", "message", "key", "domain"):
        id = getattr(spot, part)
        for method, path, told in spot.requests():
            if id in path:
                answer = spot.discue.ask(method, path.replace(id, shown), body(told))
                refused(answer, 400, 404, 405)
    assert spot.discue.everything() == before


def test_nothing_of_another_organization_exists(spot: Spot, neighbour: Discue) -> None:
    before, theirs = spot.discue.everything(), neighbour.everything()
    for method, path, told in spot.requests():
        refused(neighbour.ask(method, path, body(told)), 404)
    assert spot.discue.everything() == before
    assert neighbour.everything() == theirs


def test_parts_of_other_queues_do_not_exist_on_ones_own(
    spot: Spot, neighbour: Discue, queue_name: str
) -> None:
    """The path begins with a queue that the key may use, and goes on with what is elsewhere."""
    own = settle_down(neighbour, f"own-{queue_name}")
    other = settle_down(spot.discue, f"other-{queue_name}")
    before = [spot.discue.everything(), neighbour.everything()]
    for discue, queue in ((neighbour, own.queue), (spot.discue, other.queue)):
        for method, path, told in spot.requests():
            # Schemas are named by what they say, and these say the same.
            if path.count("/") >= 4 and "/schemas/" not in path:
                answer = discue.ask(method, path.replace(spot.queue, queue), body(told))
                refused(answer, 404)
    assert [spot.discue.everything(), neighbour.everything()] == before


def test_a_retry_needs_a_listener_of_the_same_queue(spot: Spot, queue_name: str) -> None:
    other = settle_down(spot.discue, f"other-{queue_name}")
    path = f"/queues/{spot.queue}/messages/{spot.message}/deliveries/{other.listener}/retry"
    refused(spot.discue.ask("POST", path), 404)


def test_the_spot_is_there(spot: Spot) -> None:
    """Else all of the above would not be found for another reason."""
    for method, path, told in spot.requests():
        if not path.endswith(("/retry", "/verify")):
            accepted(spot.discue.ask(method, path, body(told)))
