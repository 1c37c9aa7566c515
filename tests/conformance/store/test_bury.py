import asyncio

import pytest

from courier import ids
from courier.core.types import DAY_MS, Ack, Draft, Origin, Outcome, Queue, Retry
from tests.conformance.store.driver import CALLER, Driver, bodies, sealed

LONG = 3 << 19
COUNT = 4
# More than a store does of what is due before the verb itself.
MANY = 2_500


@pytest.fixture
def dead(driver: Driver) -> Queue:
    return driver.queue("dead")


@pytest.fixture
def work(driver: Driver, dead: Queue) -> Queue:
    """A queue that attempts twice, and then buries into `dead`."""
    return driver.queue("work", attempts_max=2, dead_letter=dead.id)


def test_a_message_is_buried_by_the_retry_of_its_last_attempt(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    assert driver.retry(work, driver.lease_one(work)) is Outcome.DONE
    assert driver.stats(dead).count == 0
    assert driver.retry(work, driver.lease_one(work), delay_ms=500) is Outcome.DONE
    assert driver.stats(work).count == 0
    assert bodies(driver.peek(dead)) == ["a"]


def test_a_message_is_buried_at_the_very_end_of_its_last_lease(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    driver.lease(work, lease_ms=100)
    driver.advance(99)
    assert driver.stats(work).count == 1
    assert driver.stats(dead).count == 0
    driver.advance(1)
    assert driver.stats(work).count == 0
    assert bodies(driver.peek(dead)) == ["a"]


def test_a_burial_is_seen_on_the_dead_letter_queue_without_touching_the_source(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    driver.lease(work, lease_ms=0)
    driver.lease(work, lease_ms=100)
    driver.advance(100)
    assert bodies(driver.peek(dead)) == ["a"]


def test_an_ack_of_the_last_attempt_prevents_the_burial(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    message = driver.lease_one(work, lease_ms=100)
    driver.advance(99)
    assert driver.ack(work, message) is Outcome.DONE
    driver.advance(10_000)
    assert driver.stats(dead).count == 0


def test_a_buried_message_is_gone_from_its_source(driver: Driver, work: Queue) -> None:
    driver.publish(work, "a")
    driver.lease(work, lease_ms=0)
    message = driver.lease_one(work, lease_ms=100)
    driver.advance(100)
    assert driver.ack(work, message, late=True) is Outcome.GONE
    assert driver.retry(work, message) is Outcome.GONE
    assert driver.find(work, message.id) is None


def test_a_dead_letter_starts_over_on_its_queue(driver: Driver, work: Queue, dead: Queue) -> None:
    driver.publish(work, Draft(b"[1]", "json", {"k": ["v"]}, group="g", ttl_ms=60_000), "another")
    driver.advance(10)
    for _ in range(2):
        message, other = driver.lease(work)
        driver.settle(work, Retry(message.seq, message.attempts), Retry(other.seq, other.attempts))
    copy, _ = driver.lease(dead)
    assert (copy.body, copy.content_type, copy.headers) == (b"[1]", "json", {"k": ["v"]})
    assert copy.group == "g"
    assert copy.published_ms == driver.now_ms
    assert copy.attempts == 1
    assert copy.expires_ms is None
    assert copy.origin == Origin(work.id, message.id, attempts=2, reason="attempts")
    assert copy.id == ids.message_id(published_ms=driver.now_ms, seq=copy.seq, queue=dead.id)


def test_a_dead_letter_keeps_the_publishers_own_id(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, Draft(b"a", id="order-1"))
    for _ in range(2):
        driver.retry(work, driver.lease_one(work))
    found = driver.find(dead, "order-1")
    assert found is not None
    assert found.origin == Origin(work.id, "order-1", attempts=2, reason="attempts")


@pytest.mark.parametrize("ending", ["retry", "expiry"])
def test_a_dead_letter_is_not_delayed_whatever_its_queue_says(driver: Driver, ending: str) -> None:
    dead = driver.queue("dead", delay_ms=100)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, Draft(b"a", delay_ms=10))
    driver.advance(10)
    message = driver.lease_one(work, lease_ms=50)
    if ending == "retry":
        driver.retry(work, message, delay_ms=70)
    else:
        driver.advance(50)
    assert driver.stats(dead).delayed == 0
    letter = driver.lease_one(dead)
    assert (letter.body, letter.delay_ms) == (b"a", None)


def test_a_dead_letter_lives_as_long_as_its_new_queue_says(driver: Driver) -> None:
    dead = driver.queue("dead", retention_ms=200)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id, retention_ms=DAY_MS)
    driver.publish(work, Draft(b"short", ttl_ms=100), Draft(b"long", ttl_ms=DAY_MS))
    driver.advance(50)
    driver.lease(work, lease_ms=10)
    driver.advance(10)
    assert [letter.expires_ms for letter in driver.peek(dead)] == [None, None]
    driver.advance(199)
    assert bodies(driver.peek(dead)) == ["short", "long"]
    driver.advance(1)
    assert driver.peek(dead) == []


def test_a_dead_letter_keeps_the_name_of_the_key_it_is_sealed_with(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, sealed(b"secret"), "clear")
    for _ in range(2):
        for message in driver.lease(work):
            driver.retry(work, message)
    secret, clear = driver.peek(dead)
    assert (secret.body, secret.sealed) == (sealed(b"secret").body, "key-1")
    assert clear.sealed is None
    assert driver.stats(dead).bytes == len("secret" + "clear")
    driver.redrive(dead, secret.seq, clear.seq)
    assert [message.sealed for message in driver.peek(work)] == ["key-1", None]


def test_a_burial_does_not_mind_the_key_of_a_repeated_publish(driver: Driver, dead: Queue) -> None:
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    draft = Draft(b"a", id="order-1", once_key="order-1", once_ms=300_000)
    driver.publish(dead, draft)
    driver.publish(work, draft)
    driver.retry(work, driver.lease_one(work))
    assert [letter.id for letter in driver.peek(dead)] == ["order-1", "order-1"]
    assert driver.publish(work, draft).repeated == [True]


def test_one_attempt_means_one_hand_out(driver: Driver, dead: Queue) -> None:
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.lease(work, lease_ms=10)
    driver.advance(10)
    assert driver.lease(work) == []
    assert driver.stats(dead).count == 1


def test_without_a_limit_a_message_is_attempted_again_and_again(driver: Driver) -> None:
    queue = driver.queue(attempts_max=None)
    driver.publish(queue, "a")
    for attempt in range(1, 30):
        message = driver.lease_one(queue)
        assert message.attempts == attempt
        driver.retry(queue, message)


def test_without_a_dead_letter_queue_a_buried_message_is_dropped(driver: Driver) -> None:
    queue = driver.queue(attempts_max=1)
    driver.publish(queue, "a", "b")
    driver.retry(queue, driver.lease_one(queue))
    driver.lease(queue, lease_ms=10)
    driver.advance(10)
    assert driver.stats(queue).count == 0


def test_a_message_is_dropped_when_the_dead_letter_queue_is_gone(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a", "b")
    driver.change(drops=[dead])
    driver.lease(work, lease_ms=0)
    _, b = driver.lease(work, lease_ms=10)
    driver.retry(work, b)
    driver.advance(10)
    assert driver.stats(work).count == 0
    buried = [event for event in driver.events() if event["kind"] == "buried"]
    assert [event["detail"] for event in buried] == [{"into": None}, {"into": None}]


def test_dead_letters_can_be_buried_further(driver: Driver) -> None:
    last = driver.queue("last")
    middle = driver.queue("middle", attempts_max=1, dead_letter=last.id)
    first = driver.queue("first", attempts_max=1, dead_letter=middle.id)
    driver.publish(first, "a")
    driver.lease(first, lease_ms=10)
    driver.advance(10)
    message = driver.lease_one(middle, lease_ms=10)
    driver.advance(10)
    [final] = driver.peek(last)
    assert final.origin == Origin(middle.id, message.id, attempts=1, reason="attempts")


def test_a_lower_limit_buries_at_the_end_of_the_current_attempt(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    message = driver.lease_one(work)
    driver.update(work, attempts_max=1)
    assert driver.retry(work, message) is Outcome.DONE
    assert driver.stats(dead).count == 1


def test_a_waiting_message_over_a_lowered_limit_gets_one_more_attempt(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    work = driver.update(work, attempts_max=10)
    driver.publish(work, "a")
    for _ in range(3):
        driver.retry(work, driver.lease_one(work))
    driver.update(work, attempts_max=2)
    message = driver.lease_one(work)
    assert message.attempts == 4
    driver.retry(work, message)
    assert driver.stats(dead).count == 1


def test_a_changed_limit_does_not_reach_leases_that_ended_before(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, "a")
    driver.lease(work, lease_ms=0)
    driver.lease(work, lease_ms=100)
    driver.advance(100)
    driver.update(work, attempts_max=10)
    assert driver.stats(work).count == 0
    assert bodies(driver.peek(dead)) == ["a"]


def test_burials_keep_the_order_in_which_the_leases_ended(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, *"abcd")
    driver.lease(work, lease_ms=0)
    driver.lease(work, count=1, lease_ms=30)
    driver.lease(work, count=1, lease_ms=10)
    driver.lease(work, count=2, lease_ms=20)
    driver.advance(30)
    assert bodies(driver.lease(dead)) == ["b", "c", "d", "a"]


def test_a_message_expires_rather_than_being_buried_at_the_same_moment(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, Draft(b"a", ttl_ms=100))
    driver.lease(work, lease_ms=0)
    driver.lease(work, lease_ms=100)
    driver.advance(100)
    assert driver.stats(work).count == 0
    assert driver.stats(dead).count == 0


def test_a_lease_that_ended_before_the_expiry_still_buries(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.publish(work, Draft(b"a", ttl_ms=100))
    driver.lease(work, lease_ms=0)
    driver.lease(work, lease_ms=99)
    driver.advance(500)
    assert bodies(driver.peek(dead)) == ["a"]


def test_a_lease_that_ended_before_retention_still_buries(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    driver.update(work, retention_ms=100)
    driver.publish(work, "a")
    driver.lease(work, lease_ms=0)
    driver.lease(work, lease_ms=99)
    driver.advance(500)
    assert bodies(driver.peek(dead)) == ["a"]


def test_a_batch_may_bury_and_settle_side_by_side(driver: Driver, work: Queue, dead: Queue) -> None:
    driver.publish(work, "a", "b")
    driver.lease(work, lease_ms=0)
    a, b = driver.lease(work)
    outcomes = driver.settle(
        work, Retry(a.seq, 2), Ack(a.seq, 2, late=True), Ack(b.seq, 2), Retry(a.seq, 2)
    )
    assert outcomes == [Outcome.DONE, Outcome.GONE, Outcome.DONE, Outcome.GONE]
    assert bodies(driver.peek(dead)) == ["a"]


@pytest.mark.parametrize("how", ["retried", "retried at once", "expired"])
def test_long_messages_are_buried_a_few_at_a_time(driver: Driver, how: str) -> None:
    dead = driver.queue("dead")
    queue = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    for number in range(COUNT):
        driver.publish(queue, Draft(b"%d" % number * LONG))
    leased = driver.lease(queue, lease_ms=10)
    items = [Retry(message.seq, message.attempts) for message in leased]
    if how == "retried":
        outcomes: list[Outcome] = []
        while len(outcomes) < COUNT:
            found = driver.settle(queue, *items[len(outcomes) :])
            assert found, "one at least"
            outcomes += found
        assert outcomes == [Outcome.DONE] * COUNT
    elif how == "retried at once":

        async def all_at_once() -> list[list[Outcome]]:
            now_ms, settle = driver.now_ms, driver.store.settle
            calls = [settle(queue.id, [item], actor=CALLER, now_ms=now_ms) for item in items]
            return await asyncio.gather(*calls)

        assert driver.run(all_at_once()) == [[Outcome.DONE]] * COUNT
    else:
        driver.advance(10)
        driver.sweep_all()
    assert driver.stats(queue).count == 0
    assert [message.body[:1] for message in driver.peek(dead)] == [b"0", b"1", b"2", b"3"]


def test_leases_that_ended_before_retention_are_buried_however_many_there_are(
    driver: Driver,
) -> None:
    dead = driver.queue("dead")
    queue = driver.queue(attempts_max=1, dead_letter=dead.id, retention_ms=1_000)
    driver.publish(queue, *(str(number) for number in range(MANY)))
    assert len(driver.lease(queue, count=MANY, lease_ms=100)) == MANY
    driver.advance(1_000)
    assert driver.peek(queue) == []
    driver.sweep_all()
    assert driver.stats(dead).count == MANY
