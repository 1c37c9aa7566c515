"""Who may make a request when many want to."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from courier.delivery import slots as rules
from courier.delivery.moments import MOMENT_S
from courier.delivery.slots import Seat, Slots, Turn


class Table:
    """Seats that take as many slots as they get, and how many each holds."""

    def __init__(self, size: int) -> None:
        self.slots = Slots(size)
        self.held: dict[Seat, list[int]] = {}
        self.woken: list[Seat] = []

    def seat(self, tenant: str, queue: str = "q", *, quick: bool = False) -> Seat:
        made: list[Seat] = []
        seat = self.slots.seat(
            tenant=tenant, queue=queue, wake=lambda: self.woken.append(made[0]), quick=quick
        )
        made.append(seat)
        self.held[seat] = []
        return seat

    def take(self, seat: Seat, wanted: int) -> int:
        taken = some = seat.take(wanted)
        while some and not seat.quick and taken < wanted:
            taken += (some := seat.take(1))
        self.held[seat] += [seat.begin() for _ in range(taken)]
        return taken

    def end(self, seat: Seat) -> None:
        """One of its requests ends; those who are offered a slot take it."""
        seat.end(self.held[seat].pop())
        while self.woken:
            offered = self.woken.pop()
            assert self.take(offered, 1) == 1
            offered.decline()

    def close(self) -> None:
        for seat, held in self.held.items():
            seat.close()
            while held:
                seat.end(held.pop())


def run(size: int, story: Callable[[Table], None]) -> None:
    async def main() -> None:
        table = Table(size)
        story(table)
        table.woken.clear()
        table.close()
        assert table.slots.used == 0
        assert table.slots.waiting == 0

    asyncio.run(main())


@pytest.fixture(autouse=True)
def many_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "NEW_STARTS_MAX", 1_000_000)
    monkeypatch.setattr(rules, "SLOW_STARTS_MAX", 1_000_000)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is a slow one."""
    monkeypatch.setattr(rules, "SLOW_S", -1.0)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 50, 1_000])
def test_one_tenant_leaves_a_quarter_to_others(size: int) -> None:
    def story(table: Table) -> None:
        taken = table.take(table.seat("a", quick=True), size)
        assert taken == size * 3 // 4

    run(size, story)


def test_tenants_that_want_everything_get_equal_parts_and_leave_one_for_the_next() -> None:
    def story(table: Table) -> None:
        seats = [table.seat(f"t{number}", quick=True) for number in range(3)]
        for seat in seats:
            table.take(seat, 1_000)
        for _ in range(600):
            for seat in seats:
                table.end(seat)
                table.take(seat, 1_000)
        counts = [len(table.held[seat]) for seat in seats]
        assert all(295 <= count <= 305 for count in counts)
        assert table.take(table.seat("new"), 1) == 1

    run(1_000, story)


@pytest.mark.parametrize("queues", [1, 10, 1_000])
def test_new_seats_that_hang_leave_room_for_quick_ones_of_their_tenant(queues: int) -> None:
    def story(table: Table) -> None:
        hanging = [table.seat("a", f"q{number % queues}") for number in range(1_000)]
        taken = sum(table.take(seat, 10) for seat in hanging)
        assert taken <= 562
        assert table.take(table.seat("a", "well", quick=True), 10) == 10
        assert table.take(table.seat("b"), 10) == 10

    run(1_000, story)


@pytest.mark.parametrize("queues", [1, 10, 100])
def test_new_seats_that_hang_leave_room_for_new_ones_of_other_queues(queues: int) -> None:
    def story(table: Table) -> None:
        hanging = [table.seat("a", f"q{number % queues}") for number in range(1_000)]
        for seat in hanging:
            table.take(seat, 10)
        assert table.take(table.seat("a", "new"), 1) == 1

    run(1_000, story)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("queues", [1, 10, 1_000])
def test_slow_seats_leave_room_for_new_ones_and_quick_ones(queues: int) -> None:
    def story(table: Table) -> None:
        hanging = [table.seat("a", f"q{number % queues}") for number in range(1_000)]
        for seat in hanging:
            table.take(seat, 1)
        for seat in hanging:
            if table.held[seat]:
                table.end(seat)
                table.take(seat, 10)
        for seat in hanging:
            if table.held[seat]:
                table.end(seat)
                table.take(seat, 1)
        assert sum(map(len, table.held.values())) <= 421
        assert table.take(table.seat("a", "new"), 1) == 1
        assert table.take(table.seat("a", "well", quick=True), 10) == 10

    run(1_000, story)


@pytest.mark.usefixtures("slow")
def test_a_seat_is_slow_as_soon_as_a_request_takes_long() -> None:
    def story(table: Table) -> None:
        seat = table.seat("a", quick=True)
        assert table.take(seat, 30) == 30
        assert table.take(seat, 30) == 0, "of 50 slow ones get 20"

    run(50, story)


def test_quick_ones_are_served_before_new_ones_and_queues_in_turn() -> None:
    def story(table: Table) -> None:
        holder = table.seat("a", quick=True)
        table.take(holder, 50)
        seats = [table.seat("a", queue) for queue in ("x", "x", "y")]
        quick = table.seat("a", "x", quick=True)
        for seat in (*seats, quick):
            assert table.take(seat, 1) == 0
        order = []
        for _ in range(4):
            before = {seat: len(held) for seat, held in table.held.items()}
            table.end(holder)
            order += [seat for seat in before if len(table.held[seat]) > before[seat]]
        assert order == [quick, seats[0], seats[2], seats[1]]

    run(50, story)


def test_a_slot_that_is_declined_goes_to_the_next() -> None:
    def story(table: Table) -> None:
        holder, first, second = (table.seat(name, quick=True) for name in "abc")
        table.take(holder, 1)
        assert [table.take(first, 1), table.take(second, 1)] == [0, 0]
        holder.end(table.held[holder].pop())
        assert table.woken == [first]
        first.decline()
        assert table.woken == [first, second]
        assert table.take(second, 1) == 1

    run(1, story)


def test_nobody_is_forgotten_whatever_happens() -> None:
    """Random comings and goings: who waits may not have a slot, and nothing is lost."""
    luck = random.Random(16)

    def story(table: Table) -> None:
        seats = [
            table.seat(f"t{number % 7}", f"q{number % 13}", quick=number % 3 == 0)
            for number in range(200)
        ]
        for _ in range(5_000):
            seat = luck.choice(seats)
            if table.held[seat] and luck.random() < 0.55:
                table.end(seat)
            else:
                table.take(seat, luck.randint(1, 4))
            used = sum(map(len, table.held.values()))
            assert table.slots.used == used <= 40
        for seat in seats:
            while table.held[seat]:
                table.end(seat)
        while any(table.held.values()):
            for seat in seats:
                while table.held[seat]:
                    table.end(seat)
        assert table.slots.waiting == 0

    run(40, story)


async def test_who_waits_for_a_turn_gets_it_and_who_gives_up_holds_up_nobody() -> None:
    slots = Slots(1)
    turns = [Turn(slots, tenant="t", queue="q") for _ in range(3)]
    order: list[int] = []

    async def use(number: int) -> None:
        try:
            async with turns[number]:
                order.append(number)
                await asyncio.sleep(0.01)
        finally:
            turns[number].close()

    tasks = [asyncio.create_task(use(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2]
    assert (slots.used, slots.waiting) == (0, 0)


async def test_requests_to_seats_that_may_hang_start_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "NEW_STARTS_MAX", 4)
    table = Table(1_000)
    seats = [table.seat("a", f"q{number}") for number in range(100)]
    began_s = time.monotonic()
    assert sum(table.take(seat, 1) for seat in seats) == 4
    assert table.take(table.seat("b", quick=True), 50) == 50
    while len(table.woken) < 20:
        await asyncio.sleep(MOMENT_S / 10)
        moments = (time.monotonic() - began_s) / MOMENT_S
        assert len(table.woken) <= 4 * (moments + 1)
    table.close()


async def test_seats_that_hung_start_more_slowly_than_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many start at once as are let in, and no more before the next moment."""
    monkeypatch.setattr(rules, "NEW_STARTS_MAX", 4)
    monkeypatch.setattr(rules, "SLOW_STARTS_MAX", 1)
    table = Table(1_000)
    hung = [table.seat("a", f"q{number}") for number in range(3)]
    assert sum(table.take(seat, 1) for seat in hung) == 3
    monkeypatch.setattr(rules, "SLOW_S", -1.0)
    for seat in hung:
        seat.end(table.held[seat].pop(), answered=False)
    assert [table.take(seat, 1) for seat in hung] == [1, 0, 0]
    fresh = [table.seat("a", f"n{number}") for number in range(3)]
    assert [table.take(seat, 1) for seat in fresh] == [1, 0, 0]
    table.close()


async def test_silent_seats_start_a_few_in_a_second_and_do_not_starve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many slow seats wait, and those have their own starts meanwhile."""
    monkeypatch.setattr(rules, "SLOW_STARTS_MAX", 1)
    monkeypatch.setattr(rules, "SLOW_S", -1.0)
    table = Table(1_000)
    silent = [table.seat("a", f"q{number}") for number in range(10)]
    slow = [table.seat("a", f"s{number}") for number in range(100)]
    for seat in silent + slow:
        assert table.take(seat, 1) == 1
        seat.end(table.held[seat].pop(), answered=seat in slow)
    began_s = time.monotonic()
    assert sum(table.take(seat, 1) for seat in slow) == 1
    assert sum(table.take(seat, 1) for seat in silent) == 1
    table.woken.clear()
    while sum(seat in silent for seat in table.woken) < 2:
        await asyncio.sleep(MOMENT_S / 10)
    moments = (time.monotonic() - began_s) / MOMENT_S
    assert moments >= 2 * rules.SILENT_START_MOMENTS - 1
    assert sum(seat in slow for seat in table.woken) >= rules.SILENT_START_MOMENTS
    table.close()


@pytest.mark.parametrize("slow_s", [1.0, -1.0])
async def test_a_request_that_is_answered_counts_as_no_start(
    slow_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers that are well again do not wait for each other, nor do those that take long."""
    monkeypatch.setattr(rules, "NEW_STARTS_MAX", 1)
    monkeypatch.setattr(rules, "SLOW_S", slow_s)
    table = Table(1_000)
    for _ in range(100):
        seat = table.seat("a")
        assert table.take(seat, 1) == 1
        seat.end(table.held[seat].pop(), answered=True)
    refusing = [table.seat("a") for _ in range(2)]
    assert table.take(refusing[0], 1) == 1
    refusing[0].end(table.held[refusing[0]].pop(), answered=False)
    assert table.take(refusing[1], 1) == 0
    table.close()


async def test_a_slot_on_which_no_request_is_made_counts_as_no_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "NEW_STARTS_MAX", 1)
    table = Table(1_000)
    for _ in range(100):
        idle = table.seat("a")
        assert idle.take(1) == 1
        idle.give_back(1)
    table.close()
