"""What waits a little, so that it happens together."""

import asyncio
import math

from courier.delivery.moments import MOMENT_S, Deadlines, Soon, next_moment_s


class Waiting:
    def __init__(self, expired_s: list[float]) -> None:
        self._expired_s = expired_s

    def expired(self) -> None:
        self._expired_s.append(asyncio.get_running_loop().time())


def test_all_who_ask_between_two_moments_get_the_same_one() -> None:
    first_s = 1_000 * MOMENT_S
    asked = [first_s + part * MOMENT_S / 10 for part in range(9)]
    assert len({next_moment_s(at_s) for at_s in asked}) == 1
    assert all(at_s < next_moment_s(at_s) < at_s + 1.1 * MOMENT_S for at_s in asked)


def test_a_timer_that_comes_a_little_early_is_of_its_moment() -> None:
    """Else what happens once at each moment would happen twice."""
    first_s = 1_000 * MOMENT_S
    assert next_moment_s(first_s - 0.001) == next_moment_s(first_s)


async def test_what_takes_too_long_is_given_up_once_and_never_early() -> None:
    deadlines, over = Deadlines(), list[float]()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    # A short one after a long one: it does not wait for that.
    for timeout_ms in (500, 120, 20, 120):
        deadlines.add(Waiting(over), timeout_ms)
    await asyncio.sleep(0.4)
    assert len(over) == 3
    assert over[0] - began_s >= 0.02 and over[1] - began_s >= 0.12
    await asyncio.sleep(0.3)
    assert len(over) == 4 and over[3] - began_s >= 0.5
    deadlines.close()


async def test_what_ends_in_time_is_not_given_up() -> None:
    deadlines, over = Deadlines(), list[float]()
    ended = [Waiting(over) for _ in range(3)]
    for each in ended:
        deadlines.add(each, 60)
    left = Waiting(over)
    deadlines.add(left, 60)
    for each in ended:
        deadlines.take_away(each, 60)
        deadlines.take_away(each, 60)
    await asyncio.sleep(0.2)
    assert len(over) == 1
    deadlines.take_away(left, 60)
    deadlines.close()


def test_deadlines_that_are_near_each_other_come_in_one_moment() -> None:
    async def main() -> list[float]:
        deadlines, over = Deadlines(), list[float]()
        loop = asyncio.get_running_loop()
        await asyncio.sleep(next_moment_s(loop.time()) - loop.time())
        for ms in range(1, 40, 4):
            deadlines.add(Waiting(over), 100 + ms)
        await asyncio.sleep(0.3)
        deadlines.close()
        return over

    over = asyncio.run(main())
    assert len(over) == 10
    assert len({math.floor(at_s / MOMENT_S) for at_s in over}) == 1


def test_what_is_added_twice_is_called_once_and_may_be_added_again() -> None:
    async def main() -> list[int]:
        soon, called = Soon(), list[int]()

        def call() -> None:
            called.append(len(called))
            if len(called) == 1:
                soon.add(call)

        soon.add(call)
        soon.add(call)
        await asyncio.sleep(3 * MOMENT_S)
        return called

    assert asyncio.run(main()) == [0, 1]
