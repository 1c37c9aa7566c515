"""Drafts that are numbered under a key are stored once, whoever sends them how often."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from courier.clock import ManualClock
from courier.core.errors import Conflict, NotFound, OverLimit, RowsChanged
from courier.core.types import (
    DAY_MS,
    MINUTE_MS,
    Draft,
    Listener,
    Numbering,
    PushStats,
    Queue,
    QueueStats,
)
from tests.conformance.store.conftest import Opener
from tests.conformance.store.driver import CALLER, Driver, bodies, sealed

# --- numbers ---


def test_what_is_new_under_a_key_is_stored(driver: Driver, queue: Queue) -> None:
    assert driver.rows(queue) == 0
    assert driver.publish_rows(queue, "a", "b") == 2
    assert driver.rows(queue) == 2
    assert driver.publish_rows(queue, "c", first=2) == 1
    assert driver.rows(queue) == 3
    assert bodies(driver.peek(queue)) == ["a", "b", "c"]


def test_what_was_stored_before_is_not_stored_again(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", "b", "c")
    before = driver.last()
    assert driver.publish_rows(queue, "a", "b", "c") == 0
    assert driver.publish_rows(queue, "b", first=1) == 0
    assert driver.last() == before
    assert driver.rows(queue) == 3
    assert driver.stats(queue).count == 3


def test_of_drafts_that_overlap_the_rest_is_stored(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", "b")
    assert driver.publish_rows(queue, "b", "c", "d", first=1) == 2
    assert driver.rows(queue) == 4
    assert bodies(driver.peek(queue)) == ["a", "b", "c", "d"]


def test_drafts_may_not_be_left_out(driver: Driver, queue: Queue) -> None:
    with pytest.raises(Conflict) as refused:
        driver.publish_rows(queue, "b", first=1)
    assert (refused.value.kind, refused.value.ref) == ("rows", "k")
    driver.publish_rows(queue, "a")
    before = driver.last()
    with pytest.raises(Conflict):
        driver.publish_rows(queue, "c", first=2)
    assert (driver.rows(queue), driver.last()) == (1, before)
    assert driver.publish_rows(queue, "b", first=1) == 1


def test_no_drafts_are_no_rows(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    assert driver.publish_rows(queue) == 0
    assert (driver.rows(queue), driver.last()) == (0, before)


def test_a_key_belongs_to_one_queue(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish_rows(queue, "a", "b")
    assert driver.rows(other) == 0
    assert driver.publish_rows(other, "a") == 1
    assert (driver.rows(queue), driver.rows(other)) == (2, 1)


def test_keys_do_not_meet_each_other_or_those_of_single_drafts(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, Draft(b"single", once_key="k"))
    assert driver.publish_rows(queue, "a", key="k") == 1
    assert driver.publish_rows(queue, "a", key="l") == 1
    assert driver.publish(queue, Draft(b"single", once_key="l")).repeated == [False]
    assert driver.stats(queue).count == 4


def test_a_verb_on_a_queue_that_is_not_there(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a")
    driver.change(drops=[queue])
    with pytest.raises(NotFound):
        driver.publish_rows(queue, "b", first=1)
    with pytest.raises(NotFound):
        driver.rows(queue)


def test_a_queue_created_again_has_no_rows(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a")
    driver.change(drops=[queue])
    again = driver.queue(queue.name)
    driver.sweep_all()
    assert driver.rows(again) == 0
    assert driver.publish_rows(again, "a") == 1


def test_rows_outlive_their_messages(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", "b")
    driver.ack(queue, driver.lease_one(queue))
    driver.purge(queue, upto_seq=driver.tail(queue))
    driver.sweep_all()
    assert driver.rows(queue) == 2
    assert driver.publish_rows(queue, "a", "b") == 0


# --- the same drafts, or others ---


def marked(drafts: str, *, before: str = "") -> list[bytes]:
    """One for all before the first draft, and one for all up to each: here, what these are."""
    return [(before + drafts[:count]).encode() for count in range(len(drafts) + 1)]


def test_drafts_that_are_the_same_go_on(driver: Driver, queue: Queue) -> None:
    assert driver.publish_rows(queue, *"abc", marks=marked("abc")) == 3
    assert driver.publish_rows(queue, *"abcd", marks=marked("abcd")) == 1
    assert driver.publish_rows(queue, *"cde", first=2, marks=marked("cde", before="ab")) == 1
    assert driver.publish_rows(queue, *"f", first=5, marks=marked("f", before="abcde")) == 1
    assert driver.publish_rows(queue, *"abcdef", marks=marked("abcdef")) == 0
    assert bodies(driver.peek(queue)) == [*"abcdef"]


@pytest.mark.parametrize(
    ("first", "before", "drafts"),
    [
        (0, "", "axcd"),
        (0, "", "bacd"),
        (0, "", "abx"),
        (0, "", "xbc"),
        (1, "a", "cbd"),
        (1, "x", "bcd"),
        (3, "abx", "d"),
        (3, "xbc", ""),
    ],
    ids=["changed", "reordered", "end", "start", "middle", "before", "next", "nothing"],
)
def test_other_drafts_than_before_are_refused_and_nothing_is_stored(
    driver: Driver, queue: Queue, first: int, before: str, drafts: str
) -> None:
    driver.publish_rows(queue, *"abc", marks=marked("abc"))
    last = driver.last()
    with pytest.raises(RowsChanged) as refused:
        driver.publish_rows(queue, *drafts, first=first, marks=marked(drafts, before=before))
    assert (refused.value.ref, refused.value.count) == ("k", 3)
    assert (driver.rows(queue), driver.last()) == (3, last)
    assert driver.publish_rows(queue, *"abcd", marks=marked("abcd")) == 1


def test_what_ends_before_all_that_is_stored_is_not_compared(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, *"abc", marks=marked("abc"))
    assert driver.publish_rows(queue, *"xy", marks=marked("xy")) == 0
    with pytest.raises(RowsChanged):
        driver.publish_rows(queue, *"zd", first=2, marks=marked("zd", before="xy"))


def test_a_refused_call_does_not_make_its_key_last_longer(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", marks=marked("a"), for_ms=100)
    driver.advance(50)
    with pytest.raises(RowsChanged):
        driver.publish_rows(queue, "b", marks=marked("b"), for_ms=100)
    driver.advance(50)
    assert driver.publish_rows(queue, "b", marks=marked("b"), for_ms=100) == 1


def test_drafts_without_marks_are_not_compared_nor_is_their_key_later(
    driver: Driver, queue: Queue
) -> None:
    driver.publish_rows(queue, *"ab", marks=marked("ab"))
    assert driver.publish_rows(queue, *"xy") == 0
    with pytest.raises(RowsChanged):
        driver.publish_rows(queue, *"xy", marks=marked("xy"))
    assert driver.publish_rows(queue, "c", first=2) == 1
    assert driver.publish_rows(queue, *"xyzd", marks=marked("xyzd")) == 1
    assert driver.publish_rows(queue, *"efghi", marks=marked("efghi")) == 1
    driver.publish_rows(queue, "a", key="l")
    assert driver.publish_rows(queue, *"xb", key="l", marks=marked("xb")) == 1


def test_a_key_that_is_forgotten_may_have_other_drafts(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, *"ab", marks=marked("ab"), for_ms=100)
    driver.publish_rows(queue, "c", key="l", for_ms=100)
    driver.advance(100)
    assert driver.publish_rows(queue, *"xyz", marks=marked("xyz")) == 3
    assert driver.publish_rows(queue, *"d", key="l", marks=marked("d")) == 1
    for key, drafts in (("k", "ab"), ("l", "c")):
        with pytest.raises(RowsChanged):
            driver.publish_rows(queue, *drafts, key=key, marks=marked(drafts * 2))


def test_drafts_that_are_refused_for_another_reason_leave_their_mark_alone(
    driver: Driver, queue: Queue
) -> None:
    driver.publish_rows(queue, *"ab", marks=marked("ab"))
    with pytest.raises(OverLimit):
        driver.publish_rows(queue, *"abcd", marks=marked("abcd"), bytes_max=3)
    with pytest.raises(Conflict):
        driver.publish_rows(queue, "d", first=3, marks=marked("d", before="abc"))
    assert driver.publish_rows(queue, *"abxy", marks=marked("abxy")) == 2


def test_drafts_for_one_listener_are_compared_too(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish_rows(queue, *"ab", marks=marked("ab"), listener=listener)
    with pytest.raises(RowsChanged):
        driver.publish_rows(queue, *"xbc", marks=marked("xbc"), listener=listener)
    assert driver.publish_rows(queue, *"abc", marks=marked("abc"), listener=listener) == 1


def test_of_callers_with_other_drafts_one_goes_on_and_none_is_mixed(
    driver: Driver, queue: Queue
) -> None:
    store, now_ms = driver.store, driver.now_ms
    shared = "x" * 10

    async def send(name: str, size: int) -> bool:
        whole = shared + name * 30
        marks = marked(whole)
        for first in range(0, len(whole), size):
            part = whole[first : first + size]
            try:
                await store.rows.publish(
                    queue.id,
                    [Draft(each.encode()) for each in part],
                    Numbering("k", first, now_ms + DAY_MS, marks[first : first + len(part) + 1]),
                    actor=CALLER,
                    now_ms=now_ms,
                )
            except RowsChanged:
                return False
        return True

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(
            *(send(n, s) for n, s in zip("abcab", (3, 7, 4, 2, 5), strict=True))
        )

    went = driver.run(all_at_once())
    stored = "".join(bodies(driver.peek(queue)))
    assert stored in [shared + name * 30 for name in "abc"]
    assert went == [stored[-1] == name for name in "abcab"]


# --- keys below another ---


def test_rows_below_a_key_are_counted_together(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    for key, drafts in (
        ("run/1/0", "ab"),
        ("run/1/12", "c"),
        ("run/1/ü", "d"),
        ("run/1/", "e"),
        ("run/1/0/0", "f"),
        ("run/1", "-"),
        ("run/10/0", "--"),
        ("run/1.5", "-"),
        ("run/10", "-"),
        ("run/1+/0", "-"),
        ("run/2/0", "--"),
    ):
        driver.publish_rows(queue, *drafts, key=key)
    driver.publish_rows(other, "x", key="run/1/0")
    assert driver.rows(queue, key="run/1", below=True) == 6
    assert driver.rows(queue, key="run/10", below=True) == 2
    assert driver.rows(queue, key="run", below=True) == 14
    assert driver.rows(other, key="run/1", below=True) == 1
    assert driver.rows(queue, key="nobody", below=True) == 0


def test_rows_below_a_key_are_those_that_are_known(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, *"ab", key="run/0", for_ms=100)
    driver.publish_rows(queue, "c", key="run/1", for_ms=200)
    driver.advance(100)
    assert driver.rows(queue, key="run", below=True) == 1
    driver.change(drops=[queue])
    with pytest.raises(NotFound):
        driver.rows(queue, key="run", below=True)


# --- callers at the same time ---


def test_of_callers_with_the_same_drafts_each_draft_is_stored_once(
    driver: Driver, queue: Queue
) -> None:
    store, now_ms = driver.store, driver.now_ms
    drafts = [Draft(str(number).encode()) for number in range(60)]

    async def send(size: int) -> int:
        """All of them, `size` at a time."""
        stored = 0
        for first in range(0, len(drafts), size):
            stored += await store.rows.publish(
                queue.id,
                drafts[first : first + size],
                Numbering("k", first, now_ms + DAY_MS),
                actor=CALLER,
                now_ms=now_ms,
            )
        return stored

    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(send(size) for size in (1, 7, 20, 20, 60, 13)))

    assert sum(driver.run(all_at_once())) == len(drafts)
    assert driver.rows(queue) == len(drafts)
    assert bodies(driver.peek(queue)) == [draft.body.decode() for draft in drafts]


# --- time ---


def test_rows_are_known_until_the_very_end(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", for_ms=100)
    driver.advance(99)
    assert driver.publish_rows(queue, "a", for_ms=1) == 0
    driver.advance(1)
    assert driver.rows(queue) == 0
    assert driver.publish_rows(queue, "a", for_ms=100) == 1
    assert driver.stats(queue).count == 2


def test_every_call_lets_the_key_be_known_for_longer_and_none_for_less(
    driver: Driver, queue: Queue
) -> None:
    driver.publish_rows(queue, "a", for_ms=100)
    driver.advance(50)
    driver.publish_rows(queue, "b", first=1, for_ms=100)
    driver.publish_rows(queue, "c", first=2, for_ms=10)
    driver.advance(99)
    assert driver.rows(queue) == 3
    driver.publish_rows(queue, "a", for_ms=100)
    driver.advance(99)
    assert driver.rows(queue) == 3
    driver.advance(1)
    assert driver.rows(queue) == 0


def test_a_sweep_forgets_only_what_is_over(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a", key="short", for_ms=MINUTE_MS)
    driver.publish_rows(queue, "a", key="long", for_ms=3 * MINUTE_MS)
    driver.advance(2 * MINUTE_MS)
    driver.sweep_all()
    assert (driver.rows(queue, key="short"), driver.rows(queue, key="long")) == (0, 1)


def test_a_sweep_forgets_so_many_keys_and_no_more(
    tmp_path: Path, clock: ManualClock, runner: asyncio.Runner, opener: Opener
) -> None:
    """What nobody can ask for must not stay on disk either."""
    path = tmp_path / "courier.db"
    driver = Driver(runner.run(opener(path)), clock, runner)

    def kept() -> int:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            facts = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'fact'").get
            table = "fact" if facts else "rows_stored"
            count: int = db.execute(f"SELECT count(*) FROM {table}").get
        return count

    try:
        queue, other = driver.queue(), driver.queue("other")
        for number in range(5):
            driver.publish_rows(queue, "a", key=str(number), for_ms=MINUTE_MS)
        driver.publish_rows(other, "a", for_ms=DAY_MS)
        driver.advance(2 * MINUTE_MS)
        swept = driver.sweep(limit=2)
        assert (kept(), swept.more) == (4, True)
        driver.sweep_all()
        assert kept() == 1
        driver.change(drops=[other])
        driver.sweep_all()
        assert kept() == 0
    finally:
        runner.run(driver.store.close())


# --- what is published, and what is told of it ---


def test_drafts_are_stored_as_by_any_publish(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(
        queue,
        Draft(b"a", "json", {"k": 1}, "own-1"),
        Draft(b"b", delay_ms=50, group="g"),
        sealed(b"c"),
    )
    first, second = driver.peek(queue)
    assert (first.content_type, first.headers, first.id) == ("json", {"k": 1}, "own-1")
    assert second.sealed == "key-1"
    assert driver.stats(queue).delayed == 1
    driver.advance(50)
    delayed = driver.lease(queue)[0]
    assert (delayed.body, delayed.group) == (b"b", "g")
    found = driver.find(queue, "own-1")
    assert found is not None and found.body == b"a"


def test_groups_of_a_fifo_queue_hold(driver: Driver) -> None:
    queue = driver.queue(fifo=True)
    driver.publish_rows(queue, Draft(b"a", group="g"), Draft(b"b", group="g"), "c")
    driver.publish_rows(queue, Draft(b"d", group="g"), first=3)
    assert bodies(driver.lease(queue, count=1)) == ["a"]
    assert bodies(driver.lease(queue)) == ["c"]


def test_events_tallies_and_levels_count_what_was_stored(driver: Driver, queue: Queue) -> None:
    driver.advance(MINUTE_MS)
    before = driver.last()
    driver.publish_rows(queue, "aa", "b")
    driver.publish_rows(queue, "aa", "b", "ccc")
    events = driver.events(after=before)
    told = [(event["kind"], event["seq"], event["body"], event["actor"]) for event in events]
    assert told == [
        ("published", 1, b"aa", CALLER.id),
        ("published", 2, b"b", CALLER.id),
        ("published", 3, b"ccc", CALLER.id),
    ]
    [tally] = [tally for tally in driver.tallies(queue.id) if tally.kind == "published"]
    assert (tally.count, tally.bytes) == (3, 6)
    driver.advance(MINUTE_MS)
    driver.publish(queue, "later")
    assert driver.held(queue, minute=driver.now_ms // MINUTE_MS - 1) == (3, 0, 0)


def test_only_what_is_new_needs_room(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "aaaa", "bbbb", bytes_max=10)
    assert driver.publish_rows(queue, "aaaa", "bbbb", bytes_max=1) == 0
    before = driver.last()
    with pytest.raises(OverLimit) as refused:
        driver.publish_rows(queue, "aaaa", "bbbb", "ccc", bytes_max=10)
    assert (refused.value.limit, refused.value.actual) == (10, 11)
    assert (driver.rows(queue), driver.last()) == (2, before)
    assert driver.publish_rows(queue, "aaaa", "bbbb", "cc", bytes_max=10) == 1


def test_whoever_waits_gets_a_hint(driver: Driver, queue: Queue) -> None:
    driver.publish_rows(queue, "a")
    driver.lease(queue)
    waiting = driver.wait(queue)
    driver.publish_rows(queue, "a")
    assert driver.hints(waiting) == [False]
    driver.publish_rows(queue, "a", "b")
    assert driver.hints(waiting) == [True]


# --- for one listener ---


def test_every_listener_gets_a_push(driver: Driver, queue: Queue, listener: Listener) -> None:
    other = driver.listener(queue, "other")
    driver.publish_rows(queue, "a")
    assert bodies(driver.take(listener)) == bodies(driver.take(other)) == ["a"]


def test_drafts_for_one_listener_are_pushed_to_it_alone(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "other")
    driver.publish(queue, "before")
    assert driver.publish_rows(queue, "a", "b", listener=listener) == 2
    assert bodies(driver.take(other)) == ["before"]
    assert bodies(driver.take(listener)) == ["before", "a", "b"]
    assert bodies(driver.peek(queue)) == ["before"]
    assert driver.stats(queue).count == 1
    assert bodies(driver.browse(queue, kept=True)) == ["before", "a", "b"]


def test_drafts_for_one_listener_go_when_it_has_them(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    driver.publish_rows(queue, "a", listener=listener)
    message = driver.take_one(listener)
    assert driver.find(queue, message.id) is not None
    driver.arrive(listener, message)
    assert driver.find(queue, message.id) is None
    assert driver.browse(queue, kept=True) == []
    assert driver.push_stats(listener) == PushStats(acknowledged=1, last_success_ms=driver.now_ms)
    assert driver.publish_rows(queue, "a", listener=listener) == 0


def test_drafts_for_one_listener_are_published_and_acked_at_once(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    before = driver.last()
    driver.publish_rows(queue, "aa", Draft(b"b", id="own"), listener=listener)
    events = driver.events(after=before)
    told = [(event["kind"], event["seq"], event.get("attempt")) for event in events]
    assert told == [
        ("published", 1, None),
        ("published", 2, None),
        ("acked", 1, 0),
        ("acked", 2, 0),
    ]
    assert events[3]["message_id"] == "own"
    assert "first_leased_ms" not in events[2]
    counted = {(tally.kind, tally.count, tally.bytes) for tally in driver.tallies(queue.id)}
    assert {("published", 2, 3), ("acked", 2, 3)} <= counted
    assert driver.stats(queue) == QueueStats()
    driver.publish_rows(queue, "c", key="for all")
    offset, held = driver.backlogs()
    assert (offset, held[queue.id]) == (driver.last(), 1)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_draft_for_one_listener_waits_for_its_delay(driver: Driver, fifo: bool) -> None:
    queue = driver.queue(fifo=fifo)
    listener = driver.listener(queue)
    driver.publish_rows(queue, Draft(b"a", delay_ms=50, group="g"), listener=listener)
    driver.publish(queue, Draft(b"b", group="g"))
    assert driver.stats(queue).delayed == 0
    assert bodies(driver.lease(queue)) == ["b"]
    assert bodies(driver.take(listener)) == ["b"]
    driver.advance(50)
    assert bodies(driver.take(listener)) == ["a"]


def test_a_draft_for_one_listener_lives_no_longer_than_others(driver: Driver) -> None:
    queue = driver.queue()
    listener = driver.listener(queue)
    driver.publish_rows(queue, Draft(b"a", ttl_ms=100), listener=listener)
    driver.advance(100)
    driver.sweep_all()
    assert driver.browse(queue, kept=True) == []
    assert driver.take(listener) == []
    assert driver.kinds()[-1] == "push_dropped"


@pytest.mark.one_node
def test_pullers_get_no_hint_of_what_is_for_a_listener(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    puller, pusher = driver.wait(queue), driver.wait(listener)
    driver.publish_rows(queue, "a", listener=listener)
    assert driver.hints(puller, pusher) == [False, True]


def test_a_listener_must_be_one_of_the_queue(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.queue("other")
    elsewhere = driver.listener(other)
    driver.change(drops=[listener])
    before = driver.last()
    for wrong in (elsewhere, listener):
        with pytest.raises(NotFound) as refused:
            driver.publish_rows(queue, "a", listener=wrong)
        assert (refused.value.kind, refused.value.ref) == ("listener", wrong.id)
    assert (driver.rows(queue), driver.last()) == (0, before)


def test_drafts_for_one_listener_and_for_all_may_come_at_one_moment(
    driver: Driver, queue: Queue, listener: Listener
) -> None:
    other = driver.listener(queue, "other")
    store, now_ms = driver.store, driver.now_ms
    numbering = Numbering("k", 0, now_ms + DAY_MS)

    async def both() -> None:
        await asyncio.gather(
            store.publish([(queue.id, [Draft(b"all")])], actor=CALLER, now_ms=now_ms),
            store.rows.publish(
                queue.id,
                [Draft(b"one")],
                numbering,
                actor=CALLER,
                now_ms=now_ms,
                listener=listener.id,
            ),
        )

    driver.run(both())
    assert sorted(bodies(driver.take(listener))) == ["all", "one"]
    assert bodies(driver.take(other)) == ["all"]
    assert bodies(driver.lease(queue)) == ["all"]
