from courier.core.types import DAY_MS, Draft, Queue
from tests.conformance.store.driver import Driver, bodies


def test_a_repeated_publish_returns_the_first_message(driver: Driver, queue: Queue) -> None:
    first = driver.publish(queue, Draft(b"a", once_key="k"))
    before = driver.last()
    driver.advance(1)
    second = driver.publish(queue, Draft(b"other body", once_key="k"))
    assert second.ids == first.ids
    assert (first.repeated, second.repeated) == ([False], [True])
    assert second.stats.count == 1
    assert driver.last() == before
    assert bodies(driver.peek(queue)) == ["a"]


def test_a_key_is_forgotten_exactly_when_its_time_ends(driver: Driver, queue: Queue) -> None:
    draft = Draft(b"a", once_key="k", once_ms=100)
    first = driver.publish(queue, draft)
    driver.advance(99)
    assert driver.publish(queue, draft).repeated == [True]
    driver.advance(1)
    second = driver.publish(queue, draft)
    assert second.repeated == [False]
    assert second.ids != first.ids
    driver.advance(99)
    assert driver.publish(queue, draft).ids == second.ids


def test_a_repeat_does_not_prolong_the_key(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k", once_ms=100))
    driver.advance(60)
    assert driver.publish(queue, Draft(b"a", once_key="k", once_ms=100)).repeated == [True]
    driver.advance(40)
    assert driver.publish(queue, Draft(b"a", once_key="k", once_ms=100)).repeated == [False]


def test_a_key_holds_for_a_day_when_the_draft_says_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k"))
    driver.advance(DAY_MS - 1)
    assert driver.publish(queue, Draft(b"a", once_key="k")).repeated == [True]
    driver.advance(1)
    assert driver.publish(queue, Draft(b"a", once_key="k")).repeated == [False]


def test_a_key_outlives_its_message(driver: Driver, queue: Queue) -> None:
    first = driver.publish(queue, Draft(b"a", once_key="k"))
    driver.ack(queue, driver.lease_one(queue))
    second = driver.publish(queue, Draft(b"a", once_key="k"))
    assert (second.ids, second.repeated) == (first.ids, [True])
    assert second.stats.count == 0


def test_a_key_outlives_a_purge_and_a_sweep(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k", once_ms=500))
    driver.purge(queue, upto_seq=driver.tail(queue))
    driver.advance(499)
    driver.sweep_all()
    assert driver.publish(queue, Draft(b"a", once_key="k")).repeated == [True]


def test_a_repeat_inside_one_batch_counts(driver: Driver, queue: Queue) -> None:
    receipt = driver.publish(
        queue,
        Draft(b"a", once_key="k"),
        "b",
        Draft(b"c", once_key="k"),
        Draft(b"d", once_key="l"),
        Draft(b"e", once_key="l"),
    )
    assert receipt.repeated == [False, False, True, False, True]
    assert receipt.ids[2] == receipt.ids[0]
    assert receipt.ids[4] == receipt.ids[3]
    assert receipt.stats.count == 3
    assert bodies(driver.lease(queue)) == ["a", "b", "d"]


def test_new_and_repeated_drafts_of_one_batch_keep_their_places(
    driver: Driver, queue: Queue
) -> None:
    [known] = driver.publish(queue, Draft(b"a", once_key="k")).ids
    receipt = driver.publish(
        queue, "b", Draft(b"c", once_key="k"), Draft(b"d", id="own", once_key="l"), "e"
    )
    assert receipt.repeated == [False, True, False, False]
    assert receipt.ids[1:3] == [known, "own"]
    messages = driver.lease(queue)
    assert bodies(messages) == ["a", "b", "d", "e"]
    assert [m.id for m in messages] == [known, receipt.ids[0], "own", receipt.ids[3]]


def test_the_publishers_own_id_is_returned_for_a_repeat(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", id="order-1", once_key="k"))
    assert driver.publish(queue, Draft(b"a", id="order-2", once_key="k")).ids == ["order-1"]
    assert driver.find(queue, "order-2") is None


def test_a_key_belongs_to_one_queue(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(queue, Draft(b"a", once_key="k"))
    assert driver.publish(other, Draft(b"a", once_key="k")).repeated == [False]


def test_a_queue_created_again_knows_no_keys(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k"))
    driver.change(drops=[queue])
    again = driver.queue(queue.name)
    assert driver.publish(again, Draft(b"a", once_key="k")).repeated == [False]


def test_an_empty_key_is_a_key(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key=""))
    assert driver.publish(queue, Draft(b"a", once_key="")).repeated == [True]


def test_drafts_without_a_key_are_never_repeats(driver: Driver, queue: Queue) -> None:
    assert driver.publish(queue, "a", "a").repeated == [False, False]
    assert driver.stats(queue).count == 2


def test_a_key_of_no_length_is_forgotten_at_once(driver: Driver, queue: Queue) -> None:
    draft = Draft(b"a", once_key="k", once_ms=0)
    driver.publish(queue, draft)
    assert driver.publish(queue, draft).repeated == [False]
