"""Bytes of bodies on their way to receivers: a bound for all, and room for everybody."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.limits import Allowance
from courier.core.types import BROKER, Draft, Tenant
from courier.delivery.room import SMALL_BYTES, PushRoom, RoomShare
from tests.delivery import receiver as answers
from tests.delivery.inside import Inside, both_stores, run_inside, until
from tests.delivery.receiver import Receiver

MIB = 1 << 20


class Crowd:
    """Shares of a room, each with what it has on its way."""

    def __init__(self, bytes_max: int) -> None:
        self.room = PushRoom(bytes_max)
        self.woken: list[str] = []

    def share(self, name: str, *, queue: str = "") -> RoomShare:
        tenant = name.partition(" ")[0]
        wake: Callable[[], None] = lambda: self.woken.append(name)  # noqa: E731
        return self.room.share(tenant=tenant, queue=queue or name, wake=wake)

    def take(self, share: RoomShare, *sizes: int, slots: int = 100) -> list[int]:
        """What is let in of messages of these sizes."""
        allowance = share.allowance(slots, 1 << 40)
        taken = [*sizes[: allowance.fitting(sizes)]]
        share.taken(allowance, taken)
        return taken


def test_one_tenant_gets_three_quarters_and_the_next_of_the_rest() -> None:
    crowd = Crowd(16 * MIB)
    one, two = crowd.share("one", queue="q"), crowd.share("two", queue="q")
    # One queue gets three quarters of its tenant's part.
    assert crowd.take(one, *[MIB] * 20) == [MIB] * 9
    assert crowd.take(crowd.share("one", queue="other"), *[MIB] * 20) == [MIB] * 2
    assert crowd.take(two, *[MIB] * 20) == [MIB] * 2
    assert crowd.room.held == 13 * MIB


def test_small_bodies_with_a_slot_always_go() -> None:
    crowd = Crowd(MIB)
    assert crowd.take(crowd.share("huge"), 10 * MIB, MIB) == [10 * MIB], "alone, and longer"
    small = crowd.share("small")
    assert crowd.take(small, *[SMALL_BYTES] * 4, slots=3) == [SMALL_BYTES] * 3
    assert crowd.take(small, SMALL_BYTES + 1) == []
    assert crowd.room.held == 10 * MIB + 3 * SMALL_BYTES


def test_who_has_nothing_gets_the_next_room() -> None:
    crowd = Crowd(16 * MIB)
    greedy, modest = crowd.share("greedy"), crowd.share("modest")
    assert crowd.take(greedy, 8 * MIB, MIB) == [8 * MIB, MIB]
    assert crowd.take(modest, 10 * MIB) == []
    greedy.release(MIB)
    assert crowd.woken == []
    assert crowd.take(greedy, MIB) == [], "the other has waited for longer"
    greedy.release(8 * MIB)
    assert crowd.woken[0] == "modest"
    assert crowd.take(modest, 10 * MIB) == [10 * MIB]
    assert crowd.take(greedy, MIB) == [MIB]


def test_who_waits_and_leaves_holds_up_nobody() -> None:
    crowd = Crowd(16 * MIB)
    greedy, gone = crowd.share("greedy"), crowd.share("gone")
    assert crowd.take(greedy, 8 * MIB) and not crowd.take(gone, 15 * MIB)
    assert crowd.take(greedy, MIB) == []
    gone.close()
    assert crowd.woken == ["greedy"]
    assert crowd.take(greedy, MIB) == [MIB]


def test_what_is_let_in_and_not_taken_is_for_others() -> None:
    crowd = Crowd(16 * MIB)
    one = crowd.share("one")
    allowance = one.allowance(10, 1 << 40)
    assert allowance.fitting([4 * MIB, 4 * MIB]) == 2
    one.taken(allowance, [])
    assert crowd.room.held == 0


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_nobody_waits_for_ever(seed: int) -> None:
    luck = random.Random(seed)
    crowd = Crowd(16 * MIB)
    shares = {f"{tenant} {n}": crowd.share(f"{tenant} {n}") for tenant in "abc" for n in range(3)}
    held: list[tuple[RoomShare, int]] = []
    wants = dict.fromkeys(shares, 0)
    for _ in range(2_000):
        name = luck.choice([*shares])
        if luck.random() < 0.6 and name not in _waiting(crowd):
            size = luck.choice([1, SMALL_BYTES, MIB, 5 * MIB, 20 * MIB])
            taken = crowd.take(shares[name], size, slots=1)
            held += [(shares[name], size) for size in taken]
            wants[name] = 0 if taken else size
        elif held:
            share, size = held.pop(luck.randrange(len(held)))
            share.release(size)
        for woken in crowd.woken:
            taken = crowd.take(shares[woken], wants[woken], slots=1)
            held += [(shares[woken], each) for each in taken]
        crowd.woken.clear()
        assert crowd.room.held == sum(size for _, size in held)
        large = [size for _, size in held if size > SMALL_BYTES]
        assert sum(large) <= 16 * MIB or len(large) == 1
    while held:
        share, size = held.pop()
        share.release(size)
        while crowd.woken:
            name = crowd.woken.pop()
            held += [(shares[name], each) for each in crowd.take(shares[name], wants[name])]
    assert crowd.room.held == 0 and not _waiting(crowd)
    for share in shares.values():
        share.close()
    assert not crowd.room._tenants


def _waiting(crowd: Crowd) -> list[str]:
    holders = crowd.room._tenants.values()
    return [f"{share.queue}" for holder in holders for share in holder.waiting]


@both_stores
def test_an_allowance_cuts_what_a_listener_takes(kind: str, tmp_path: Path) -> None:
    async def main(inside: Inside) -> None:
        listener = await inside.listen("http://127.0.0.1:9/")
        await inside.publish(*["x" * 100_000] * 5)
        take = inside.store.pushes.take

        async def sizes(allowance: Allowance | None) -> list[int]:
            now_ms = inside.clock.now_ms()
            found = await take(
                listener.id, count=9, lease_ms=1_000, now_ms=now_ms, allowance=allowance
            )
            return [len(message.body) for message in found]

        assert await sizes(Allowance(250_000)) == [100_000] * 2
        await inside.pass_time(1_000)
        # Those that were taken before, and then fresh ones.
        inside.clock.advance(60_000)
        assert await sizes(Allowance(1)) == [100_000]
        assert await sizes(Allowance(250_000)) == [100_000] * 2
        assert await sizes(None) == [100_000] * 2

    run_inside(kind, tmp_path, main)


@both_stores
def test_bodies_on_their_way_are_bounded_and_small_ones_of_others_go(
    kind: str, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.delivery.line.STOP_WAIT_S", 0.1)
    receiver.on("/hang", answers.hang)

    async def main(inside: Inside) -> None:
        other: Tenant = replace(
            inside.tenant, id=ids.new_id(), name="other", organization=ids.new_id()
        )
        queue = replace(inside.queue, id=ids.new_id(), tenant=other.id, name="small")
        await inside.change(other, queue)
        live = receiver.url("/live")
        for _ in range(12):
            await inside.listen(receiver.url("/hang"), liveness_url=live)
        await inside.listen(receiver.url("/well"), tenant=other.id, parent=queue.id)
        await inside.publish(*["x" * MIB] * 4)
        async with inside.running():

            async def full() -> bool:
                return inside.room.held >= 4 * MIB

            await until(full, "there was room for all of them")
            for number in range(20):
                draft = Draft(str(number).encode() * 1_000)
                await inside.broker.publish(queue, [draft], actor=BROKER)
            await asyncio.to_thread(receiver.wait, "/well", 20)
            assert inside.room.held <= 8 * MIB + inside.slots.used * SMALL_BYTES
            assert receiver.in_flight("/hang") < 8
        assert inside.room.held == 0

    run_inside(kind, tmp_path, main, pushes_bytes_max=8 * MIB)
