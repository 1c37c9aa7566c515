"""Messages with an expiry of their own, and those that live as long as their queue says."""

import pytest

from courier.core.types import DAY_MS, Draft, Outcome, Queue, QueueStats
from tests.conformance.store.driver import Driver, bodies

# More than a store does of what is due before the verb itself.
MANY = 2_500
SWEEPS_MAX = 10


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_an_expiry_of_its_own_wins_over_the_queues(driver: Driver, fifo: bool) -> None:
    queue = driver.queue(retention_ms=100, fifo=fifo)
    driver.publish(queue, Draft(b"short", ttl_ms=50), Draft(b"long", ttl_ms=500), "plain")
    driver.advance(49)
    assert bodies(driver.peek(queue)) == ["short", "long", "plain"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["long", "plain"]
    driver.advance(49)
    assert bodies(driver.peek(queue)) == ["long", "plain"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["long"]
    assert driver.stats(queue).count == 1
    driver.advance(399)
    assert bodies(driver.peek(queue)) == ["long"]
    driver.advance(1)
    assert driver.peek(queue) == []
    assert driver.stats(queue) == QueueStats()


def test_every_end_is_told_when_it_comes(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, Draft(b"long", ttl_ms=500), "plain", Draft(b"short", ttl_ms=50))
    start_ms = driver.now_ms
    before = driver.last()
    for _ in range(10):
        driver.advance(50)
        driver.sweep_all()
    told = [(event["seq"], event["at_ms"] - start_ms) for event in driver.events(after=before)]
    assert told == [(3, 50), (2, 100), (1, 500)]


def test_a_leased_message_expires_by_its_own_time(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100, attempts_max=1)
    driver.publish(queue, Draft(b"a", ttl_ms=500))
    message = driver.lease_one(queue, lease_ms=DAY_MS)
    driver.advance(499)
    assert driver.stats(queue).leased == 1
    driver.advance(1)
    assert driver.ack(queue, message, late=True) is Outcome.GONE


def test_a_long_life_is_handed_out_delayed_and_retried_beyond_retention(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100, attempts_max=None)
    driver.publish(queue, Draft(b"delayed", ttl_ms=1_000, delay_ms=300), Draft(b"a", ttl_ms=1_000))
    driver.advance(200)
    driver.retry(queue, driver.lease_one(queue), delay_ms=200)
    driver.advance(100)
    assert bodies(driver.lease(queue, lease_ms=300)) == ["delayed"]
    driver.advance(100)
    assert bodies(driver.lease(queue, lease_ms=100)) == ["a"]
    driver.advance(200)
    assert [message.attempts for message in driver.lease(queue)] == [1 + 1, 2 + 1]


def test_changes_of_retention_leave_a_message_with_its_own_expiry_alone(driver: Driver) -> None:
    queue = driver.queue(retention_ms=DAY_MS)
    driver.publish(queue, Draft(b"own", ttl_ms=500), "plain")
    driver.advance(200)
    queue = driver.update(queue, retention_ms=100)
    assert bodies(driver.peek(queue)) == ["own"]
    queue = driver.update(queue, retention_ms=DAY_MS)
    driver.advance(299)
    assert bodies(driver.peek(queue)) == ["own"]
    driver.advance(1)
    assert driver.peek(queue) == []


def test_retention_reaches_what_lies_behind_a_long_life(driver: Driver) -> None:
    """However many old messages outlive retention, the younger ones do not."""
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, *(Draft(b"own", ttl_ms=DAY_MS) for _ in range(5)))
    driver.publish(queue, *(Draft(b"own", ttl_ms=DAY_MS, delay_ms=10) for _ in range(5)))
    driver.advance(20)
    driver.publish(queue, "plain", Draft(b"delayed", delay_ms=10))
    driver.advance(99)
    assert driver.stats(queue).count == 12
    driver.advance(1)
    assert driver.stats(queue).count == 10
    assert set(bodies(driver.browse(queue))) == {"own"}
    driver.advance(100)
    assert driver.stats(queue).count == 10


def test_a_sweep_does_not_wait_for_the_retention_of_a_long_life(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, Draft(b"own", ttl_ms=DAY_MS))
    driver.advance(100)
    for _ in range(SWEEPS_MAX):
        swept = driver.sweep()
        assert (swept.expired, swept.more) == (0, False)
        assert swept.next_ms is not None
        assert swept.next_ms > driver.now_ms
    assert driver.stats(queue).count == 1


def test_who_follows_the_sweeps_word_meets_every_end_on_time(driver: Driver) -> None:
    """Sweeping whenever the last sweep said so, and never in vain for long."""
    queue = driver.queue(retention_ms=100)
    start_ms = driver.now_ms
    for wait_ms in (0, 30, 30):
        driver.advance(wait_ms)
        driver.publish(queue, "plain", Draft(b"long", ttl_ms=400), Draft(b"short", ttl_ms=70))
    sweeps = 0
    while (next_ms := driver.sweep().next_ms) is not None:
        sweeps += 1
        assert sweeps <= 3 * SWEEPS_MAX
        assert next_ms > driver.now_ms
        driver.advance(next_ms - driver.now_ms)
    ends = [
        (event["seq"], event["at_ms"] - start_ms)
        for event in driver.events()
        if event["kind"] == "expired"
    ]
    assert sorted(ends) == [
        (1, 100), (2, 400), (3, 70),
        (4, 130), (5, 430), (6, 100),
        (7, 160), (8, 460), (9, 130),
    ]  # fmt: skip


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("own", [False, True], ids=["retention", "own"])
def test_however_many_expire_at_once_none_of_them_is_handed_out(
    driver: Driver, own: bool, fifo: bool
) -> None:
    queue = driver.queue(retention_ms=DAY_MS if own else 100, fifo=fifo)
    old = Draft(b"old", ttl_ms=100 if own else None)
    driver.publish(queue, *[old] * MANY)
    driver.lease(queue, count=10, lease_ms=20)
    driver.advance(20)
    driver.publish(queue, "young")
    driver.advance(80)
    assert set(bodies(driver.peek(queue, count=3))) <= {"young"}
    assert set(bodies(driver.lease(queue, count=3, lease_ms=0))) <= {"young"}
    driver.sweep_all()
    assert bodies(driver.lease(queue)) == ["young"]
    assert driver.stats(queue).count == 1
    assert driver.kinds().count("expired") == MANY


def test_many_expire_in_whatever_state_they_are(driver: Driver) -> None:
    queue = driver.queue(retention_ms=DAY_MS)
    driver.publish(queue, *[Draft(b"leased", ttl_ms=100)] * MANY)
    driver.lease(queue, count=MANY, lease_ms=DAY_MS)
    driver.publish(queue, *[Draft(b"delayed", ttl_ms=100, delay_ms=DAY_MS)] * 500, "kept")
    driver.advance(99)
    assert driver.stats(queue).count == MANY + 501
    driver.advance(1)
    driver.sweep_all()
    stats = driver.stats(queue)
    assert (stats.count, stats.leased, stats.delayed) == (1, 0, 0)
    assert bodies(driver.lease(queue)) == ["kept"]


@pytest.mark.one_process
def test_a_limited_sweep_ends_own_expiries_and_retention_alike(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    drafts = [Draft(b"own", ttl_ms=100), Draft(b"plain"), Draft(b"long", ttl_ms=DAY_MS)]
    driver.publish(queue, *drafts * 4)
    driver.advance(100)
    counts = []
    while True:
        swept = driver.sweep(limit=3)
        counts.append(swept.expired)
        if not swept.more:
            break
    assert all(count <= 3 for count in counts)
    assert sum(counts) == 8
    assert bodies(driver.lease(queue)) == ["long"] * 4


def test_an_own_expiry_of_no_length_is_over_at_once(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", ttl_ms=0), "b")
    assert bodies(driver.lease(queue)) == ["b"]


def test_the_oldest_message_may_be_one_that_outlives_retention(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    first_ms = driver.now_ms
    driver.publish(queue, Draft(b"own", ttl_ms=300), "plain")
    driver.advance(150)
    driver.publish(queue, "young")
    assert driver.stats(queue) == QueueStats(2, 8, first_ms)
    driver.advance(150)
    assert driver.stats(queue) == QueueStats()


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_what_is_stored_while_the_time_is_in_doubt_lives_longer_by_as_much(
    driver: Driver, fifo: bool
) -> None:
    """Should the clock then jump ahead, it is not too old; dead letters neither."""
    dead = driver.queue("dead", retention_ms=100, fifo=fifo)
    work = driver.queue("work", retention_ms=100, attempts_max=1, dead_letter=dead.id, fifo=fifo)
    driver.publish(work, "before", "buried")
    buried = driver.lease(work, count=2)[1]
    driver.store.doubt_ms = DAY_MS
    driver.publish(work, "during", Draft(b"own", ttl_ms=50))
    driver.retry(work, buried)
    driver.store.doubt_ms = 0
    driver.advance(DAY_MS)
    driver.publish(work, "after")
    assert bodies(driver.browse(work)) == ["during", "own", "after"]
    assert bodies(driver.browse(dead)) == ["buried"]
    driver.advance(50)
    assert bodies(driver.browse(work)) == ["during", "after"]
    driver.advance(50)
    driver.sweep_all()
    assert (driver.browse(work), driver.browse(dead)) == ([], [])
