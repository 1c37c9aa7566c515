"""How messages stand: waiting, leased or delayed, and until when."""

from courier.core.types import Draft, Queue, Standing
from tests.conformance.store.driver import Driver


def test_each_message_stands_in_one_state_with_its_end(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", Draft(b"c", delay_ms=500), "d")
    driver.lease_one(queue, lease_ms=100)
    now_ms = driver.now_ms
    leased, delayed = Standing(1, "leased", now_ms + 100), Standing(3, "delayed", now_ms + 500)
    assert driver.states(queue) == [leased, Standing(2, "waiting"), delayed, Standing(4, "waiting")]
    assert driver.states(queue, "leased") == [leased]
    assert driver.states(queue, "delayed") == [delayed]
    assert driver.states(queue, "waiting") == [Standing(2, "waiting"), Standing(4, "waiting")]
    driver.advance(100)
    assert driver.states(queue, "leased") == []
    driver.advance(400)
    assert driver.states(queue) == [Standing(seq, "waiting") for seq in (1, 2, 3, 4)]


def test_a_message_that_comes_back_waits_or_is_delayed(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    first, second = driver.lease(queue, count=2)
    driver.retry(queue, first, delay_ms=300)
    driver.retry(queue, second, delay_ms=0)
    assert driver.states(queue) == [
        Standing(1, "delayed", driver.now_ms + 300),
        Standing(2, "waiting"),
    ]


def test_states_are_read_between_two_sequences_in_pages(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *(str(number) for number in range(30)))
    driver.lease(queue, count=10)
    assert [each.seq for each in driver.states(queue, after=5, before=15, limit=3)] == [
        *range(6, 15)
    ]
    leased = driver.states(queue, "leased", after=5, limit=2)
    assert [each.seq for each in leased] == [6, 7, 8, 9, 10]
    waiting = driver.states(queue, "waiting", before=13, limit=2)
    assert [each.seq for each in waiting] == [11, 12]


def test_behind_a_leased_or_delayed_head_of_its_group_a_message_waits(driver: Driver) -> None:
    queue = driver.queue("ordered", fifo=True)
    driver.publish(queue, Draft(b"a1", group="a"), Draft(b"a2", group="a"))
    driver.publish(queue, Draft(b"b1", group="b", delay_ms=200), Draft(b"b2", group="b"))
    driver.lease_one(queue, lease_ms=100)
    assert driver.states(queue) == [
        Standing(1, "leased", driver.now_ms + 100),
        Standing(2, "waiting"),
        Standing(3, "delayed", driver.now_ms + 200),
        Standing(4, "waiting"),
    ]
