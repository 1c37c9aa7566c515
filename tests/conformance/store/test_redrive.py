import pytest

from courier.core.types import Draft, Message, Origin, Queue
from tests.conformance.store.driver import Driver, bodies


@pytest.fixture
def dead(driver: Driver) -> Queue:
    return driver.queue("dead")


@pytest.fixture
def work(driver: Driver, dead: Queue) -> Queue:
    """A queue that attempts once, and then buries into `dead`."""
    return driver.queue("work", attempts_max=1, dead_letter=dead.id)


def bury(driver: Driver, work: Queue, *drafts: Draft | str) -> None:
    driver.publish(work, *drafts)
    for message in driver.lease(work):
        driver.retry(work, message)


def test_a_dead_letter_goes_back_to_where_it_was_buried_from(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, Draft(b"[1]", "json", {"k": "v"}, group="g"))
    driver.advance(10)
    [letter] = driver.peek(dead)
    assert driver.redrive(dead, letter.seq) == [True]
    assert driver.stats(dead).count == 0
    message = driver.lease_one(work)
    assert (message.body, message.content_type, message.headers) == (b"[1]", "json", {"k": "v"})
    assert message.group == "g"
    assert message.attempts == 1
    assert message.published_ms == driver.now_ms
    assert message.origin == Origin(dead.id, letter.id, attempts=0, reason="redrive")


def test_a_dead_letter_that_is_put_back_can_be_redriven_like_any_other(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    origin = Origin(work.id, "m", attempts=1, reason="attempts")
    driver.publish_rows(dead, "plain", Draft(b"a", origin=origin))
    [plain, letter] = driver.peek(dead)
    assert (plain.origin, letter.origin) == (None, origin)
    assert driver.redrive(dead, plain.seq, letter.seq) == [False, True]
    assert bodies(driver.peek(work)) == ["a"]


def test_the_publishers_own_id_survives_the_way_back(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, Draft(b"a", id="order-1"))
    driver.redrive(dead, driver.peek(dead)[0].seq)
    assert driver.lease_one(work).id == "order-1"
    assert driver.find(dead, "order-1") is None


def test_the_sources_delay_does_not_apply(driver: Driver, work: Queue, dead: Queue) -> None:
    bury(driver, work, "a")
    work = driver.update(work, delay_ms=60_000)
    driver.redrive(dead, driver.peek(dead)[0].seq)
    assert bodies(driver.peek(work)) == ["a"]


def test_a_redriven_message_can_be_buried_and_redriven_again(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, "a")
    for _ in range(3):
        assert driver.redrive(dead, driver.peek(dead)[0].seq) == [True]
        driver.retry(work, driver.lease_one(work))
    assert bodies(driver.peek(dead)) == ["a"]


def test_only_dead_letters_can_be_redriven(driver: Driver, work: Queue, dead: Queue) -> None:
    bury(driver, work, "buried")
    driver.publish(dead, "published here")
    buried, published = driver.peek(dead)
    absent = driver.tail(dead) + 1
    assert driver.redrive(dead, published.seq, absent, 0, -1, buried.seq, buried.seq) == [
        False,
        False,
        False,
        False,
        True,
        False,
    ]
    assert bodies(driver.peek(dead)) == ["published here"]
    assert bodies(driver.peek(work)) == ["buried"]


def test_a_redriven_message_is_no_dead_letter_on_its_source(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, "a")
    driver.redrive(dead, driver.peek(dead)[0].seq)
    [message] = driver.peek(work)
    assert driver.redrive(work, message.seq) == [False]
    assert bodies(driver.peek(work)) == ["a"]


@pytest.mark.parametrize(("passed_ms", "redriven"), [(99, False), (100, True)], ids=str)
def test_a_leased_dead_letter_stays(
    driver: Driver, work: Queue, dead: Queue, passed_ms: int, redriven: bool
) -> None:
    bury(driver, work, "a")
    letter = driver.lease_one(dead, lease_ms=100)
    driver.advance(passed_ms)
    assert driver.redrive(dead, letter.seq) == [redriven]
    assert driver.stats(dead).count == (0 if redriven else 1)
    assert driver.stats(work).count == (1 if redriven else 0)


def test_a_delayed_dead_letter_can_be_redriven(driver: Driver, work: Queue, dead: Queue) -> None:
    driver.update(dead, delay_ms=60_000)
    bury(driver, work, "a")
    seq = driver.tail(dead)
    assert driver.redrive(dead, seq) == [True]
    assert driver.stats(dead).count == 0
    assert bodies(driver.peek(work)) == ["a"]


def test_a_dead_letter_stays_when_its_source_is_gone(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, "a")
    driver.change(drops=[work])
    driver.queue("work")
    [letter] = driver.peek(dead)
    assert driver.redrive(dead, letter.seq) == [False]
    driver.sweep_all()
    assert driver.redrive(dead, letter.seq) == [False]
    assert driver.stats(dead).count == 1


def test_letters_of_several_sources_find_their_own_way_back(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    other = driver.queue("other", attempts_max=1, dead_letter=dead.id)
    bury(driver, work, "w1")
    bury(driver, other, "o1")
    bury(driver, work, "w2")
    letters: list[Message] = driver.peek(dead)
    assert driver.redrive(dead, *(letter.seq for letter in reversed(letters))) == [True] * 3
    assert bodies(driver.lease(work)) == ["w2", "w1"]
    assert bodies(driver.lease(other)) == ["o1"]


def test_a_letter_that_expired_cannot_be_redriven(driver: Driver, work: Queue, dead: Queue) -> None:
    driver.update(dead, retention_ms=100)
    bury(driver, work, "a")
    seq = driver.peek(dead)[0].seq
    driver.advance(100)
    assert driver.redrive(dead, seq) == [False]
    assert driver.stats(work).count == 0


def test_a_dry_run_answers_the_same_and_changes_nothing(
    driver: Driver, work: Queue, dead: Queue
) -> None:
    bury(driver, work, "a", "b", "c")
    driver.publish(dead, "published here")
    driver.lease(dead, count=1)
    before = driver.last()
    foretold = driver.redrive(dead, 1, 2, 3, 4, 5, 2, dry_run=True)
    assert foretold == [False, True, True, False, False, False]
    assert driver.last() == before
    assert driver.stats(dead).count == 4
    assert driver.stats(work).count == 0
    assert driver.redrive(dead, 1, 2, 3, 4, 5, 2) == foretold
