"""What is published through an exchange."""

import pytest

from courier import ids
from courier.core.errors import NotFound, OverLimit
from courier.core.types import Draft, Queue, QueueStats, Via
from tests.conformance.store.driver import CALLER, TENANT, Driver, bodies

EXCHANGE = "c0" + "e" * 30


@pytest.fixture
def left(driver: Driver) -> Queue:
    return driver.queue("left")


@pytest.fixture
def right(driver: Driver) -> Queue:
    return driver.queue("right")


def via(*, count: int, size: int, exchange: str = EXCHANGE) -> Via:
    return Via(TENANT, exchange, count, size)


def counted(driver: Driver, id: str = EXCHANGE) -> dict[str, tuple[int, int]]:
    """Count and bytes of each kind that was counted for an exchange or a queue."""
    return {tally.kind: (tally.count, tally.bytes) for tally in driver.tallies(id)}


def test_every_queue_gets_its_copies_in_one_call(driver: Driver, left: Queue, right: Queue) -> None:
    one, two = Draft(b"one", id="m1", headers={"k": "v"}), Draft(b"two", id="m2", ttl_ms=500)
    receipts = driver.publish_all((left, [one, two]), (right, [two]), via=via(count=2, size=6))
    assert [receipt.ids for receipt in receipts] == [["m1", "m2"], ["m2"]]
    assert [receipt.repeated for receipt in receipts] == [[False, False], [False]]
    assert [receipt.stats.count for receipt in receipts] == [2, 1]
    first, second = driver.lease(left)
    [copy] = driver.lease(right)
    assert (first.id, first.body, first.headers) == ("m1", b"one", {"k": "v"})
    assert (copy.id, copy.body) == (second.id, second.body) == ("m2", b"two")
    assert (copy.expires_ms, copy.origin) == (driver.now_ms + 500, None)
    driver.ack(left, second)
    assert driver.find(right, "m2") is not None


def test_copies_are_told_with_the_exchange_they_came_through(
    driver: Driver, left: Queue, right: Queue
) -> None:
    before = driver.last()
    driver.publish_all((left, ["a", "b"]), (right, ["b"]), via=via(count=2, size=2))
    driver.publish(left, "c")
    events = driver.events(after=before)
    assert [(event["kind"], event["queue"], event.get("detail")) for event in events] == [
        ("published", left.id, {"exchange": EXCHANGE}),
        ("published", left.id, {"exchange": EXCHANGE}),
        ("published", right.id, {"exchange": EXCHANGE}),
        ("published", left.id, None),
    ]
    assert {event["actor"] for event in events} == {CALLER.id}


def test_an_exchange_counts_what_came_and_what_was_copied(
    driver: Driver, left: Queue, right: Queue
) -> None:
    driver.publish_all((left, ["abc", "de"]), (right, ["de"]), via=via(count=3, size=9))
    driver.publish_all((left, ["f"]), via=via(count=1, size=1))
    assert counted(driver) == {"routed": (4, 10), "copied": (4, 8)}
    assert counted(driver, left.id)["published"] == (3, 6)
    assert counted(driver, right.id)["published"] == (1, 2)


def test_what_no_queue_wants_is_still_counted(driver: Driver, left: Queue) -> None:
    before = driver.last()
    assert driver.publish_all(via=via(count=2, size=7)) == []
    assert counted(driver) == {"routed": (2, 7)}
    assert driver.last() == before
    [receipt] = driver.publish_all((left, []), via=via(count=1, size=1))
    assert (receipt.ids, receipt.stats) == ([], QueueStats())
    assert counted(driver) == {"routed": (3, 8)}


def test_no_batch_and_no_exchange_is_nothing(driver: Driver) -> None:
    assert driver.publish_all() == []
    assert driver.tallies() == []


def test_a_repeated_copy_is_not_counted(driver: Driver, left: Queue, right: Queue) -> None:
    draft = Draft(b"abc", once_key="k")
    driver.publish(left, draft)
    receipts = driver.publish_all((left, [draft]), (right, [draft]), via=via(count=1, size=3))
    assert [receipt.repeated for receipt in receipts] == [[True], [False]]
    assert counted(driver) == {"routed": (1, 3), "copied": (1, 3)}
    driver.publish_all((left, [draft]), via=via(count=1, size=3))
    assert counted(driver) == {"routed": (2, 6), "copied": (1, 3)}


def test_exchanges_are_counted_apart(driver: Driver, left: Queue) -> None:
    other = ids.new_id()
    driver.publish_all((left, ["a"]), via=via(count=1, size=1))
    driver.publish_all((left, ["bc"]), via=via(count=1, size=2, exchange=other))
    assert counted(driver) == {"routed": (1, 1), "copied": (1, 1)}
    assert counted(driver, other) == {"routed": (1, 2), "copied": (1, 2)}


def test_an_exchange_is_counted_for_its_tenant(driver: Driver, left: Queue) -> None:
    stranger = "c0" + "8" * 30
    driver.publish_all((left, ["a"]), via=Via(stranger, EXCHANGE, 1, 1))
    assert counted(driver) == {}
    kinds = {tally.kind: tally.id for tally in driver.tallies(tenant=stranger)}
    assert kinds == {"routed": EXCHANGE, "copied": EXCHANGE}


@pytest.mark.parametrize("reason", ["full", "gone"])
def test_nothing_is_stored_when_one_queue_cannot_take_its_copy(
    driver: Driver, left: Queue, right: Queue, reason: str
) -> None:
    driver.publish(right, "1234")
    if reason == "gone":
        driver.change(drops=[right])
    before, tallies = driver.last(), driver.tallies()
    draft = Draft(b"ab", once_key="k")
    with pytest.raises(OverLimit if reason == "full" else NotFound):
        driver.publish_all((left, [draft]), (right, [draft]), bytes_max=5, via=via(count=1, size=2))
    assert driver.stats(left) == QueueStats()
    assert driver.tail(left) == 0
    assert driver.last() == before
    assert driver.tallies() == tallies
    assert driver.publish(left, draft).repeated == [False]


def test_copies_follow_the_settings_of_each_queue(driver: Driver, left: Queue) -> None:
    slow = driver.queue("slow", delay_ms=50)
    driver.publish_all((left, ["a"]), (slow, ["a"]), via=via(count=1, size=1))
    assert bodies(driver.lease(left)) == ["a"]
    assert driver.lease(slow) == []
    driver.advance(50)
    assert bodies(driver.lease(slow)) == ["a"]


def test_a_dead_letter_that_came_through_an_exchange_tells_its_origin(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish_all((work, ["a"]), via=via(count=1, size=1))
    driver.retry(work, driver.lease_one(work))
    assert driver.events()[-1]["detail"]["queue"] == work.id
    assert counted(driver) == {"routed": (1, 1), "copied": (1, 1)}
