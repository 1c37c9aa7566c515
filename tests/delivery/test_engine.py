"""The engine itself, with time in the test's hands."""

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier.core.types import DAY_MS, HOUR_MS, Liveness
from courier.delivery import pace
from tests.delivery import receiver as answers
from tests.delivery.inside import Inside, both_stores, run_inside, until
from tests.delivery.receiver import Receiver, closed_port

SEEN_S = 1.0
# A new listener gets one request, then two, four, eight, ten at a time, if it is quick more ahead.
KNOWN_AFTER = 1 + 2 + 4 + 8 + 1


@pytest.fixture(autouse=True)
def no_bugs_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    bugs = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not bugs, [record.getMessage() for record in bugs]


@both_stores
def test_a_push_that_never_succeeds_is_attempted_eleven_times_over_28_hours(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.on("/hook", answers.status(500))

    async def main(inside: Inside) -> list[int]:
        await inside.listen(receiver.url("/hook"), liveness_url=receiver.url("/live"))
        await inside.publish("hello")
        waits: list[int] = []
        async with inside.running():
            for attempt in range(1, pace.ATTEMPTS_MAX + 1):
                await asyncio.to_thread(receiver.wait, "/hook", attempt)
                wanted = "exhausted" if attempt == pace.ATTEMPTS_MAX else "retrying"

                async def noted(attempt: int = attempt, wanted: str = wanted) -> bool:
                    push = await inside.push()
                    return (push.attempts, push.status) == (attempt, wanted)

                await until(noted, f"attempt {attempt} is not noted")
                push = await inside.push()
                if push.due_ms is not None:
                    wait_ms = push.due_ms - inside.clock.now_ms()
                    waits.append(wait_ms)
                    await inside.pass_time(wait_ms - 1)
                    assert (await inside.push()).status == "retrying"
                    await inside.pass_time(1)
            await inside.pass_time(5 * DAY_MS)
        return waits

    waits = run_inside(kind, tmp_path, main)
    assert len(waits) == pace.ATTEMPTS_MAX - 1
    for wait_ms, usual_ms in zip(waits, pace.DELAYS_MS, strict=True):
        assert 0.8 * usual_ms <= wait_ms <= 1.2 * usual_ms
    assert waits != list(pace.DELAYS_MS), "there is no luck in it"
    requests = receiver.received("/hook")
    assert [each.headers["x-attempt"] for each in requests] == [str(n) for n in range(1, 12)]
    assert len({each.headers["webhook-id"] for each in requests}) == 1
    assert {each.body for each in requests} == {b"hello"}


@both_stores
@pytest.mark.parametrize(
    ("value", "waits_ms"), [("600", 600_000), ("7200", HOUR_MS), ("86400000", HOUR_MS)]
)
def test_a_receiver_may_ask_for_time_and_gets_an_hour_at_most(
    kind: str, value: str, waits_ms: int, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.on("/hook", answers.retry_after(value, 429), answers.OK)

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"))
        await inside.publish("hello")
        async with inside.running():

            async def retrying() -> bool:
                return (await inside.push()).status == "retrying"

            await until(retrying, "the failure is not noted")
            assert (await inside.push()).due_ms == inside.clock.now_ms() + waits_ms
            await inside.pass_time(waits_ms)
            await asyncio.to_thread(receiver.wait, "/hook", 2)

    run_inside(kind, tmp_path, main)


@pytest.mark.parametrize("code", [500, 404, 502])
def test_only_429_and_503_may_ask_for_time(code: int, receiver: Receiver, tmp_path: Path) -> None:
    receiver.on("/hook", answers.retry_after("600", code))

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"))
        await inside.publish("hello")
        async with inside.running():

            async def retrying() -> bool:
                return (await inside.push()).status == "retrying"

            await until(retrying, "the failure is not noted")
            due_ms = (await inside.push()).due_ms
            assert due_ms is not None and due_ms <= inside.clock.now_ms() + 6_000

    run_inside("memory", tmp_path, main)


@both_stores
def test_an_engine_that_has_nothing_to_do_does_nothing(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    async def main(inside: Inside) -> float:
        for number in range(20):
            await inside.listen(receiver.url(f"/{number}"))
        await inside.publish("hello")
        async with inside.running():
            for number in range(20):
                await asyncio.to_thread(receiver.wait, f"/{number}", 1)
            began_s = time.thread_time()
            await asyncio.sleep(SEEN_S)
            return time.thread_time() - began_s

    assert run_inside(kind, tmp_path, main) < 0.1 * SEEN_S


@both_stores
def test_a_line_is_not_forgotten_when_another_takes_the_word_for_it(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """One request at a time for all: three lines wait for it, and two have no use for it."""
    held = receiver.hold("/busy")

    async def main(inside: Inside) -> None:
        busy = await inside.listen(receiver.url("/busy"))
        async with inside.running():
            await inside.publish("one")
            await asyncio.to_thread(receiver.wait, "/busy", 1)
            first = await inside.listen(receiver.url("/first"))
            second = await inside.listen(receiver.url("/second"))
            await inside.listen(receiver.url("/third"))
            await inside.publish("two")

            async def hungry() -> bool:
                return inside.slots.waiting == 3

            await until(hungry, "nobody waits")
            others = (busy, first, second)
            await inside.change(*[replace(each, disabled_by="user") for each in others])
            held.let_go()
            await asyncio.to_thread(receiver.wait, "/third", 1)

    run_inside(kind, tmp_path, main, pushes_max=1)


@both_stores
def test_no_more_requests_are_made_at_a_time_than_the_engine_may(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    places = [f"/{number}" for number in range(4)]
    holds = [receiver.hold(place) for place in places]

    async def main(inside: Inside) -> list[int]:
        for place in places:
            await inside.listen(receiver.url(place))
        await inside.publish(*[str(number) for number in range(20)])
        seen: list[int] = []
        async with inside.running():
            while sum(len(receiver.received(place)) for place in places) < 80:
                for held in holds:
                    held.let_go(2)
                seen.append(inside.pushes.in_flight)
                seen.append(sum(receiver.in_flight(place) for place in places))
                await asyncio.sleep(0.01)
            for held in holds:
                held.let_go(100)
        return seen

    seen = run_inside(kind, tmp_path, main, pushes_max=7)
    assert 2 <= max(seen) <= 5, "a quarter is kept for other tenants"


@both_stores
def test_requests_on_their_way_may_end_when_the_server_stops(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.on("/hook", answers.late(0.5, answers.OK))

    async def main(inside: Inside) -> str:
        await inside.listen(receiver.url("/hook"))
        await inside.publish("hello")
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/hook", 1)
        return (await inside.push()).status

    assert run_inside(kind, tmp_path, main) == "acknowledged"


@both_stores
def test_a_request_that_does_not_end_is_made_again_after_the_start(
    kind: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.delivery.line.STOP_WAIT_S", 0.2)
    receiver.on("/hook", answers.hang, answers.OK)

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"))
        await inside.publish("hello")
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/hook", 1)
        push = await inside.push()
        assert (push.status, push.attempts) == ("retrying", 1)
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/hook", 2)
        assert (await inside.push()).status == "acknowledged"

    run_inside(kind, tmp_path, main)


@both_stores
def test_a_server_that_stops_waits_for_a_store_that_does_not_answer_only_so_long(
    kind: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.delivery.line.STOP_WAIT_S", 0.1)
    monkeypatch.setattr("courier.delivery.runner.NOTE_WAIT_S", 0.1)

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"))
        asked = asyncio.Event()

        async def never(*_: object, **__: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(inside.store.pushes, "settle", never)
        async with asyncio.timeout(5), inside.running():
            await inside.publish("hello")
            await asked.wait()

    run_inside(kind, tmp_path, main)


@both_stores
def test_nothing_is_left_in_flight_however_the_engine_is_stopped(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """Also what was being taken from the store at that moment, and that costs no attempt."""
    count = 300

    async def main(inside: Inside) -> None:
        listener = await inside.listen(receiver.url("/hook"))
        await inside.publish(*[str(number) for number in range(count)])
        for number in range(1_000):
            async with inside.running():
                for _ in range(number):
                    await asyncio.sleep(0)
            now_ms = inside.clock.now_ms()
            stats = (await inside.store.pushes.stats([listener.id], now_ms=now_ms))[listener.id]
            assert stats.in_flight == 0
            if not stats.open:
                break
        assert (stats.acknowledged, stats.missed) == (count, 0)

    run_inside(kind, tmp_path, main)
    received = receiver.received("/hook")
    assert len(received) == count
    assert {each.headers["x-attempt"] for each in received} == {"1"}


@both_stores
def test_a_listener_that_falls_silent_is_probed_soon_though_it_was_idle_before(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """An idle listener is looked at ten times as seldom; one with messages waiting is not."""
    every_ms = 300

    async def main(inside: Inside) -> float:
        listener = await inside.listen(
            f"http://127.0.0.1:{closed_port()}/", liveness_url=receiver.url("/live")
        )
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/live", 1)
            await inside.publish(*"abcde")

            async def inactive() -> bool:
                known = inside.store.records.get(Liveness, listener.id)
                return known is not None and known.state == "inactive"

            await until(inactive, "it is not inactive")
            began_s = time.perf_counter()
            seen = len(receiver.received("/live"))
            await asyncio.to_thread(receiver.wait, "/live", seen + 1)
            return time.perf_counter() - began_s

    waited_s = run_inside(kind, tmp_path, main, liveness_every_ms=every_ms)
    assert waited_s < 3 * every_ms / 1000


@both_stores
def test_an_idle_listener_is_looked_at_ten_times_as_seldom(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"), liveness_url=receiver.url("/idle"))
        waits = await inside.listen(receiver.url("/hook"), liveness_url=receiver.url("/waits"))
        disabled = replace(waits, disabled_by="user")
        await inside.change(disabled)
        await inside.publish("hello")
        await inside.change(replace(disabled, disabled_by="", url=receiver.url("/broken")))
        receiver.on("/broken", answers.status(500))
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/waits", 15)

    run_inside(kind, tmp_path, main, liveness_every_ms=100)
    assert 1 <= len(receiver.received("/idle")) <= 4


@both_stores
def test_what_is_taken_ahead_is_never_more_than_ten_on_their_way_and_goes_back_untried(
    kind: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick listener hangs all at once: ten wait for it, and more were about to follow."""

    # However busy this machine is.
    monkeypatch.setattr(pace, "QUICK_MS", 60_000)
    count = pace.AHEAD_MAX + 100

    async def main(inside: Inside) -> None:
        listener = await inside.listen(receiver.url("/hook"))
        async with inside.running():
            await inside.publish(*["warm-up"] * KNOWN_AFTER)

            async def warm() -> bool:
                return (await inside.push(seq=KNOWN_AFTER)).status == "acknowledged"

            await until(warm, "the first ones do not arrive")
            held = receiver.hold("/hook")
            await inside.publish(*[str(number) for number in range(count)])
            await asyncio.to_thread(receiver.wait, "/hook", KNOWN_AFTER + 10)

            async def in_flight() -> int:
                now_ms = inside.clock.now_ms()
                stats = await inside.store.pushes.stats([listener.id], now_ms=now_ms)
                return stats[listener.id].in_flight

            async def ahead() -> bool:
                return await in_flight() >= 10 + pace.AHEAD_MIN

            await until(ahead, "nothing is taken ahead")
            assert await in_flight() <= 10 + pace.AHEAD_MAX
            assert receiver.in_flight("/hook") == 10
            await inside.change(replace(listener, disabled_by="user"))

            async def back() -> bool:
                return await in_flight() == 10

            await until(back, "what was taken ahead stays")
            untried = await inside.push(seq=KNOWN_AFTER + 14)
            assert (untried.status, untried.attempts) == ("pending", 0)
            held.let_go(10 * count)

            async def done() -> bool:
                return await in_flight() == 0

            await until(done, "the first ten stay")
            await inside.change(listener)
            await asyncio.to_thread(receiver.wait, "/hook", KNOWN_AFTER + count)

    run_inside(kind, tmp_path, main)
    received = receiver.received("/hook")
    assert receiver.peak("/hook") == 10
    assert len(received) == KNOWN_AFTER + count
    assert {each.headers["x-attempt"] for each in received} == {"1"}


@both_stores
def test_nothing_that_was_taken_ahead_is_sent_late(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """By then its lease may be about to end, and another attempt to begin."""

    async def main(inside: Inside) -> None:
        listener = await inside.listen(receiver.url("/hook"))
        async with inside.running():
            await inside.publish(*["warm-up"] * KNOWN_AFTER)
            await asyncio.to_thread(receiver.wait, "/hook", KNOWN_AFTER)
            held = receiver.hold("/hook")
            await inside.publish(*[str(number) for number in range(20)])
            await asyncio.to_thread(receiver.wait, "/hook", KNOWN_AFTER + 10)
            inside.clock.advance(6_000)
            held.let_go(100)
            await asyncio.to_thread(receiver.wait, "/hook", KNOWN_AFTER + 20)

            async def done() -> bool:
                now_ms = inside.clock.now_ms()
                stats = (await inside.store.pushes.stats([listener.id], now_ms=now_ms))[listener.id]
                return stats.acknowledged == KNOWN_AFTER + 20

            await until(done, "not all are acknowledged")
        last = await inside.push(seq=KNOWN_AFTER + 20)
        # Taken again after those six seconds.
        assert last.first_ms == inside.clock.now_ms()

    run_inside(kind, tmp_path, main)
    assert {each.headers["x-attempt"] for each in receiver.received("/hook")} == {"1"}
