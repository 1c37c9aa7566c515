import asyncio

import pytest

from courier.core.limits import Allowance, AnswerRoom
from courier.core.types import Draft, Outcome, Queue
from tests.conformance.store.driver import CALLER, Driver, bodies


def test_a_leased_message_is_hidden_until_its_lease_ends(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.lease(queue, lease_ms=100)
    assert driver.lease(queue) == []
    driver.advance(99)
    assert driver.lease(queue) == []
    assert driver.peek(queue) == []
    driver.advance(1)
    assert bodies(driver.peek(queue)) == ["a"]
    assert bodies(driver.lease(queue)) == ["a"]


def test_a_lease_says_until_when_it_holds_and_what_is_left(driver: Driver, queue: Queue) -> None:
    published_ms = driver.now_ms
    driver.publish(queue, "abc", "de")
    driver.advance(10)
    leased = driver.run(
        driver.store.lease(queue.id, count=1, lease_ms=70, actor=CALLER, now_ms=driver.now_ms)
    )
    assert leased.until_ms == driver.now_ms + 70
    assert bodies(leased.messages) == ["abc"]
    assert leased.stats == driver.stats(queue)
    assert (leased.stats.count, leased.stats.bytes, leased.stats.leased) == (2, 5, 1)
    assert leased.stats.oldest_ms == published_ms


def test_attempts_count_from_one_and_every_hand_out_counts(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    assert driver.peek(queue)[0].attempts == 0
    first = driver.lease_one(queue, lease_ms=10)
    driver.advance(10)
    second = driver.lease_one(queue, lease_ms=10)
    driver.retry(queue, second)
    third = driver.lease_one(queue)
    assert [first.attempts, second.attempts, third.attempts] == [1, 2, 3]
    assert first.seq == second.seq == third.seq
    assert first.id == second.id == third.id
    assert first.published_ms == third.published_ms


def test_at_most_count_messages_are_handed_out(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcdefg")
    assert bodies(driver.lease(queue, count=3)) == ["a", "b", "c"]
    assert driver.lease(queue, count=0) == []
    assert bodies(driver.lease(queue, count=3)) == ["d", "e", "f"]
    assert bodies(driver.lease(queue, count=3)) == ["g"]
    assert driver.lease(queue, count=3) == []


def test_leases_of_one_message_end_apart_from_each_other(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    driver.lease(queue, count=1, lease_ms=50)
    driver.lease(queue, count=1, lease_ms=20)
    driver.advance(20)
    assert bodies(driver.peek(queue)) == ["b"]
    driver.advance(30)
    assert bodies(driver.peek(queue)) == ["a", "b"]


def test_a_lease_of_no_length_counts_an_attempt_and_ends_at_once(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a")
    first = driver.lease_one(queue, lease_ms=0)
    second = driver.lease_one(queue, lease_ms=0)
    assert (first.attempts, second.attempts) == (1, 2)
    assert driver.ack(queue, second) is Outcome.LATE
    assert driver.stats(queue).leased == 0


def test_leases_of_no_length_use_up_the_attempts(driver: Driver) -> None:
    queue = driver.queue(attempts_max=2)
    driver.publish(queue, "a")
    driver.lease_one(queue, lease_ms=0)
    driver.lease_one(queue, lease_ms=0)
    assert driver.lease(queue, lease_ms=0) == []
    assert driver.stats(queue).count == 0


def test_one_call_hands_a_message_out_once_even_for_no_time(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b")
    assert bodies(driver.lease(queue, count=10, lease_ms=0)) == ["a", "b"]


@pytest.mark.parametrize("verb", ["lease", "peek", "stats", "sweep"])
def test_an_ended_lease_is_seen_by_whichever_verb_comes_first(
    driver: Driver, queue: Queue, verb: str
) -> None:
    driver.publish(queue, "a")
    driver.lease(queue, lease_ms=100)
    driver.advance(100)
    if verb == "lease":
        assert driver.lease_one(queue).attempts == 2
    elif verb == "peek":
        assert driver.peek(queue)[0].attempts == 1
    elif verb == "stats":
        assert driver.stats(queue).leased == 0
    else:
        assert driver.sweep().returned == 1


def test_a_peek_changes_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    before = driver.last()
    for _ in range(2):
        peeked = driver.peek(queue, count=2)
        assert bodies(peeked) == ["a", "b"]
        assert [message.attempts for message in peeked] == [0, 0]
    assert driver.last() == before
    assert driver.stats(queue).leased == 0
    assert [message.attempts for message in driver.lease(queue)] == [1, 1, 1]


def test_a_peek_shows_what_a_lease_would_hand_out(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c", "d")
    driver.lease(queue, count=2, lease_ms=10)
    driver.advance(10)
    peeked = driver.peek(queue, count=3)
    leased = driver.lease(queue, count=3)
    assert bodies(peeked) == bodies(leased) == ["a", "b", "c"]
    assert [message.attempts for message in peeked] == [1, 1, 0]
    assert [message.attempts for message in leased] == [2, 2, 1]


def test_a_message_is_found_whatever_its_state(driver: Driver, queue: Queue) -> None:
    [id] = driver.publish(queue, "a").ids
    found = driver.find(queue, id)
    assert found is not None
    assert found.attempts == 0
    leased = driver.lease_one(queue)
    assert driver.find(queue, id) == leased
    driver.retry(queue, leased, delay_ms=1_000)
    assert driver.find(queue, id) == leased
    driver.advance(1_000)
    driver.ack(queue, driver.lease_one(queue))
    assert driver.find(queue, id) is None


def test_no_more_is_handed_out_than_may_be_leased(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcdef")
    assert bodies(driver.lease(queue, count=2, leased_max=3)) == ["a", "b"]
    assert bodies(driver.lease(queue, count=2, leased_max=3)) == ["c"]
    assert driver.lease(queue, leased_max=3) == []
    assert driver.lease(queue, leased_max=2) == []
    assert driver.lease(queue, leased_max=0) == []
    assert driver.stats(queue).leased == 3
    assert bodies(driver.peek(queue)) == ["d", "e", "f"]
    assert bodies(driver.lease(queue, count=2)) == ["d", "e"]


def test_an_ended_lease_makes_room_for_another(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcd")
    a, b = driver.lease(queue, lease_ms=100, leased_max=2)
    driver.ack(queue, a)
    assert bodies(driver.lease(queue, lease_ms=500, leased_max=2)) == ["c"]
    driver.retry(queue, b, delay_ms=500)
    assert bodies(driver.lease(queue, lease_ms=500, leased_max=2)) == ["d"]
    driver.advance(499)
    assert driver.lease(queue, leased_max=2) == []
    driver.advance(1)
    assert bodies(driver.lease(queue, leased_max=2)) == ["b", "c"]


def test_what_is_leased_elsewhere_takes_no_room(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(other, "x", "y")
    driver.lease(other)
    driver.publish(queue, "a", "b")
    assert bodies(driver.lease(queue, leased_max=1)) == ["a"]


def test_a_paused_queue_is_the_brokers_business(driver: Driver) -> None:
    queue = driver.queue(paused=True, frozen=True)
    driver.publish(queue, "a")
    assert bodies(driver.lease(queue)) == ["a"]


def test_browsing_shows_messages_in_any_state_by_sequence(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "leased", Draft(b"delayed", delay_ms=500), "retried", "acked", "new")
    leased, retried, acked = driver.lease(queue, count=3)
    driver.retry(queue, retried, delay_ms=500)
    driver.ack(queue, acked)
    before = driver.last()
    found = driver.browse(queue)
    assert bodies(found) == ["leased", "delayed", "retried", "new"]
    assert [message.attempts for message in found] == [1, 0, 1, 0]
    assert found[0] == leased
    assert driver.last() == before


def test_browsing_goes_on_behind_a_sequence(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(other, "not here", Draft(b"nor here", delay_ms=10))
    driver.publish(queue, "a", Draft(b"b", delay_ms=10), "c", Draft(b"d", delay_ms=10), "e")
    seen: list[str] = []
    after_seq = 0
    while page := driver.browse(queue, after_seq=after_seq, limit=2):
        assert len(page) <= 2
        seen += bodies(page)
        after_seq = page[-1].seq
    assert seen == list("abcde")


def test_browsing_does_not_show_what_expired(driver: Driver) -> None:
    queue = driver.queue(retention_ms=100)
    driver.publish(queue, "a", Draft(b"b", ttl_ms=50))
    driver.advance(50)
    assert bodies(driver.browse(queue)) == ["a"]
    driver.advance(50)
    assert driver.browse(queue) == []


@pytest.mark.parametrize("verb", ["lease", "leased again", "peek", "browse", "claimed"])
@pytest.mark.parametrize("fifo", [False, True])
def test_an_answer_is_as_long_as_its_bytes_allow_but_never_empty(
    driver: Driver, verb: str, fifo: bool
) -> None:
    queue = driver.queue("q", fifo=fifo)
    for bytes_max, expected in (
        (3, ["aaaa"]),
        (5, ["aaaa"]),
        (8, ["aaaa", "bb", "cc"]),
        (11, ["aaaa", "bb", "cc"]),
        (100, ["aaaa", "bb", "cc", "dddd", "e"]),
    ):
        driver.purge(queue, upto_seq=driver.tail(queue))
        driver.publish(queue, "aaaa", "bb")
        driver.publish(queue, "cc", "dddd", "e")
        first = driver.tail(queue) - 5
        if verb == "claimed":
            driver.claim(queue, str(bytes_max))
            found = driver.claimed(queue, str(bytes_max), bytes_max=bytes_max)
        elif verb == "peek":
            found = driver.peek(queue, bytes_max=bytes_max)
        elif verb == "browse":
            found = driver.browse(queue, after_seq=first, bytes_max=bytes_max)
        else:
            if verb == "leased again":
                driver.lease(queue, lease_ms=1)
                driver.advance(1)
            found = driver.lease(queue, bytes_max=bytes_max)
        assert bodies(found) == expected, bytes_max


def test_messages_are_listed_without_their_bodies(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"aaaa", headers={"a": 1}), "bb")
    driver.lease(queue, count=1)
    driver.publish(queue, "cc")
    listed = driver.browse(queue, bodies=False)
    assert [(each.seq, each.body, each.headers, each.attempts) for each in listed] == [
        (1, b"", {"a": 1}, 1),
        (2, b"", None, 0),
        (3, b"", None, 0),
    ]
    assert [(each.seq, each.body) for each in driver.peek(queue, bodies=False)] == [
        (2, b""),
        (3, b""),
    ]


@pytest.mark.parametrize("fifo", [False, True])
def test_callers_at_once_each_get_what_their_bytes_allow(driver: Driver, fifo: bool) -> None:
    queue = driver.queue("q", fifo=fifo)
    drafts = [Draft(b"x" * size, group=str(n)) for n, size in enumerate((9, 1, 2, 8, 3, 3))]
    driver.publish(queue, *drafts)

    async def all_at_once() -> list[list[int]]:
        leases = [
            driver.store.lease(
                queue.id,
                count=count,
                lease_ms=1_000,
                actor=CALLER,
                now_ms=driver.now_ms,
                allowance=Allowance(4),
            )
            for count in (1, 2, 2, 1)
        ]
        leased = await asyncio.gather(*leases)
        return [[message.seq for message in each.messages] for each in leased]

    got = driver.run(all_at_once())
    every = sorted(seq for seqs in got for seq in seqs)
    assert all(got) and every == list(range(1, len(every) + 1))
    for seqs in got:
        size = sum(len(drafts[seq - 1].body) for seq in seqs)
        assert len(seqs) == 1 or size <= 4


def test_a_full_room_hands_out_nothing_that_is_counted(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"x" * 100_000), "small")
    room = AnswerRoom(150_000)

    def lease() -> tuple[list[int], Allowance]:
        allowance = Allowance(1 << 20, room)
        leased = driver.run(
            driver.store.lease(
                queue.id,
                count=10,
                lease_ms=10,
                actor=CALLER,
                now_ms=driver.now_ms,
                allowance=allowance,
            )
        )
        return [message.seq for message in leased.messages], allowance

    first, held = lease()
    assert (first, room.held) == ([1, 2], 100_005)
    driver.advance(10)
    assert lease()[0] == []
    held.release()
    assert room.held == 0
    again, held = lease()
    assert (again, held.refused) == ([1, 2], False)


def test_neighbours_of_a_removed_message_are_leased_and_settled(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b", "c", "d")
    driver.remove(queue, 2, 3)
    a, d = driver.lease(queue)
    assert (a.body, d.body) == (b"a", b"d")
    assert driver.ack(queue, d) is Outcome.DONE
    assert bodies(driver.browse(queue)) == ["a"]
    assert driver.ack(queue, a) is Outcome.DONE
    assert driver.stats(queue).count == 0


def test_leased_messages_are_browsed_from_any_place(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c", "d")
    driver.lease(queue)
    assert bodies(driver.browse(queue, after_seq=2, limit=1)) == ["c"]
    assert bodies(driver.browse(queue, after_seq=2)) == ["c", "d"]
