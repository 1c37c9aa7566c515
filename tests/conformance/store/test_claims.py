"""Messages that are leased together, under a name."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from courier.clock import ManualClock
from courier.core.errors import ClaimLost, NotFound
from courier.core.records import decided
from courier.core.types import (
    CLAIM_KNOWN_MS,
    DAY_MS,
    MINUTE_MS,
    Ack,
    Draft,
    Message,
    Outcome,
    Queue,
    Retry,
)
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.conftest import Opener
from tests.conformance.store.driver import CALLER, Driver, bodies

# More than a store does of what is due before the verb itself.
MANY = 2_500
STALL_S_MAX = 10.0


# --- claiming ---


def test_a_claim_leases_messages_by_sequence(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    assert driver.claim(queue, count=2) == 2
    messages = driver.claimed(queue)
    assert bodies(messages) == ["a", "b"]
    assert [message.attempts for message in messages] == [1, 1]
    assert driver.stats(queue).leased == 2
    assert bodies(driver.lease(queue)) == ["c"]


def test_a_name_that_is_asked_for_again_has_the_same_messages(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c", "d")
    assert driver.claim(queue, count=2) == 2
    before = driver.claimed(queue)
    assert driver.claim(queue, count=4) == 2
    assert driver.claimed(queue) == before
    assert driver.kinds().count("leased") == 2


def test_a_claim_of_more_than_there_is_takes_all(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    assert driver.claim(queue, count=1_000) == 2
    assert driver.lease(queue) == []


def test_where_there_is_nothing_no_claim_is_made(driver: Driver, queue: Queue) -> None:
    last = driver.last()
    assert driver.claim(queue) == 0
    with pytest.raises(NotFound):
        driver.claimed(queue)
    assert driver.last() == last
    driver.publish(queue, "a")
    assert driver.claim(queue) == 1


def test_a_claim_of_no_messages_only_looks(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    assert driver.claim(queue, count=0) == 0
    assert driver.claim(queue, count=1) == 1
    assert driver.claim(queue, count=0) == 1


def test_claims_of_different_names_share_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    assert driver.claim(queue, "left", count=2) == 2
    assert driver.claim(queue, "right", count=2) == 1
    assert bodies(driver.claimed(queue, "left")) == ["a", "b"]
    assert bodies(driver.claimed(queue, "right")) == ["c"]


def test_a_claim_belongs_to_its_queue(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(queue, "a")
    driver.publish(other, "b")
    driver.claim(queue)
    with pytest.raises(NotFound):
        driver.claimed(other)
    with pytest.raises(NotFound):
        driver.ack_claim(other)
    assert driver.claim(other) == 1
    assert bodies(driver.claimed(other)) == ["b"]
    driver.ack_claim(other)
    assert bodies(driver.claimed(queue)) == ["a"]


def test_a_claim_begins_with_what_was_handed_out_before(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", Draft(b"later", delay_ms=50), "c")
    _, b = driver.lease(queue, count=2)
    driver.retry(queue, b, delay_ms=0)
    driver.advance(50)
    assert driver.claim(queue, count=3) == 3
    found = driver.claimed(queue)
    assert bodies(found) == ["b", "later", "c"]
    assert [message.attempts for message in found] == [2, 1, 1]
    for first in range(4):
        assert driver.claimed(queue, first=first, count=2) == found[first : first + 2]


def test_a_claim_of_what_was_handed_out_before_can_be_extended(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b")
    driver.retry(queue, driver.lease_one(queue), delay_ms=0)
    driver.claim(queue, count=2, lease_ms=100)
    driver.extend_claim(queue, lease_ms=200)
    driver.advance(199)
    assert bodies(driver.claimed(queue)) == ["a", "b"]
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a", "b"]


def test_a_claim_on_a_queue_that_is_not_there_is_refused(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.claim(queue)
    driver.change(drops=[queue])
    verbs: list[Callable[[], Any]] = [
        lambda: driver.claim(queue),
        lambda: driver.claimed(queue),
        lambda: driver.extend_claim(queue, lease_ms=1),
        lambda: driver.ack_claim(queue),
    ]
    for verb in verbs:
        with pytest.raises(NotFound, match="queue"):
            verb()


# --- reading ---


def test_messages_of_a_claim_are_read_page_by_page(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcdefg")
    driver.claim(queue, count=6)
    assert bodies(driver.claimed(queue, first=0, count=4)) == ["a", "b", "c", "d"]
    assert bodies(driver.claimed(queue, first=4, count=4)) == ["e", "f"]
    assert driver.claimed(queue, first=6, count=4) == []
    assert driver.claimed(queue, first=1_000, count=4) == []


def test_what_was_claimed_after_a_refusal_is_seen(driver: Driver, queue: Queue) -> None:
    """Whoever still looks at the refusal holds up no later reader."""
    driver.publish(queue, "a", "b")
    driver.claim(queue, "done", count=1)
    driver.ack_claim(queue, "done")
    with pytest.raises(ClaimLost) as refusal:
        driver.claimed(queue, "done")
    driver.claim(queue, "next")
    assert bodies(driver.claimed(queue, "next")) == ["b"]
    assert refusal.value.name == "done"


def test_a_claimed_message_is_whole(driver: Driver, queue: Queue) -> None:
    draft = Draft(b"\x00\xff", "bytes", {"k": [1, None]}, id="mine", ttl_ms=5_000, group="g")
    driver.publish(queue, draft)
    published_ms = driver.now_ms
    driver.claim(queue)
    [message] = driver.claimed(queue)
    assert message == Message(
        seq=1,
        id="mine",
        published_ms=published_ms,
        body=b"\x00\xff",
        content_type="bytes",
        headers={"k": [1, None]},
        group="g",
        expires_ms=published_ms + 5_000,
        attempts=1,
    )


# --- the end of a claim ---


def test_an_acknowledged_claim_is_done_with_all_of_its_messages(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c")
    driver.claim(queue, count=2)
    driver.ack_claim(queue)
    assert driver.stats(queue).count == 1
    driver.advance(2_000)
    assert bodies(driver.peek(queue)) == ["c"]


def test_a_claim_is_acknowledged_once(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    driver.claim(queue, count=2)
    driver.ack_claim(queue)
    last = driver.last()
    driver.ack_claim(queue)
    assert driver.claim(queue, count=2) == 2
    assert driver.last() == last
    assert driver.stats(queue).count == 1


def test_an_acknowledged_claim_has_nothing_to_read_or_extend(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.claim(queue)
    driver.ack_claim(queue)
    with pytest.raises(ClaimLost):
        driver.claimed(queue)
    with pytest.raises(ClaimLost):
        driver.extend_claim(queue, lease_ms=1_000)


def test_a_name_that_nobody_claimed_is_unknown(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    with pytest.raises(NotFound, match="claim 'batch'"):
        driver.claimed(queue)
    with pytest.raises(NotFound, match="claim 'batch'"):
        driver.extend_claim(queue, lease_ms=1_000)
    with pytest.raises(NotFound, match="claim 'batch'"):
        driver.ack_claim(queue)


def lost(driver: Driver, queue: Queue) -> bool:
    """Whether every verb says so."""
    verbs: list[Callable[[], Any]] = [
        lambda: driver.claim(queue),
        lambda: driver.claimed(queue),
        lambda: driver.extend_claim(queue, lease_ms=1_000),
        lambda: driver.ack_claim(queue),
    ]
    refused = 0
    for verb in verbs:
        try:
            verb()
        except ClaimLost:
            refused += 1
    assert refused in (0, len(verbs))
    return refused > 0


def test_a_claim_is_lost_exactly_when_its_lease_ends(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    driver.claim(queue, lease_ms=100)
    driver.advance(99)
    assert bodies(driver.claimed(queue)) == ["a", "b"]
    driver.advance(1)
    assert lost(driver, queue)
    assert bodies(driver.lease(queue)) == ["a", "b"]
    assert lost(driver, queue)


def test_a_claim_that_is_extended_lasts_as_long_as_was_said_last(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b")
    driver.claim(queue, lease_ms=100)
    driver.advance(99)
    driver.extend_claim(queue, lease_ms=500)
    driver.advance(499)
    assert bodies(driver.claimed(queue)) == ["a", "b"]
    driver.extend_claim(queue, lease_ms=10)
    driver.advance(10)
    assert lost(driver, queue)


@pytest.mark.parametrize("how", ["ack", "retry", "remove", "purge", "expiry"])
def test_a_claim_is_lost_with_one_of_its_messages(driver: Driver, queue: Queue, how: str) -> None:
    driver.publish(queue, "a", Draft(b"b", ttl_ms=500), "c")
    driver.claim(queue, lease_ms=1_000)
    a, _, _ = driver.claimed(queue)
    if how == "ack":
        assert driver.ack(queue, a) is Outcome.DONE
    elif how == "retry":
        driver.retry(queue, a, delay_ms=0)
    elif how == "remove":
        driver.remove(queue, 2)
    elif how == "purge":
        driver.purge(queue, upto_seq=1)
    else:
        driver.advance(500)
    assert lost(driver, queue)


def test_what_is_left_of_a_lost_claim_comes_back_when_its_lease_ends(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c")
    driver.claim(queue, lease_ms=1_000)
    driver.remove(queue, 2)
    assert driver.lease(queue) == []
    driver.advance(1_000)
    messages = driver.lease(queue)
    assert bodies(messages) == ["a", "c"]
    assert [message.attempts for message in messages] == [2, 2]


def test_a_lost_claim_is_not_found_again_in_later_leases(driver: Driver, queue: Queue) -> None:
    """Even when they are of the same messages at the same moment."""
    driver.publish(queue, "a", "b")
    driver.claim(queue, lease_ms=1_000)
    a, _ = driver.claimed(queue)
    driver.retry(queue, a, delay_ms=0)
    driver.lease(queue, lease_ms=1_000)
    assert lost(driver, queue)
    driver.advance(1_000)
    assert driver.claim(queue, "next") == 2
    assert lost(driver, queue)
    driver.ack_claim(queue, "next")


def test_settlements_of_other_leases_leave_a_claim_alone(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    a = driver.lease_one(queue)
    driver.claim(queue, count=1)
    [b] = driver.claimed(queue)
    assert driver.settle(queue, Ack(b.seq, b.attempts + 1), Retry(b.seq, 0)) == [Outcome.GONE] * 2
    driver.ack(queue, a)
    assert bodies(driver.claimed(queue)) == ["b"]


def test_an_extended_lease_of_its_own_keeps_a_message_in_the_claim(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    driver.claim(queue, lease_ms=100)
    [a] = driver.claimed(queue)
    driver.extend(queue, a, lease_ms=500)
    driver.advance(499)
    assert driver.claimed(queue) == [a]
    driver.advance(1)
    assert lost(driver, queue)


def test_a_claim_whose_lease_ends_for_the_last_time_is_buried(driver: Driver) -> None:
    dead = driver.queue("dead")
    queue = driver.queue("work", attempts_max=2, dead_letter=dead.id)
    driver.publish(queue, "a", "b")
    driver.claim(queue, "first", lease_ms=100)
    driver.advance(100)
    driver.claim(queue, "second", lease_ms=100)
    driver.advance(100)
    with pytest.raises(ClaimLost):
        driver.ack_claim(queue, "second")
    assert driver.stats(queue).count == 0
    assert bodies(driver.peek(dead)) == ["a", "b"]


def test_a_long_claim_is_lost_though_the_sweep_is_not_through(driver: Driver, queue: Queue) -> None:
    for _ in range(MANY // 500):
        driver.publish(queue, *(["x"] * 500))
    driver.lease(queue, count=MANY - 10, lease_ms=100)
    driver.claim(queue, count=10, lease_ms=100)
    driver.advance(100)
    assert lost(driver, queue)


def test_a_claim_is_lost_with_its_expired_messages_though_the_sweep_is_not_through(
    driver: Driver,
) -> None:
    queue = driver.queue(retention_ms=500)
    for _ in range(MANY // 500):
        driver.publish(queue, *(["x"] * 500))
    driver.lease(queue, count=MANY - 10, lease_ms=DAY_MS)
    driver.claim(queue, count=10, lease_ms=DAY_MS)
    driver.advance(500)
    assert lost(driver, queue)


# --- groups ---


def test_a_claim_takes_groups_in_order(driver: Driver) -> None:
    queue = driver.queue("fifo", fifo=True)
    drafts = [Draft(name.encode(), group=name[0]) for name in ("a1", "b1", "a2", "c1", "b2")]
    driver.publish(queue, *drafts)
    assert driver.claim(queue, "first", count=3) == 3
    assert bodies(driver.claimed(queue, "first")) == ["a1", "b1", "a2"]
    assert driver.claim(queue, "second", count=3) == 1
    assert bodies(driver.claimed(queue, "second")) == ["c1"]
    driver.ack_claim(queue, "first")
    assert bodies(driver.lease(queue)) == ["b2"]


def test_a_lost_claim_lets_its_groups_go_one_after_the_other(driver: Driver) -> None:
    queue = driver.queue("fifo", fifo=True)
    driver.publish(queue, *(Draft(name.encode(), group=name[0]) for name in ("a1", "b1", "a2")))
    driver.claim(queue, lease_ms=100)
    driver.remove(queue, 2)
    assert driver.lease(queue) == []
    driver.advance(100)
    assert bodies(driver.lease(queue)) == ["a1", "a2"]


# --- journal, listeners and time ---


def test_the_journal_tells_of_every_message_of_a_claim(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"bb", id="mine"))
    last = driver.last()
    driver.claim(queue, lease_ms=100)
    driver.advance(5)
    driver.extend_claim(queue, lease_ms=300)
    driver.ack_claim(queue)
    told = [
        (e["kind"], e["seq"], e["attempt"], e["size"], e.get("lease_ms"), e["message_id"] == "mine")
        for e in driver.events(after=last)
    ]
    assert told == [
        ("leased", 1, 1, 1, 100, False),
        ("leased", 2, 1, 2, 100, True),
        ("extended", 1, 1, 1, 300, False),
        ("extended", 2, 1, 2, 300, True),
        ("acked", 1, 1, 1, None, False),
        ("acked", 2, 1, 2, None, True),
    ]
    assert {e["actor"] for e in driver.events(after=last)} == {CALLER.id}


def test_a_message_that_listeners_still_need_outlives_its_claim(
    driver: Driver, queue: Queue
) -> None:
    driver.listener(queue)
    driver.publish(queue, "a")
    driver.claim(queue)
    driver.ack_claim(queue)
    assert driver.stats(queue).count == 0
    assert bodies(driver.browse(queue, kept=True)) == ["a"]


@pytest.mark.parametrize("end", ["ack", "loss"])
def test_a_claim_is_forgotten_a_day_after_its_end(driver: Driver, queue: Queue, end: str) -> None:
    driver.publish(queue, "a", "b")
    driver.claim(queue, count=1, lease_ms=1_000)
    if end == "ack":
        driver.ack_claim(queue)
    else:
        driver.advance(1_000)
    driver.advance(DAY_MS - 1)
    if end == "ack":
        driver.ack_claim(queue)
    else:
        assert lost(driver, queue)
    driver.advance(1)
    with pytest.raises(NotFound):
        driver.ack_claim(queue)
    assert driver.claim(queue, lease_ms=1_000) > 0
    assert driver.claimed(queue)[-1].body == b"b"


def test_a_claim_of_a_row_is_known_until_the_next_is_acknowledged(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c")
    driver.claim(queue, "one", count=1)
    driver.ack_claim(queue, "one", after="")
    driver.advance(100 * DAY_MS)
    driver.sweep_all()
    driver.publish(queue, "d", "e")
    driver.claim(queue, "two", count=1)
    for _ in range(2):
        driver.ack_claim(queue, "one", after="")
    driver.ack_claim(queue, "two", after="one")
    with pytest.raises(NotFound):
        driver.ack_claim(queue, "one", after="")
    for after in ("one", "two", "", None):
        driver.ack_claim(queue, "two", after=after)
    driver.advance(CLAIM_KNOWN_MS - 1)
    driver.ack_claim(queue, "two", after="one")
    driver.advance(1)
    with pytest.raises(NotFound):
        driver.ack_claim(queue, "two", after="one")


def test_a_claim_that_was_not_acknowledged_is_not_forgotten_with_the_next(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c")
    driver.claim(queue, "one", count=1, lease_ms=100)
    driver.claim(queue, "two", count=1, lease_ms=1_000)
    driver.claim(queue, "three", count=1, lease_ms=1_000)
    driver.advance(100)
    driver.ack_claim(queue, "two", after="one")
    with pytest.raises(ClaimLost):
        driver.ack_claim(queue, "one", after="")
    with pytest.raises(ClaimLost):
        driver.ack_claim(queue, "one", after="two")
    driver.ack_claim(queue, "two", after="one")
    driver.ack_claim(queue, "three", after="nobody")
    driver.advance(2 * DAY_MS)
    with pytest.raises(NotFound):
        driver.ack_claim(queue, "one", after="")


def test_the_sweep_forgets_old_claims_up_to_its_limit(tmp_path: Path, clock: ManualClock) -> None:
    async def story() -> list[int]:
        store = await EmbeddedStore.open(tmp_path / "old.db")
        queue = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
        now_ms = clock.now_ms()
        await store.change(decided(puts=[queue]), actor=CALLER, now_ms=now_ms)
        for number in range(5):
            await store.publish([(queue.id, [Draft(b"a")])], actor=CALLER, now_ms=now_ms)
            await store.claims.take(
                queue.id, f"{number}", count=1, lease_ms=9, actor=CALLER, now_ms=now_ms
            )
            await store.claims.ack(queue.id, f"{number}", actor=CALLER, now_ms=now_ms)
        left = []
        for _ in range(4):
            await store.sweep(limit=2, now_ms=now_ms + DAY_MS + MINUTE_MS)
            left.append(store.disk.db.execute("SELECT count(*) FROM fact WHERE kind = 'claim'").get)
        await store.close()
        return left

    assert asyncio.run(story()) == [3, 1, 0, 0]


def test_a_claim_of_which_one_message_is_extended_alone_still_stands(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c")
    assert driver.claim(queue, count=3) == 3
    _, b, _ = driver.claimed(queue)
    driver.extend(queue, b, lease_ms=2_000)
    assert bodies(driver.claimed(queue)) == ["a", "b", "c"]
    driver.ack_claim(queue)
    assert driver.stats(queue).count == 0


# --- many ---


@pytest.mark.one_node
def test_nobody_else_gets_a_message_of_a_claim(driver: Driver, queue: Queue) -> None:
    for _ in range(4):
        driver.publish(queue, *(str(number) for number in range(250)))
    store, now_ms = driver.store, driver.now_ms

    async def claim(name: str) -> list[int]:
        for _ in range(2):
            await store.claims.take(
                queue.id, name, count=90, lease_ms=1_000, actor=CALLER, now_ms=now_ms
            )
        found = await store.claims.messages(queue.id, name, first=0, count=90, now_ms=now_ms)
        return [message.seq for message in found]

    async def lease() -> list[int]:
        leased = await store.lease(queue.id, count=50, lease_ms=1_000, actor=CALLER, now_ms=now_ms)
        return [message.seq for message in leased.messages]

    async def all_at_once() -> list[list[int]]:
        takers = [taker for n in range(10) for taker in (claim(f"{n % 7}"), lease())]
        return await asyncio.gather(*takers)

    answers = driver.run(all_at_once())
    claims, leases = answers[0::2], answers[1::2]
    assert claims[0] == claims[7] and claims[2] == claims[9]
    seqs = [seq for taken in (*claims[:7], *leases) for seq in taken]
    assert len(seqs) == len(set(seqs)) == 1_000


def test_fifty_thousand_messages_are_claimed_and_acknowledged_in_one_go(
    tmp_path: Path, clock: ManualClock, opener: Opener
) -> None:
    """Everybody waits for the writer meanwhile, so it must be over soon."""

    async def story() -> tuple[int, list[float]]:
        store = await opener(tmp_path / "many.db")
        queue = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
        now_ms = clock.now_ms()
        await store.change(decided(puts=[queue]), actor=CALLER, now_ms=now_ms)
        drafts = [Draft(b"x" * 200)] * 5_000
        for _ in range(10):
            await store.publish([(queue.id, drafts)], actor=CALLER, now_ms=now_ms)
        times_s = [time.perf_counter()]
        count = await store.claims.take(
            queue.id, "many", count=50_000, lease_ms=1_000, actor=CALLER, now_ms=now_ms
        )
        times_s.append(time.perf_counter())
        await store.claims.extend(queue.id, "many", lease_ms=900, actor=CALLER, now_ms=now_ms)
        times_s.append(time.perf_counter())
        await store.claims.ack(queue.id, "many", actor=CALLER, now_ms=now_ms)
        times_s.append(time.perf_counter())
        assert (await store.stats([queue.id], now_ms=now_ms))[queue.id].count == 0
        await store.close()
        return count, [high - low for low, high in pairwise(times_s)]

    count, took_s = asyncio.run(story())
    assert count == 50_000
    assert max(took_s) < STALL_S_MAX


def test_a_claim_and_a_lease_of_one_moment_stay_apart(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    store, now_ms = driver.store, driver.now_ms

    async def both() -> list[Message]:
        lease = store.lease(queue.id, count=1, lease_ms=1_000, actor=CALLER, now_ms=now_ms)
        claim = store.claims.take(
            queue.id, "batch", count=1, lease_ms=1_000, actor=CALLER, now_ms=now_ms
        )
        leased, total = await asyncio.gather(lease, claim)
        assert total == 1
        return leased.messages

    [message] = driver.run(both())
    [claimed] = driver.claimed(queue)
    assert {message.body, claimed.body} == {b"a", b"b"}
    assert driver.ack(queue, message) == Outcome.DONE
    driver.ack_claim(queue)
    assert driver.stats(queue).count == 0
