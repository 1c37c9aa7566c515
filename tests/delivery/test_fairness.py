"""Receivers that are not well, and what that costs others."""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core.types import BROKER, Draft, Listener, Queue, Tenant
from tests.delivery import receiver as answers
from tests.delivery.inside import Inside, both_stores, run_inside, until
from tests.delivery.receiver import Receiver

HANGING = 60
# Much less than the ten seconds that a request may take.
SOON_S = 3.0


@pytest.fixture(autouse=True)
def hanging_requests_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("courier.delivery.line.STOP_WAIT_S", 0.1)


async def other_queue(inside: Inside, *, tenant: Tenant) -> Queue:
    queue = replace(inside.queue, id=ids.new_id(), tenant=tenant.id, name=ids.new_id())
    await inside.change(queue)
    return queue


async def hang_all(inside: Inside, receiver: Receiver) -> None:
    """As many requests hang as may; more wait."""
    for _ in range(HANGING):
        await inside.listen(receiver.url("/hang"), liveness_url=receiver.url("/live"))
    await inside.publish(*"abcde")

    async def full() -> bool:
        return inside.slots.waiting > 0 and receiver.in_flight("/hang") == inside.slots.used

    await until(full, "there are slots for all of them")


async def soon(inside: Inside, receiver: Receiver, queue: Queue, listener: Listener) -> None:
    """All messages of the queue arrive."""
    began_s = time.monotonic()
    drafts = [Draft(str(number).encode()) for number in range(30)]
    await inside.broker.publish(queue, drafts, actor=BROKER)
    path = listener.url.removeprefix(receiver.url(""))
    await asyncio.to_thread(receiver.wait, path, len(drafts))
    assert time.monotonic() - began_s < SOON_S


@both_stores
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("whose", ["same", "other"])
def test_listeners_that_hang_hold_up_no_other_queue(
    kind: str, whose: str, known: bool, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.on("/hang", answers.hang)

    async def main(inside: Inside) -> None:
        tenant = inside.tenant
        if whose == "other":
            tenant = replace(tenant, id=ids.new_id(), name="other", organization=ids.new_id())
            await inside.change(tenant)
        queue = await other_queue(inside, tenant=tenant)
        async with inside.running():
            if not known:
                await hang_all(inside, receiver)
            url = receiver.url("/well")
            listener = await inside.listen(url, tenant=tenant.id, parent=queue.id)
            if known:
                await inside.broker.publish(queue, [Draft(b"first")], actor=BROKER)
                await asyncio.to_thread(receiver.wait, "/well", 1)
                await hang_all(inside, receiver)
            await soon(inside, receiver, queue, listener)

    run_inside(kind, tmp_path, main, pushes_max=50)


@both_stores
def test_a_listener_that_refuses_some_gets_the_others_as_fast(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """Of a hundred at 50 ms each, three in ten are refused: ten at a time all the same."""
    refused = answers.late(0.05, answers.status(500, b"no"))
    taken = answers.late(0.05, answers.OK)
    receiver.on("/hook", *([taken] * 7 + [refused] * 3) * 10, taken)

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hook"), liveness_url=receiver.url("/live"))
        await inside.publish(*[str(number) for number in range(100)])
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/hook", 100)

    run_inside(kind, tmp_path, main)
    received = receiver.received("/hook")
    ends_s = [each.at_s for each in received[:100]]
    assert receiver.peak("/hook") == 10
    # One at a time would take five seconds.
    assert ends_s[-1] - ends_s[0] < 2.5


@both_stores
def test_a_new_listener_that_hangs_gets_one_request(
    kind: str, receiver: Receiver, tmp_path: Path
) -> None:
    """Until it has answered, nobody knows whether more would be answered."""
    receiver.on("/hang", answers.hang)

    async def main(inside: Inside) -> None:
        await inside.listen(receiver.url("/hang"), liveness_url=receiver.url("/live"))
        await inside.publish(*[str(number) for number in range(30)])
        async with inside.running():
            await asyncio.to_thread(receiver.wait, "/hang", 1)
            await asyncio.sleep(1)
            assert receiver.in_flight("/hang") == 1

    run_inside(kind, tmp_path, main)
