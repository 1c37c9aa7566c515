"""What a user of any dialect relies on."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.clients.base import Client, Taken

WAIT_S_MAX = 10.0


def until_pulled(client: Client, count: int = 1) -> list[Taken]:
    """Pull until something comes, for a bounded time."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        taken = client.pull(count)
        if taken:
            return taken
        time.sleep(0.02)
    raise AssertionError("nothing came")


def test_what_is_published_is_pulled_and_gone_after_the_ack(client: Client) -> None:
    client.publish("hello")
    [taken] = client.pull(10)
    assert (taken.body, taken.attempts) == ("hello", 1)
    assert client.backlog() == 1
    assert client.ack([taken.lease]) == 1
    assert client.backlog() == 0
    assert client.pull(10) == []


def test_messages_come_in_the_order_of_their_publication(client: Client) -> None:
    client.publish_batch([f"m{number}" for number in range(10)])
    client.publish("last")
    taken = client.pull(5) + client.pull(10)
    assert [each.body for each in taken] == [*(f"m{number}" for number in range(10)), "last"]


def test_text_survives_the_journey(client: Client) -> None:
    bodies = ["", " ", "ünï\u2028cødé 🚚", '{"not": "parsed"}', "line\nfeed\ttab\x01", "x" * 60_000]
    for body in bodies:
        client.publish(body)
    assert [each.body for each in client.pull(10)] == bodies


def test_a_leased_message_is_hidden_until_its_lease_ends(client: Client) -> None:
    client.publish("a")
    [first] = client.pull(1, lease_ms=300)
    assert client.pull(1) == []
    [second] = until_pulled(client)
    assert (second.id, second.attempts) == (first.id, 2)
    assert second.lease != first.lease


def test_a_retried_message_comes_again_before_newer_ones(client: Client) -> None:
    client.publish_batch(["a", "b"])
    [first] = client.pull(1)
    client.retry(first.lease)
    again, other = client.pull(2)
    assert (again.body, again.attempts) == ("a", 2)
    assert (other.body, other.attempts) == ("b", 1)


def test_a_delayed_message_waits_while_others_pass(client: Client) -> None:
    client.publish("late", delay_s=1)
    client.publish("early")
    assert [each.body for each in client.pull(10)] == ["early"]
    assert client.backlog() == 2
    assert [each.body for each in until_pulled(client)] == ["late"]


def test_a_message_that_fails_too_often_is_a_dead_letter(client: Client) -> None:
    client.publish("poison")
    for attempt in (1, 2):
        [taken] = client.pull(1)
        assert taken.attempts == attempt
        client.retry(taken.lease)
    assert client.pull(1) == []
    assert client.backlog() == 0
    [dead] = client.dead_letters().pull(1)
    assert (dead.body, dead.attempts) == ("poison", 1)


def test_a_purge_leaves_nothing_and_hinders_nothing(client: Client) -> None:
    client.publish_batch(["a", "b", "c"])
    [leased] = client.pull(1)
    client.purge()
    assert client.backlog() == 0
    assert client.ack([leased.lease]) == 0
    client.publish("new")
    assert [each.body for each in client.pull(10)] == ["new"]


def test_every_message_goes_to_one_of_many_consumers(client: Client) -> None:
    bodies = [f"m{number}" for number in range(200)]
    for start in range(0, 200, 50):
        client.publish_batch(bodies[start : start + 50])

    def consume(_: int) -> list[str]:
        seen = []
        while taken := client.pull(7):
            assert client.ack([each.lease for each in taken]) == len(taken)
            seen += [each.body for each in taken]
        return seen

    with ThreadPoolExecutor(8) as pool:
        seen = [body for part in pool.map(consume, range(8)) for body in part]
    assert sorted(seen) == sorted(bodies)
    assert client.backlog() == 0


def test_a_deleted_queue_is_gone_with_its_messages(client: Client) -> None:
    client.publish("a")
    client.delete()
    assert not client.exists()
