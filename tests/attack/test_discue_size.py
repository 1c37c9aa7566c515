"""What is too large, too long or too many."""

import pytest

from tests.attack.discue import Discue, Spot, accepted, body, refused, settle_down

DATA_BYTES_MAX = 256 << 10


@pytest.fixture
def spot(discue: Discue, queue_name: str) -> Spot:
    spot = settle_down(discue, queue_name)
    accepted(spot.discue.ask("PUT", f"/queues/{spot.queue}", b'{"schema": null}'))
    return spot


@pytest.mark.parametrize("character", ["a", "\u00e9", "\U0001f986", "\n", '"'])
def test_data_of_just_the_limit_is_stored_and_one_byte_more_is_not(
    spot: Spot, character: str
) -> None:
    """Bytes of UTF-8 count, not those of the request."""
    path = f"/queues/{spot.queue}/messages"
    count, rest = divmod(DATA_BYTES_MAX, len(character.encode()))
    data = character * count + "a" * rest
    made = accepted(spot.discue.ask("POST", path, body({"data": data})))["message"]
    stored = accepted(spot.discue.ask("GET", f"{path}/{made['id']}"))["message"]
    assert (stored["data"], stored["size"]) == (data, DATA_BYTES_MAX)
    refused(spot.discue.ask("POST", path, body({"data": data + "a"})), 422)


@pytest.mark.parametrize("length", [254, 10_000])
def test_a_url_or_a_host_that_is_too_long_is_refused(spot: Spot, length: int) -> None:
    long = "https://x.invalid/" + "p" * (length - 18)
    told = {"name": "long-one", "notify_url": long, "liveness_url": "https://x.invalid/"}
    refused(spot.discue.ask("POST", f"/queues/{spot.queue}/listeners", body(told)), 422)
    domain = {"alias": "long-one", "hostname": "h" * length, "port": 443}
    refused(spot.discue.ask("POST", "/domains", body(domain)), 422)


def test_very_many_unknown_members_are_ignored_or_refused_at_once(spot: Spot) -> None:
    told = {f"member-{number}": number for number in range(30_000)}
    answer = spot.discue.ask("POST", f"/queues/{spot.queue}/messages", body({**told, "data": "x"}))
    if answer.status == 200:
        accepted(answer)
    else:
        refused(answer, 413, 422)
