import pytest

from courier.core.types import DAY_MS, Draft, Queue, QueueStats
from tests.conformance.store.driver import Driver, bodies


def test_a_message_expires_exactly_when_its_retention_ends(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    [id] = driver.publish(queue, "a").ids
    driver.advance(99)
    assert driver.find(queue, id) is not None
    assert bodies(driver.peek(queue)) == ["a"]
    driver.advance(1)
    assert driver.find(queue, id) is None
    assert driver.peek(queue) == []
    assert driver.stats(queue) == QueueStats()


@pytest.mark.parametrize("verb", ["lease", "peek", "find", "stats", "remove", "purge", "sweep"])
def test_an_expired_message_is_seen_by_no_verb(driver: Driver, verb: str) -> None:
    queue = driver.queue(retention_ms=100)
    [id] = driver.publish(queue, "a").ids
    seq = driver.peek(queue)[0].seq
    driver.advance(100)
    if verb == "lease":
        assert driver.lease(queue) == []
    elif verb == "peek":
        assert driver.peek(queue) == []
    elif verb == "find":
        assert driver.find(queue, id) is None
    elif verb == "stats":
        assert driver.stats(queue) == QueueStats()
    elif verb == "remove":
        assert driver.remove(queue, seq) == [False]
    elif verb == "purge":
        assert driver.purge(queue, upto_seq=seq) == 0
    else:
        assert driver.sweep().expired == 1


def test_a_message_expires_whatever_its_state(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "leased", "retried", "waiting", Draft(b"delayed", delay_ms=DAY_MS))
    _, retried = driver.lease(queue, count=2, lease_ms=DAY_MS)
    driver.retry(queue, retried, delay_ms=DAY_MS)
    driver.advance(99)
    assert driver.stats(queue).count == 4
    driver.advance(1)
    assert driver.stats(queue) == QueueStats()


def test_the_queues_numbers_outlive_an_expiry(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "old")
    driver.lease(queue, lease_ms=DAY_MS)
    driver.advance(60)
    kept_ms = driver.now_ms
    driver.publish(queue, "kept", Draft(b"later", delay_ms=90))
    driver.advance(40)
    assert driver.stats(queue) == QueueStats(2, 9, kept_ms, leased=0, delayed=1)
    assert bodies(driver.lease(queue)) == ["kept"]


def test_a_shorter_retention_applies_to_stored_messages_at_once(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "old")
    driver.advance(100)
    driver.publish(queue, "new")
    queue = driver.update(queue, retention_ms=101)
    assert bodies(driver.peek(queue)) == ["old", "new"]
    driver.sweep()  # from now on it is known when the next message would have expired
    queue = driver.update(queue, retention_ms=100)
    assert driver.stats(queue).count == 1
    assert bodies(driver.peek(queue)) == ["new"]


def test_a_longer_retention_applies_to_stored_messages_at_once(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "a")
    driver.advance(99)
    driver.update(queue, retention_ms=200)
    driver.advance(100)
    assert bodies(driver.peek(queue)) == ["a"]
    driver.advance(1)
    assert driver.peek(queue) == []


def test_a_longer_retention_does_not_bring_back_what_had_expired(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "a")
    driver.advance(100)
    driver.update(queue, retention_ms=DAY_MS)
    assert driver.peek(queue) == []
    assert driver.stats(queue) == QueueStats()


def test_a_sweep_returns_what_its_holder_lost(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    driver.lease(queue, lease_ms=100)
    driver.advance(99)
    assert driver.sweep().returned == 0
    driver.advance(1)
    assert driver.sweep().returned == 2
    assert driver.sweep().returned == 0


def test_a_sweep_counts_what_it_did(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    dropping = driver.queue("dropping", attempts_max=1)
    short = driver.queue("short", retention_ms=100)
    gone = driver.queue("gone")
    for queue in (work, dropping):
        driver.publish(queue, "a")
        driver.lease(queue, lease_ms=100)
    driver.publish(short, "a", "b", "c")
    driver.publish(gone, "a", "b")
    driver.change(drops=[gone])
    driver.advance(100)
    swept = driver.sweep()
    assert (swept.expired, swept.returned, swept.buried, swept.dropped) == (3, 0, 2, 2)


def test_a_sweep_says_when_the_next_thing_is_due(driver: Driver, queue: Queue) -> None:
    start_ms = driver.now_ms
    assert driver.sweep().next_ms is None
    driver.publish(queue, "a", Draft(b"b", delay_ms=300), Draft(b"c", ttl_ms=500))
    assert driver.sweep().next_ms == start_ms + 300
    driver.lease(queue, count=1, lease_ms=200)
    assert driver.sweep().next_ms == start_ms + 200
    driver.advance(200)
    assert driver.sweep().next_ms == start_ms + 300
    driver.advance(100)
    assert driver.sweep().next_ms == start_ms + 500
    driver.advance(200)
    assert driver.sweep().next_ms == start_ms + queue.retention_ms
    driver.advance(queue.retention_ms)
    assert driver.sweep().next_ms is None


def test_a_settled_lease_is_not_waited_for(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=100)
    driver.ack(queue, message)
    driver.advance(100)
    swept = driver.sweep()
    assert (swept.returned, swept.more) == (0, False)
    assert swept.next_ms is None or swept.next_ms > driver.now_ms


def test_a_sweep_stays_within_its_limit_and_says_that_there_is_more(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, *"abcde")
    driver.advance(100)
    counts = []
    while True:
        swept = driver.sweep(limit=2)
        counts.append(swept.expired)
        if not swept.more:
            break
    assert all(count <= 2 for count in counts)
    assert sum(counts) == 5
    assert driver.stats(queue).count == 0


def test_a_limited_sweep_returns_every_lease_in_the_end(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcde")
    driver.lease(queue, lease_ms=100)
    driver.advance(100)
    counts = []
    while True:
        swept = driver.sweep(limit=2)
        counts.append(swept.returned)
        if not swept.more:
            break
    assert all(count <= 2 for count in counts)
    assert sum(counts) == 5
    assert bodies(driver.lease(queue)) == list("abcde")


def test_the_limit_of_a_sweep_covers_everything_it_does(driver: Driver) -> None:
    short = driver.queue("short", retention_ms=100)
    work = driver.queue("work", attempts_max=1)
    gone = driver.queue("gone")
    for queue in (short, work, gone):
        driver.publish(queue, "a", "b", Draft(b"c", delay_ms=100), Draft(b"d", ttl_ms=100))
    driver.lease(work, count=2, lease_ms=100)
    driver.change(drops=[gone])
    driver.advance(100)
    done = 0
    while True:
        swept = driver.sweep(limit=2)
        step = swept.expired + swept.returned + swept.buried + swept.dropped
        assert step <= 2
        done += step
        if not swept.more:
            break
    assert done >= 4 + 3 + 4
    assert driver.stats(short) == QueueStats()
    assert bodies(driver.peek(work)) == ["c"]


def test_nothing_is_left_undone_by_a_limited_sweep(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcde")
    driver.lease(queue, lease_ms=100)
    driver.advance(100)
    driver.sweep(limit=2)
    assert driver.stats(queue).leased == 0
    assert [message.attempts for message in driver.lease(queue)] == [2] * 5


def test_the_messages_of_a_dropped_queue_are_removed_in_chunks(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, *"abcd", Draft(b"e", delay_ms=500))
    leased, retried = driver.lease(queue, count=2)
    driver.retry(queue, retried, delay_ms=500)
    before = driver.last()
    driver.change(drops=[queue])
    counts = []
    while True:
        swept = driver.sweep(limit=2)
        counts.append(swept.dropped)
        if not swept.more:
            break
    assert all(count <= 2 for count in counts)
    assert sum(counts) == 5
    deleted = [event for event in driver.events(after=before) if event["kind"] == "deleted"]
    assert sorted(event["seq"] for event in deleted) == [1, 2, 3, 4, 5]
    assert {(event["queue"], event["queue_name"]) for event in deleted} == {(queue.id, queue.name)}
    assert {event["seq"]: event["attempt"] for event in deleted} == {
        leased.seq: 1,
        retried.seq: 1,
        3: 0,
        4: 0,
        5: 0,
    }
    assert driver.sweep().next_ms is None


def test_time_no_longer_passes_on_a_dropped_queue(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id, retention_ms=DAY_MS)
    driver.publish(work, "leased", "expiring", Draft(b"own", ttl_ms=50))
    driver.lease(work, count=1, lease_ms=100)
    before = driver.last()
    driver.change(drops=[work])
    driver.advance(2 * DAY_MS)
    assert driver.stats(dead).count == 0
    driver.sweep_all()
    assert driver.kinds(after=before) == ["queue_deleted", "deleted", "deleted", "deleted"]


def test_dropping_several_queues_removes_all_their_messages(driver: Driver) -> None:
    queues = [driver.queue(name) for name in "abc"]
    for queue in queues:
        driver.publish(queue, "1", "2")
    before = driver.last()
    driver.change(drops=queues)
    driver.sweep_all()
    assert driver.kinds(after=before).count("deleted") == 6


def test_an_idle_sweep_writes_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    before = driver.last()
    driver.advance(5_000)
    swept = driver.sweep()
    assert (swept.expired, swept.returned, swept.buried, swept.dropped) == (0, 0, 0, 0)
    assert not swept.more
    assert driver.last() == before


def test_what_came_due_first_happens_first_even_in_a_limited_sweep(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id, retention_ms=200)
    driver.publish(work, *"abc", *(Draft(body.encode(), ttl_ms=100) for body in "def"))
    driver.lease(work, lease_ms=99)
    driver.advance(500)
    while driver.sweep(limit=2).more:
        pass
    assert bodies(driver.peek(dead)) == list("abcdef")
