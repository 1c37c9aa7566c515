"""How often what happened, minute by minute."""

import msgspec
import pytest

from courier import ids
from courier.core.journal import UNIT_BYTES
from courier.core.types import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Binding,
    Consumer,
    Draft,
    Key,
    KeyUse,
    Pipeline,
    Queue,
    Via,
)
from tests.conformance.store.driver import TENANT, Driver, sealed

OTHER_TENANT = "c0" + "8" * 30
EXCHANGE = "c0" + "e" * 30


@pytest.fixture(autouse=True)
def on_the_hour(driver: Driver) -> None:
    """Begin a whole hour, so that minutes can be counted from it."""
    driver.advance(-driver.now_ms % HOUR_MS)


def counted(driver: Driver, id: str) -> dict[str, tuple[int, int]]:
    """Count and bytes of each kind, over all minutes."""
    found: dict[str, tuple[int, int]] = {}
    for tally in driver.tallies(id):
        count, size = found.get(tally.kind, (0, 0))
        found[tally.kind] = count + tally.count, size + tally.bytes
    return found


def test_a_new_store_has_counted_nothing(driver: Driver) -> None:
    assert driver.tallies() == []


def test_every_event_counts_with_its_bytes(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=2, dead_letter=dead.id)
    driver.publish(work, "abc", "de", "f", "")
    a, b, c, _ = driver.lease(work, lease_ms=100)
    driver.ack(work, a)
    driver.extend(work, b, lease_ms=50)
    driver.retry(work, b)
    driver.remove(work, c.seq)
    driver.purge(work, upto_seq=driver.tail(work))
    assert counted(driver, work.id) == {
        "queue_created": (1, 0),
        "published": (4, 6),
        "leased": (4, 6),
        "acked": (1, 3),
        "extended": (1, 2),
        "retried": (1, 2),
        "deleted": (1, 1),
        "purged": (2, 2),
    }
    assert counted(driver, dead.id) == {"queue_created": (1, 0)}


def test_sealed_messages_count_as_long_as_they_are_in_clear(driver: Driver, queue: Queue) -> None:
    driver.publish_all(
        (queue, [sealed(b"ab"), sealed(b"x" * UNIT_BYTES), "c"]),
        via=Via(TENANT, EXCHANGE, 3, 3 + UNIT_BYTES),
    )
    driver.lease(queue)
    assert counted(driver, EXCHANGE)["copied"] == (3, 3 + UNIT_BYTES)
    assert counted(driver, queue.id) == {
        "queue_created": (1, 0),
        "published": (3, 3 + UNIT_BYTES),
        "leased": (3, 3 + UNIT_BYTES),
    }


def test_what_time_does_counts_when_it_is_noticed(driver: Driver) -> None:
    dead = driver.queue("dead", retention_ms=DAY_MS)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id, retention_ms=DAY_MS)
    driver.publish(work, "abc", Draft(b"de", ttl_ms=10))
    driver.lease(work, count=1, lease_ms=10)
    driver.advance(2 * MINUTE_MS)
    driver.sweep_all()
    assert counted(driver, work.id) == {
        "queue_created": (1, 0),
        "published": (2, 5),
        "leased": (1, 3),
        "lease_expired": (1, 3),
        "buried": (1, 3),
        "expired": (1, 2),
    }
    assert counted(driver, dead.id) == {"queue_created": (1, 0), "published": (1, 3)}
    noticed = driver.now_ms // MINUTE_MS
    ends = ("lease_expired", "buried", "expired")
    assert {t.minute for t in driver.tallies(work.id) if t.kind in ends} == {noticed}


def test_settings_of_a_queue_count_for_it(driver: Driver, queue: Queue) -> None:
    consumer = Consumer(
        id=ids.new_id(), tenant=TENANT, parent=queue.id, created_ms=1, mode="pull", batch_size=5
    )
    driver.change(puts=[consumer])
    queue = driver.update(queue, labels={"paint": "red"})
    driver.update(queue, labels={})
    assert counted(driver, queue.id) == {
        "queue_created": (1, 0),
        "consumer_created": (1, 0),
        "queue_updated": (2, 0),
    }


def test_a_dropped_queue_is_still_counted(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "ab", "c")
    driver.change(drops=[queue])
    driver.sweep_all()
    assert counted(driver, queue.id) == {
        "queue_created": (1, 0),
        "published": (2, 3),
        "queue_deleted": (1, 0),
        "deleted": (2, 3),
    }


def test_a_redrive_counts_on_both_queues(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "abc")
    driver.retry(work, driver.lease_one(work))
    driver.redrive(dead, 1)
    assert counted(driver, work.id)["published"] == (2, 6)
    assert counted(driver, dead.id)["deleted"] == (1, 3)


def test_what_was_refused_or_without_effect_counts_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"a", once_key="k"))
    message = driver.lease_one(queue)
    driver.ack(queue, message)
    before = driver.tallies()
    driver.ack(queue, message)
    driver.publish(queue, Draft(b"a", once_key="k"))
    driver.lease(queue)
    driver.peek(queue)
    driver.redrive(queue, 1, dry_run=True)
    assert driver.tallies() == before


# --- units ---


@pytest.mark.parametrize(
    ("sizes", "units"),
    [
        ((0,), None),
        ((UNIT_BYTES,), None),
        ((UNIT_BYTES + 1,), 1),
        ((2 * UNIT_BYTES,), 1),
        ((2 * UNIT_BYTES + 1, 1, 0, UNIT_BYTES + 1), 3),
        ((UNIT_BYTES // 2 + 1, UNIT_BYTES // 2 + 1), None),
    ],
)
def test_further_units_of_large_messages_count_when_they_are_leased(
    driver: Driver, queue: Queue, sizes: tuple[int, ...], units: int | None
) -> None:
    driver.publish(queue, *(Draft(b"x" * size) for size in sizes))
    assert "leased_units" not in counted(driver, queue.id)
    for attempt in (1, 2):
        messages = driver.lease(queue, lease_ms=0)
        assert len(messages) == len(sizes)
        found = counted(driver, queue.id)
        assert found.get("leased_units") == (units and (units * attempt, 0))
        assert found["leased"] == (len(sizes) * attempt, sum(sizes) * attempt)


# --- what is no event ---


def test_what_is_no_event_is_counted_under_its_tenant(driver: Driver) -> None:
    before = driver.last()
    driver.tally({(TENANT, "requested"): 3, (OTHER_TENANT, "requested"): 1, (TENANT, "x"): 2})
    driver.tally({(TENANT, "requested"): 4})
    assert counted(driver, TENANT) == {"requested": (7, 0), "x": (2, 0)}
    [other] = driver.tallies(tenant=OTHER_TENANT)
    assert (other.id, other.kind, other.count, other.bytes) == (OTHER_TENANT, "requested", 1, 0)
    assert driver.last() == before


def test_a_tally_of_nothing_is_nothing(driver: Driver) -> None:
    driver.tally({})
    assert driver.tallies() == []


# --- minutes, tenants, ranges ---


def test_minutes_are_counted_apart_and_told_in_order(driver: Driver) -> None:
    first, second = sorted((driver.queue("x"), driver.queue("y")), key=lambda queue: queue.id)
    start = driver.now_ms // MINUTE_MS
    driver.publish(second, "a")
    driver.publish(first, "a", "b")
    driver.advance(MINUTE_MS - 1)
    driver.publish(first, "c")
    driver.advance(1)
    driver.lease(first)
    driver.publish(first, "d")
    told = [
        (tally.minute - start, tally.id, tally.kind, tally.count, tally.bytes)
        for tally in driver.tallies()
    ]
    assert told == [
        (0, first.id, "published", 3, 3),
        (0, first.id, "queue_created", 1, 0),
        (0, second.id, "published", 1, 1),
        (0, second.id, "queue_created", 1, 0),
        (1, first.id, "leased", 3, 3),
        (1, first.id, "published", 1, 1),
    ]


def test_tallies_of_a_tenant_are_those_of_all_it_owns(driver: Driver) -> None:
    here, there = driver.queue("here"), driver.queue("there", tenant=OTHER_TENANT)
    driver.publish_all((here, ["a"]), via=Via(TENANT, EXCHANGE, 1, 1))
    driver.publish(there, "a", "b")
    driver.tally({(TENANT, "requested"): 5})
    mine = {tally.id for tally in driver.tallies()}
    assert mine == {here.id, EXCHANGE, TENANT}
    theirs = driver.tallies(tenant=OTHER_TENANT)
    assert {(tally.id, tally.kind, tally.count) for tally in theirs} == {
        (there.id, "queue_created", 1),
        (there.id, "published", 2),
    }


def test_an_id_is_looked_up_within_its_tenant(driver: Driver) -> None:
    there = driver.queue("there", tenant=OTHER_TENANT)
    driver.publish(there, "a")
    assert driver.tallies(there.id) == []
    assert driver.tallies(ids.new_id()) == []
    assert len(driver.tallies(there.id, tenant=OTHER_TENANT)) == 2


def test_settings_without_a_queue_count_for_their_tenant(driver: Driver) -> None:
    key = Key(
        id=ids.new_id(), tenant=TENANT, name="k", created_ms=1, digest="d", hint="h", grants=()
    )
    binding = Binding(
        id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=1, queue=ids.new_id()
    )
    driver.change(puts=[key, binding])
    driver.change(puts=[msgspec.structs.replace(key, enabled=False)])
    driver.tally({(TENANT, "requested"): 2})
    assert counted(driver, TENANT) == {
        "key_created": (1, 0),
        "key_updated": (1, 0),
        "binding_created": (1, 0),
        "requested": (2, 0),
    }
    assert {tally.id for tally in driver.tallies()} == {TENANT}


def test_settings_of_no_tenant_count_nowhere(driver: Driver) -> None:
    pipeline = Pipeline(id=ids.new_id(), tenant="", name="lake", created_ms=1, offset=0, seen_ms=1)
    driver.change(puts=[pipeline])
    driver.change(drops=[pipeline])
    assert driver.tallies(tenant="") == []
    assert driver.tallies() == []


def test_what_is_no_news_counts_nowhere(driver: Driver) -> None:
    use = KeyUse(id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=1, at_ms=5)
    driver.change(puts=[use])
    driver.change(drops=[use])
    assert driver.tallies() == []


@pytest.mark.parametrize("of", ["queue", "tenant"])
def test_a_minute_counts_when_any_of_it_is_asked_for(driver: Driver, queue: Queue, of: str) -> None:
    id = queue.id if of == "queue" else None
    start_ms = driver.now_ms
    for _ in range(3):
        driver.advance(MINUTE_MS)
        driver.publish(queue, "a")

    def found(since_ms: int, until_ms: int) -> list[int]:
        tallies = driver.tallies(id, since_ms=start_ms + since_ms, until_ms=start_ms + until_ms)
        published = [tally for tally in tallies if tally.kind == "published"]
        return [tally.minute - start_ms // MINUTE_MS for tally in published]

    assert found(0, 4 * MINUTE_MS) == [1, 2, 3]
    assert found(MINUTE_MS, 3 * MINUTE_MS) == [1, 2]
    assert found(2 * MINUTE_MS - 1, 2 * MINUTE_MS + 1) == [1, 2]
    assert found(2 * MINUTE_MS, 2 * MINUTE_MS + 1) == [2]
    assert found(2 * MINUTE_MS + 59_999, 3 * MINUTE_MS) == [2]
    assert found(0, MINUTE_MS) == []
    assert found(4 * MINUTE_MS, 9 * MINUTE_MS) == []


# --- growing old ---


def test_old_minutes_are_summed_up_by_the_hour(driver: Driver, queue: Queue) -> None:
    start = driver.now_ms // MINUTE_MS
    for minute in (5, 6, 59, 60, 61):
        driver.advance((start + minute) * MINUTE_MS - driver.now_ms)
        driver.publish(queue, "ab")
        driver.tally({(TENANT, "requested"): minute})
    driver.advance((start + 58) * MINUTE_MS + 16 * DAY_MS - driver.now_ms)
    driver.sweep()

    def found(id: str, kind: str) -> list[tuple[int, int, int]]:
        return [
            (tally.minute - start, tally.count, tally.bytes)
            for tally in driver.tallies(id)
            if tally.kind == kind
        ]

    assert found(queue.id, "published") == [(0, 2, 4), (59, 1, 2), (60, 1, 2), (61, 1, 2)]
    driver.advance(HOUR_MS)
    driver.sweep()
    assert found(queue.id, "published") == [(0, 3, 6), (60, 2, 4)]
    assert found(TENANT, "requested") == [(0, 5 + 6 + 59, 0), (60, 60 + 61, 0)]
    for _ in range(3):
        driver.advance(MINUTE_MS)
        driver.sweep()
    assert found(queue.id, "published") == [(0, 3, 6), (60, 2, 4)]


def test_many_old_minutes_are_summed_up_by_and_by(driver: Driver, queue: Queue) -> None:
    start = driver.now_ms // MINUTE_MS
    for _ in range(125):
        driver.tally({(TENANT, "requested"): 1, (OTHER_TENANT, "requested"): 2})
        driver.advance(MINUTE_MS)
    driver.advance(17 * DAY_MS)
    sweeps = 0
    while driver.sweep(limit=7).more:
        sweeps += 1
        assert sweeps <= 125
    for tenant, each in ((TENANT, 1), (OTHER_TENANT, 2)):
        found = [
            (tally.minute - start, tally.count)
            for tally in driver.tallies(tenant, tenant=tenant)
            if tally.kind == "requested"
        ]
        assert found == [(0, 60 * each), (60, 60 * each), (120, 5 * each)]


def test_young_minutes_are_kept_as_they_are(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.advance(7 * MINUTE_MS)
    driver.publish(queue, "a")
    before = driver.tallies()
    driver.advance(16 * DAY_MS - 10 * MINUTE_MS)
    driver.sweep()
    assert [t for t in driver.tallies() if t.minute <= before[-1].minute] == before


def test_hours_are_forgotten_after_fifteen_months(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.tally({(TENANT, "requested"): 1})
    driver.advance(17 * DAY_MS)
    driver.sweep_all()
    driver.tally({(TENANT, "requested"): 2})
    driver.advance(442 * DAY_MS)
    driver.sweep_all()
    requested = [t.count for t in driver.tallies(TENANT)]
    assert requested == [1, 2]
    driver.advance(2 * DAY_MS)
    driver.sweep_all()
    assert [t.count for t in driver.tallies(TENANT)] == [2]
    assert "published" not in counted(driver, queue.id)
