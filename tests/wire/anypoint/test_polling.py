"""Waiting for messages: what wakes a poll, what ends it, and what a poll that is left leaves."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from tests.server import Server
from tests.wire.anypoint.answers import nothing
from tests.wire.anypoint.destination import Exchange, Message, Queue
from tests.wire.anypoint.environment import Environment, root_client
from tests.wire.anypoint.waiter import Waiter

# Long enough for a request to have arrived and to be waiting.
SETTLED_S = 0.1
PROMPT_S = 2.0
LONG_MS = 20_000


@contextmanager
def prompt(*, at_least_s: float = 0.0) -> Iterator[None]:
    """What is done inside must not take much longer than it has to."""
    started = time.monotonic()
    yield
    taken = time.monotonic() - started
    assert at_least_s <= taken < at_least_s + PROMPT_S, taken


def waiting(queue: Queue, **query: int) -> Waiter:
    waiter = Waiter(queue, **{"pollingTime": LONG_MS, "batchSize": 10, **query})
    time.sleep(SETTLED_S)
    return waiter


# --- what wakes a poll ---


def test_a_publish_wakes_a_poll(queue: Queue) -> None:
    waiter = waiting(queue)
    with prompt():
        queue.publish("a")
        message = waiter.message()
    assert (message.body, message.count) == ("a", 1)


def test_a_batch_wakes_a_poll_which_gets_all_of_it(queue: Queue) -> None:
    waiter = waiting(queue)
    with prompt():
        queue.publish_batch(["a", "b", "c"])
        status, found = waiter.answer()
    assert status == 200
    assert [element["body"] for element in found] == ["a", "b", "c"]


def test_a_copy_from_an_exchange_wakes_a_poll(queue: Queue, exchange: Exchange) -> None:
    exchange.bind(queue)
    waiter = waiting(queue)
    with prompt():
        exchange.publish("a")
        assert waiter.message().body == "a"


def test_a_nack_wakes_a_poll(queue: Queue) -> None:
    queue.publish("a")
    message = queue.get_one()
    waiter = waiting(queue)
    with prompt():
        queue.nack(message)
        assert waiter.message().count == 2


def test_a_lock_set_to_nothing_wakes_a_poll(queue: Queue) -> None:
    queue.publish("a")
    message = queue.get_one()
    waiter = waiting(queue)
    with prompt():
        queue.set_lock(message, ttl_s=0)
        assert waiter.message().count == 2


def test_the_end_of_a_lock_wakes_a_poll(queue: Queue) -> None:
    queue.publish("a")
    queue.get_one(lockTtl=300)
    with prompt(at_least_s=0.25):
        assert queue.await_one(pollingTime=LONG_MS).count == 2


def test_the_end_of_a_delay_wakes_a_poll(queue: Queue) -> None:
    queue.publish("late", headers={"deliveryDelay": 300})
    with prompt(at_least_s=0.25):
        assert queue.await_one(pollingTime=LONG_MS).body == "late"


def test_a_dead_letter_wakes_a_poll(env: Environment) -> None:
    dead = Queue.create(env)
    source = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1)
    source.publish("a")
    message = source.get_one()
    waiter = waiting(dead)
    with prompt():
        source.nack(message)
        assert waiter.message().body == "a"


def test_a_dead_letter_by_the_end_of_a_lock_wakes_a_poll(env: Environment) -> None:
    dead = Queue.create(env)
    source = Queue.create(env, deadLetterQueueId=dead.name, maxDeliveries=1)
    source.publish("a")
    source.get_one(lockTtl=300)
    with prompt(at_least_s=0.25):
        assert dead.await_one(pollingTime=LONG_MS).body == "a"


@pytest.mark.parametrize("end", ["ack", "nack"])
def test_the_end_of_a_block_wakes_a_poll(fifo_queue: Queue, end: str) -> None:
    fifo_queue.publish_batch(["a", "b"])
    message = fifo_queue.get_one(batchSize=1)
    waiter = waiting(fifo_queue, batchSize=1)
    with prompt():
        getattr(fifo_queue, end)(message)
        assert waiter.message().body == ("b" if end == "ack" else "a")


def test_what_wakes_one_queue_lets_another_sleep(env: Environment, queue: Queue) -> None:
    waiter = waiting(queue)
    Queue.create(env).publish("elsewhere")
    time.sleep(SETTLED_S)
    queue.publish("here")
    assert waiter.message().body == "here"


# --- what ends it ---


def test_a_poll_of_no_time_answers_at_once(standing_queue: Queue) -> None:
    started = time.monotonic()
    nothing(standing_queue.poll(pollingTime=0))
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize("name", ["pollingTime", "poolingTime"])
def test_a_poll_ends_with_its_time(standing_queue: Queue, name: str) -> None:
    with prompt(at_least_s=0.28):
        nothing(standing_queue.poll(**{name: 300}))


@pytest.mark.slow
def test_a_poll_waits_ten_seconds_unless_told_otherwise(standing_queue: Queue) -> None:
    with prompt(at_least_s=9.9):
        nothing(standing_queue.poll())


@pytest.mark.slow
def test_a_poll_waits_as_long_as_it_may(standing_queue: Queue) -> None:
    with prompt(at_least_s=19.9):
        nothing(standing_queue.poll(pollingTime=LONG_MS))


def test_a_delete_ends_all_polls(queue: Queue) -> None:
    waiters = [waiting(queue) for _ in range(3)]
    with prompt():
        queue.delete()
        answers = [waiter.answer() for waiter in waiters]
    assert answers == [
        (404, {"status": "failure", "statusMessage": "Destination not found"})
    ] * len(waiters)


def test_a_purge_lets_a_poll_wait_on(queue: Queue) -> None:
    queue.publish("a")
    queue.get_one()
    waiter = waiting(queue)
    queue.purge()
    time.sleep(SETTLED_S)
    queue.publish("b")
    assert waiter.message().body == "b"


def test_a_stop_ends_all_polls_and_is_not_held_up_by_them(fresh_server: Server) -> None:
    with root_client(fresh_server.url) as http:
        queue = Queue.create(Environment.of(http, fresh_server.credentials))
        waiters = [waiting(queue) for _ in range(3)]
        started = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(fresh_server.stop)
            answers = [waiter.answer() for waiter in waiters]
            assert time.monotonic() - started < PROMPT_S
            stopped.result()
        assert time.monotonic() - started < PROMPT_S
        assert {status for status, _ in answers} <= {204, 503}


# --- many who wait ---


def test_each_of_many_polls_gets_another_message(queue: Queue) -> None:
    waiters = [Waiter(queue, pollingTime=LONG_MS) for _ in range(40)]
    time.sleep(SETTLED_S)
    with prompt():
        ids = [id for _ in range(4) for id in queue.publish_batch(["x"] * 10)]
        found = [waiter.message() for waiter in waiters]
    assert sorted(message.id for message in found) == sorted(ids)
    assert {message.count for message in found} == {1}


def test_each_of_many_polls_gets_another_message_one_by_one(queue: Queue) -> None:
    waiters = [Waiter(queue, pollingTime=LONG_MS) for _ in range(20)]
    time.sleep(SETTLED_S)
    ids = [queue.publish(str(number)) for number in range(20)]
    found = [waiter.message() for waiter in waiters]
    assert sorted(message.id for message in found) == sorted(ids)
    assert {message.count for message in found} == {1}


def test_groups_are_shared_among_those_who_wait(fifo_queue: Queue) -> None:
    waiters = [Waiter(fifo_queue, pollingTime=LONG_MS) for _ in range(10)]
    time.sleep(SETTLED_S)
    ids = [fifo_queue.publish("x", headers={"messageGroupId": f"g{n}"}) for n in range(10)]
    found = [waiter.message() for waiter in waiters]
    assert sorted(message.id for message in found) == sorted(ids)


def test_messages_that_come_while_others_poll_are_all_got_once(queue: Queue) -> None:
    """Publishers and pollers at the same time: nobody waits beside a message that is there."""
    publishers, each, pollers = 3, 50, 8
    all_published = Event()

    def publish(_: int) -> list[str]:
        return [queue.publish("x") for _ in range(each)]

    def consume(_: int) -> list[Message]:
        seen: list[Message] = []
        while True:
            nothing_more = all_published.is_set()
            found = queue.get(batchSize=3, pollingTime=200)
            if not found and nothing_more:
                return seen
            if found:
                queue.ack_batch([message.item for message in found])
            seen += found

    with ThreadPoolExecutor(pollers + publishers) as pool:
        consumed = [pool.submit(consume, number) for number in range(pollers)]
        ids = [id for part in pool.map(publish, range(publishers)) for id in part]
        all_published.set()
        seen = [message for part in consumed for message in part.result()]
    assert sorted(message.id for message in seen) == sorted(ids)
    assert {message.count for message in seen} == {1}


# --- polls that are left ---


def everything(queue: Queue) -> list[Message]:
    found: list[Message] = []
    while part := queue.get(pollingTime=300):
        queue.ack_batch([message.item for message in part])
        found += part
    return found


def test_a_poll_that_was_left_does_not_keep_the_news_from_others(queue: Queue) -> None:
    left = [waiting(queue) for _ in range(3)]
    other = waiting(queue)
    for waiter in left:
        waiter.leave()
    time.sleep(SETTLED_S)
    with prompt():
        queue.publish("a")
        message = other.message()
    assert (message.body, message.count) == ("a", 1)


def test_a_poll_that_was_left_takes_nothing(queue: Queue) -> None:
    left = [waiting(queue, lockTtl=86_400_000) for _ in range(3)]
    for waiter in left:
        waiter.leave()
    time.sleep(SETTLED_S)
    queue.publish_batch(["a", "b"])
    assert [(message.body, message.count) for message in queue.get()] == [("a", 1), ("b", 1)]


def test_polls_that_are_left_while_messages_come_swallow_none(queue: Queue) -> None:
    """Whatever a leaving client did not get must be there for others at once."""
    rounds, each = 60, 3
    got: list[Message] = []
    published: list[str] = []
    rng = random.Random(7)

    def publish() -> list[str]:
        return [queue.publish("x") for _ in range(2)]

    with ThreadPoolExecutor(1) as pool:
        for _ in range(rounds):
            waiters = [Waiter(queue, pollingTime=LONG_MS, lockTtl=86_400_000) for _ in range(each)]
            coming = pool.submit(publish)
            time.sleep(rng.random() * 0.01)
            for waiter in waiters:
                got += waiter.hang_up()
            published += coming.result()
    there = everything(queue)
    assert sorted(message.id for message in got + there) == sorted(published)
    # A message may have been on its way to somebody who left, but to each of them only once.
    assert sum(message.count for message in got + there) <= len(published) + rounds * each


def test_polls_that_are_left_keep_a_group_in_order(fifo_queue: Queue) -> None:
    published: list[str] = []
    got: list[Message] = []
    for _ in range(30):
        waiters = [Waiter(fifo_queue, pollingTime=LONG_MS, lockTtl=86_400_000) for _ in range(2)]
        published.append(fifo_queue.publish("x"))
        for waiter in waiters:
            for message in waiter.hang_up():
                got.append(message)
                fifo_queue.ack(message)
    got += everything(fifo_queue)
    assert [message.id for message in got] == published


def test_polls_that_vanish_while_messages_come_hold_up_nobody(queue: Queue) -> None:
    """The other end is gone before the publish: all of it is there for the next who asks."""
    rounds = 40
    counts = []
    for number in range(rounds):
        waiters = [Waiter(queue, pollingTime=LONG_MS, lockTtl=86_400_000) for _ in range(4)]
        time.sleep(0.01)
        for waiter in waiters:
            waiter.leave()
        queue.publish(str(number))
        message = queue.await_one(pollingTime=2_000)
        assert message.body == str(number)
        queue.ack(message)
        counts.append(message.count)
    assert sum(counts) <= rounds * 1.5
