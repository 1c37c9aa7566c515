"""Numbers of many queues and listeners in one call."""

from courier import ids
from courier.core.types import PushStats, QueueStats
from tests.conformance.store.driver import Driver

MANY = 450  # more than a store asks for at a time


def test_stats_of_many_queues_leave_out_those_that_do_not_exist(driver: Driver) -> None:
    queues = [driver.queue(f"orders-{number:03d}") for number in range(MANY)]
    for queue in queues[::2]:
        driver.publish(queue, "ab")
    gone = queues.pop()
    driver.change(drops=[gone])
    wanted = [*(queue.id for queue in queues), gone.id, ids.new_id()]
    stats = driver.run(driver.store.stats(wanted, now_ms=driver.now_ms))
    assert list(stats) == [queue.id for queue in queues]
    full, empty = QueueStats(1, 2, driver.now_ms), QueueStats()
    assert list(stats.values()) == [full if not i % 2 else empty for i in range(MANY - 1)]
    assert driver.run(driver.store.stats([], now_ms=driver.now_ms)) == {}


def test_stats_of_many_listeners_leave_out_those_that_do_not_exist(driver: Driver) -> None:
    queue, other = driver.queue(), driver.queue("other")
    listeners = [driver.listener(queue, f"mill-{number}") for number in range(5)]
    lost = driver.listener(other)
    driver.publish(queue, "a")
    driver.change(drops=[other, lost])
    wanted = [*(each.id for each in listeners), lost.id, queue.id, ids.new_id()]
    stats = driver.run(driver.store.pushes.stats(wanted, now_ms=driver.now_ms))
    assert stats == {each.id: PushStats(open=1) for each in listeners}


def test_time_passes_before_the_numbers_are_read(driver: Driver) -> None:
    queue = driver.queue()
    driver.publish(queue, "a")
    driver.lease_one(queue, lease_ms=10)
    stats = driver.run(driver.store.stats([queue.id], now_ms=driver.now_ms + 10))
    assert stats[queue.id].leased == 0
