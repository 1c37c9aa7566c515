"""Rates of queues: the same units for all who take them."""

import pytest

from courier.core.errors import RateLimited
from tests.conformance.store.driver import Driver

LIMIT = 10


def take(driver: Driver, queue: str, units: int, what: str = "publishing") -> int:
    """0, or after how many ms to ask again."""
    rates = driver.store.rates
    try:
        driver.run(rates.take(queue, what, units, limit=LIMIT, now_ms=driver.now_ms))
    except RateLimited as error:
        return error.retry_after_ms
    return 0


def test_no_more_is_taken_in_a_second_than_the_limit(driver: Driver) -> None:
    queue = driver.queue().id
    assert [take(driver, queue, 1) for _ in range(LIMIT)] == [0] * LIMIT
    assert [take(driver, queue, 1) for _ in range(3)] == [101] * 3
    driver.advance(100)
    assert [take(driver, queue, 1) for _ in range(2)] == [0, 101]


def test_what_is_left_comes_back_steadily_and_no_further_than_the_limit(driver: Driver) -> None:
    queue = driver.queue().id
    assert take(driver, queue, 6) == 0
    driver.advance(300)
    assert take(driver, queue, 7) == 0
    assert take(driver, queue, 1) == 101
    driver.advance(60_000)
    assert take(driver, queue, LIMIT) == 0
    assert take(driver, queue, 1) == 101


def test_more_than_the_limit_passes_when_all_is_left_and_is_paid_back(driver: Driver) -> None:
    queue = driver.queue().id
    assert take(driver, queue, 3 * LIMIT) == 0
    driver.advance(2_000)
    assert take(driver, queue, 1) == 101
    driver.advance(101)
    assert take(driver, queue, 1) == 0


@pytest.mark.parametrize("other", ["queue", "what"])
def test_queues_and_purposes_have_rates_of_their_own(driver: Driver, other: str) -> None:
    queue = driver.queue().id
    assert take(driver, queue, LIMIT) == 0
    if other == "queue":
        assert take(driver, driver.queue(name="another").id, 1) == 0
    else:
        assert take(driver, queue, 1, "consuming") == 0
    assert take(driver, queue, 1) == 101
