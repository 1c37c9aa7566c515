from typing import Any

import msgspec
import pytest

from courier import ids
from courier.core.lifecycle import GROUP_DEFAULT
from courier.core.types import (
    BROKER,
    Ack,
    Binding,
    Consumer,
    Draft,
    EventSubscription,
    Exchange,
    Extend,
    Grant,
    Key,
    KeyUse,
    Liveness,
    Pipeline,
    Queue,
    Retry,
    Rule,
    Session,
    Tenant,
)
from tests.conformance.store.driver import CALLER, TENANT, Driver, sealed

HEAD = ("offset", "at_ms", "tenant", "queue", "queue_name", "actor", "dialect")
BY_CALLER = (CALLER.id, CALLER.dialect)
BY_BROKER = (BROKER.id, BROKER.dialect)


def tail(event: dict[str, Any]) -> dict[str, Any]:
    """What an event says besides when, where and who."""
    return {name: value for name, value in event.items() if name not in HEAD}


def who(event: dict[str, Any]) -> tuple[str, str]:
    return event["actor"], event["dialect"]


def test_offsets_are_dense_from_one(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", "b", "c")
    for message in driver.lease(queue, count=2):
        driver.ack(queue, message)
    driver.lease(queue)
    driver.advance(1_000)
    driver.sweep()
    events = driver.events()
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    head = driver.run(driver.store.journal.head())
    assert (head.first, head.last) == (1, len(events))
    assert head.bytes > 0


def test_a_new_journal_is_empty(driver: Driver) -> None:
    head = driver.run(driver.store.journal.head())
    assert (head.first, head.last, head.bytes, head.at_ms) == (1, 0, 0, 0)
    assert head.epoch
    assert driver.events() == []


def test_times_of_events_never_step_back(driver: Driver, queue: Queue) -> None:
    """Callers read the clock before it is their turn."""
    driver.listener(queue)
    driver.publish(queue, "a", "b")
    latest_ms = driver.now_ms
    driver.advance(-500)
    driver.publish(queue, "c")
    for message in driver.lease(queue, count=2):
        driver.ack(queue, message)
    driver.advance(100)
    driver.update(queue, delay_ms=1_000)
    driver.sweep()
    times = [event["at_ms"] for event in driver.events()]
    assert len(times) > 5 and set(times[2:]) == {latest_ms}
    assert driver.run(driver.store.journal.head()).at_ms == latest_ms
    driver.advance(1_000)
    driver.publish(queue, "d")
    assert driver.events()[-1]["at_ms"] == driver.now_ms == latest_ms + 600


def test_the_time_of_the_last_event_outlives_it(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    latest_ms = driver.now_ms
    driver.advance(1_000)
    last = driver.last()
    driver.run(driver.store.journal.trim(upto=last))
    assert driver.run(driver.store.journal.head()).at_ms == latest_ms


def test_every_event_says_when_where_and_who(driver: Driver, queue: Queue) -> None:
    driver.advance(7)
    before = driver.last()
    driver.publish(queue, "a", "b")
    driver.lease(queue)
    for event in driver.events(after=before):
        assert event["at_ms"] == driver.now_ms
        assert event["tenant"] == TENANT
        assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)
        assert who(event) == BY_CALLER


def test_a_published_event_carries_the_whole_message(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    receipt = driver.publish(
        queue,
        Draft(b"[1]", "json", {"k": ["v", None]}, group="g", delay_ms=40),
        Draft(b"", id="own", delay_ms=0),
    )
    now_ms = driver.now_ms
    full, bare = driver.events(after=before)
    assert tail(full) == {
        "kind": "published",
        "message_id": receipt.ids[0],
        "seq": 1,
        "published_ms": now_ms,
        "size": 3,
        "content_type": "json",
        "headers": {"k": ["v", None]},
        "group": "g",
        "body": b"[1]",
        "delay_ms": 40,
    }
    assert tail(bare) == {
        "kind": "published",
        "message_id": "own",
        "seq": 2,
        "published_ms": now_ms,
        "size": 0,
        "content_type": "text",
        "body": b"",
    }


def test_the_queues_delay_is_told_when_it_is_what_delays(driver: Driver) -> None:
    queue = driver.queue(delay_ms=70)
    driver.publish(queue, "a")
    assert driver.events()[-1]["delay_ms"] == 70


def test_a_fifo_queue_tells_the_group_and_the_delay_of_the_moment(driver: Driver) -> None:
    queue = driver.queue(delay_ms=70, fifo=True)
    before = driver.last()
    driver.publish(queue, "a", Draft(b"b", group="g", delay_ms=0), Draft(b"c", delay_ms=5))
    told = [(event["group"], event.get("delay_ms")) for event in driver.events(after=before)]
    assert told == [(GROUP_DEFAULT, 70), ("g", None), (GROUP_DEFAULT, 5)]


def test_a_sealed_message_tells_what_it_is_sealed_with(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    driver.publish(queue, "clear", sealed(b"ab"))
    driver.publish(queue, sealed(b"c", key="key-2"))
    told = [(event.get("sealed"), event["size"]) for event in driver.events(after=before)]
    assert told == [(None, 5), ("key-1", 2), ("key-2", 1)]
    before = driver.last()
    for message in driver.lease(queue):
        driver.ack(queue, message)
    rest = driver.events(after=before)
    assert all("sealed" not in event for event in rest)
    assert sorted(event["size"] for event in rest) == [1, 1, 2, 2, 5, 5]


def test_the_life_of_an_acked_message(driver: Driver, queue: Queue) -> None:
    [id] = driver.publish(queue, "abc").ids
    published_ms = driver.now_ms
    before = driver.last()
    driver.advance(10)
    message = driver.lease_one(queue, lease_ms=100)
    driver.advance(10)
    driver.settle(queue, Extend(message.seq, 1, lease_ms=50))
    driver.settle(queue, Retry(message.seq, 1, delay_ms=5))
    driver.advance(5)
    driver.settle(queue, Ack(driver.lease_one(queue, lease_ms=80).seq, 2))
    common = {"message_id": id, "seq": 1, "published_ms": published_ms, "size": 3}
    assert [tail(event) for event in driver.events(after=before)] == [
        {"kind": "leased", "attempt": 1, "lease_ms": 100, **common},
        {"kind": "extended", "attempt": 1, "lease_ms": 50, **common},
        {"kind": "retried", "attempt": 1, "delay_ms": 5, **common},
        {"kind": "leased", "attempt": 2, "lease_ms": 80, **common},
        {
            "kind": "acked",
            "attempt": 2,
            "first_leased_ms": published_ms + 10,
            "last_leased_ms": published_ms + 25,
            **common,
        },
    ]


def test_an_ended_lease_is_the_brokers_event(driver: Driver) -> None:
    queue = driver.queue(retry_delay_ms=30)
    [id] = driver.publish(queue, Draft(b"abc", id="own")).ids
    driver.lease(queue, lease_ms=100)
    before = driver.last()
    driver.advance(110)
    driver.sweep()
    [event] = driver.events(after=before)
    assert who(event) == BY_BROKER
    assert event["at_ms"] == driver.now_ms
    assert tail(event) == {
        "kind": "lease_expired",
        "message_id": id,
        "seq": 1,
        "attempt": 1,
        "delay_ms": 30,
        "published_ms": driver.now_ms - 110,
        "size": 3,
    }


def test_no_delay_is_told_as_zero_after_a_failure(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.retry(queue, driver.lease_one(queue))
    assert driver.events()[-1]["delay_ms"] == 0
    driver.lease(queue, lease_ms=10)
    driver.advance(10)
    driver.sweep()
    assert driver.events()[-1]["delay_ms"] == 0


def test_a_late_ack_tells_the_whole_life_of_the_message(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    first_ms = driver.now_ms
    first = driver.lease_one(queue, lease_ms=10)
    driver.advance(10)
    driver.lease_one(queue, lease_ms=10)
    driver.ack(queue, first, late=True)
    acked = driver.events()[-1]
    assert acked["kind"] == "acked"
    assert acked["attempt"] == 2
    assert (acked["first_leased_ms"], acked["last_leased_ms"]) == (first_ms, first_ms + 10)


def test_a_settlement_without_effect_is_no_event(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    message = driver.lease_one(queue, lease_ms=10)
    driver.advance(10)
    driver.sweep()
    before = driver.last()
    driver.settle(queue, Ack(message.seq, 1), Retry(message.seq, 1), Extend(message.seq, 1, 5))
    driver.settle(queue, Ack(99, 1, late=True))
    assert driver.last() == before


def test_a_burial_by_retry_is_told_by_both_queues(driver: Driver) -> None:
    dead = driver.queue("dead", delay_ms=20)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    [id] = driver.publish(work, Draft(b"abc", headers={"k": "v"}, group="g")).ids
    message = driver.lease_one(work)
    before = driver.last()
    driver.advance(5)
    driver.retry(work, message, delay_ms=99)
    retried, buried, published = driver.events(after=before)
    common = {"message_id": id, "seq": 1, "size": 3, "published_ms": driver.now_ms - 5}
    assert (retried["queue"], who(retried)) == (work.id, BY_CALLER)
    assert tail(retried) == {"kind": "retried", "attempt": 1, **common}
    assert (buried["queue"], who(buried)) == (work.id, BY_CALLER)
    assert tail(buried) == {
        "kind": "buried",
        "attempt": 1,
        "first_leased_ms": driver.now_ms - 5,
        "last_leased_ms": driver.now_ms - 5,
        "detail": {"into": dead.id},
        **common,
    }
    assert (published["queue"], published["queue_name"]) == (dead.id, "dead")
    assert who(published) == BY_BROKER
    [copy] = driver.peek(dead)
    assert tail(published) == {
        "kind": "published",
        "message_id": copy.id,
        "seq": copy.seq,
        "size": 3,
        "published_ms": copy.published_ms,
        "content_type": "text",
        "headers": {"k": "v"},
        "group": "g",
        "body": b"abc",
        "detail": {"queue": work.id, "message": id, "attempts": 1, "reason": "attempts"},
    }


def test_a_dead_letter_on_a_fifo_queue_tells_its_delay_and_its_group(driver: Driver) -> None:
    dead = driver.queue("dead", delay_ms=20, fifo=True)
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a", Draft(b"b", group="g"))
    for message in driver.lease(work):
        driver.retry(work, message)
    copies = [event for event in driver.events() if event["queue"] == dead.id][1:]
    assert [(event["delay_ms"], event["group"]) for event in copies] == [
        (20, GROUP_DEFAULT),
        (20, "g"),
    ]


def test_a_burial_by_expiry_is_told_by_both_queues(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.lease(work, lease_ms=10)
    before = driver.last()
    driver.advance(10)
    driver.sweep()
    events = driver.events(after=before)
    assert [(event["kind"], event["queue"]) for event in events] == [
        ("lease_expired", work.id),
        ("buried", work.id),
        ("published", dead.id),
    ]
    assert "delay_ms" not in events[0]
    assert {who(event) for event in events} == {BY_BROKER}


def test_a_dropped_burial_names_no_queue(driver: Driver) -> None:
    queue = driver.queue(attempts_max=1)
    driver.publish(queue, "a")
    driver.retry(queue, driver.lease_one(queue))
    assert driver.events()[-1]["kind"] == "buried"
    assert driver.events()[-1]["detail"] == {"into": None}


def test_a_redrive_is_a_publish_on_the_source_then_a_deletion(driver: Driver) -> None:
    dead = driver.queue("dead")
    work = driver.queue("work", attempts_max=1, dead_letter=dead.id)
    driver.publish(work, "a")
    driver.retry(work, driver.lease_one(work))
    [letter] = driver.peek(dead)
    before = driver.last()
    driver.redrive(dead, letter.seq)
    published, deleted = driver.events(after=before)
    assert (published["kind"], published["queue"]) == ("published", work.id)
    assert published["detail"]["queue"] == dead.id
    assert published["detail"]["message"] == letter.id
    assert published["detail"]["reason"] == "redrive"
    assert (deleted["kind"], deleted["queue"]) == ("deleted", dead.id)
    assert deleted["message_id"] == letter.id
    assert {who(published), who(deleted)} == {BY_CALLER}


@pytest.mark.parametrize("kind", ["expired", "purged", "deleted"])
def test_the_end_of_a_message_tells_its_life_even_when_it_was_never_leased(
    driver: Driver, kind: str
) -> None:
    queue = driver.queue(retention_ms=100, attempts_max=None)
    driver.publish(queue, "leased", "new")
    published_ms = driver.now_ms
    driver.advance(10)
    driver.retry(queue, driver.lease_one(queue))
    driver.advance(10)
    driver.lease(queue, count=1, lease_ms=5_000)
    before = driver.last()
    if kind == "expired":
        driver.advance(80)
        driver.sweep()
    elif kind == "purged":
        driver.purge(queue, upto_seq=2)
    else:
        driver.remove(queue, 1, 2)
    leased, new = sorted(driver.events(after=before), key=lambda event: event["seq"])
    assert who(leased) == who(new) == (BY_BROKER if kind == "expired" else BY_CALLER)
    ids_ = [ids.message_id(published_ms=published_ms, seq=seq, queue=queue.id) for seq in (1, 2)]
    assert tail(leased) == {
        "kind": kind,
        "message_id": ids_[0],
        "seq": 1,
        "attempt": 2,
        "published_ms": published_ms,
        "first_leased_ms": published_ms + 10,
        "last_leased_ms": published_ms + 20,
        "size": 6,
    }
    assert tail(new) == {
        "kind": kind,
        "message_id": ids_[1],
        "seq": 2,
        "attempt": 0,
        "published_ms": published_ms,
        "size": 3,
    }


def test_own_ids_and_generated_ids_can_share_a_run(driver: Driver, queue: Queue) -> None:
    receipt = driver.publish(queue, Draft(b"a", id="own"), "b", Draft(b"c", id="too"))
    driver.lease(queue)
    by_kind = [
        [event["message_id"] for event in driver.events() if event["kind"] == kind]
        for kind in ("published", "leased")
    ]
    assert by_kind == [receipt.ids, receipt.ids]


def test_settings_are_told_without_their_secrets(driver: Driver) -> None:
    key = Key(
        id=ids.new_id(),
        tenant=TENANT,
        name="robot",
        created_ms=1,
        digest="d" * 64,
        hint="co_ab",
        grants=(Grant("journal"),),
        sealed="s" * 64,
    )
    driver.change(puts=[key])
    driver.change(puts=[msgspec.structs.replace(key, enabled=False)])
    driver.change(drops=[key])
    events = driver.events()
    assert [event["kind"] for event in events] == ["key_created", "key_updated", "key_deleted"]
    for event in events:
        assert not {"digest", "sealed"} & set(event["detail"])
        assert event["detail"]["hint"] == "co_ab"
        assert (event["queue"], event["queue_name"]) == ("", "")
        assert event["tenant"] == TENANT
        assert who(event) == BY_CALLER
    assert events[1]["detail"]["enabled"] is False


def test_a_setting_event_carries_the_record(driver: Driver) -> None:
    queue = driver.queue(labels={"colour": "red"}, delay_ms=5)
    [event] = driver.events()
    assert event["kind"] == "queue_created"
    assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)
    assert event["detail"] == msgspec.to_builtins(queue)


def test_what_hangs_on_a_queue_is_told_under_that_queue(driver: Driver, queue: Queue) -> None:
    consumer = Consumer(
        id=ids.new_id(), tenant=TENANT, parent=queue.id, created_ms=1, mode="pull", batch_size=5
    )
    subscription = EventSubscription(
        id=ids.new_id(),
        tenant=TENANT,
        parent=queue.id,
        created_ms=1,
        title="t",
        modified_ms=1,
        enabled=True,
        source={"type": "kv"},
        events=("namespace.created",),
    )
    before = driver.last()
    driver.change(puts=[consumer, subscription])
    driver.change(drops=[queue, subscription, consumer])
    events = driver.events(after=before)
    assert sorted(event["kind"] for event in events) == [
        "consumer_created",
        "consumer_deleted",
        "queue_deleted",
        "subscription_created",
        "subscription_deleted",
    ]
    for event in events:
        assert (event["queue"], event["queue_name"]) == (queue.id, queue.name)


def test_a_queue_and_its_consumer_can_be_created_together(driver: Driver) -> None:
    now_ms = driver.now_ms
    queue = Queue(
        id=ids.new_id(), tenant=TENANT, name="orders", created_ms=now_ms, modified_ms=now_ms
    )
    consumer = Consumer(
        id=ids.new_id(), tenant=TENANT, parent=queue.id, created_ms=1, mode="pull", batch_size=5
    )
    driver.change(puts=[queue, consumer])
    assert [event["queue_name"] for event in driver.events()] == ["orders", "orders"]


def test_events_keep_the_name_the_queue_had(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    renamed = driver.update(queue, name="renamed")
    driver.publish(renamed, "b")
    published = [event for event in driver.events() if event["kind"] == "published"]
    assert [event["queue_name"] for event in published] == ["orders", "renamed"]


def test_a_binding_is_told_under_the_queue_it_leads_to(driver: Driver, queue: Queue) -> None:
    exchange = Exchange(
        id=ids.new_id(), tenant=TENANT, name="news", created_ms=1, modified_ms=1, encrypted=True
    )
    binding = Binding(
        id=ids.new_id(), tenant=TENANT, parent=exchange.id, created_ms=1, queue=queue.id
    )
    ruled = msgspec.structs.replace(binding, rule=Rule("kind", "text", "any_of", ["a", "b"]))
    before = driver.last()
    driver.change(puts=[exchange, binding])
    driver.change(puts=[ruled])
    driver.change(drops=[queue, ruled, exchange])
    events = driver.events(after=before)
    assert sorted((event["kind"], event["queue"], event["queue_name"]) for event in events) == [
        ("binding_created", queue.id, queue.name),
        ("binding_deleted", queue.id, queue.name),
        ("binding_updated", queue.id, queue.name),
        ("exchange_created", "", ""),
        ("exchange_deleted", "", ""),
        ("queue_deleted", queue.id, queue.name),
    ]
    [updated] = [event for event in events if event["kind"] == "binding_updated"]
    assert updated["detail"] == msgspec.to_builtins(ruled) | {"changed": ["rule"]}
    assert {event["tenant"] for event in events} == {TENANT}


def test_a_binding_to_a_queue_that_is_not_there_is_told_under_none(driver: Driver) -> None:
    binding = Binding(
        id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=1, queue=ids.new_id()
    )
    driver.change(puts=[binding])
    [event] = driver.events()
    assert (event["queue"], event["queue_name"]) == ("", "")
    assert event["detail"]["queue"] == binding.queue


def test_a_queue_and_what_leads_to_it_can_be_created_together(driver: Driver) -> None:
    queue = Queue(id=ids.new_id(), tenant=TENANT, name="orders", created_ms=1, modified_ms=1)
    binding = Binding(
        id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=1, queue=queue.id
    )
    driver.change(puts=[binding, queue])
    assert [event["queue_name"] for event in driver.events()] == ["orders", "orders"]


def test_an_update_tells_which_fields_changed(driver: Driver, queue: Queue) -> None:
    driver.advance(5)
    driver.update(queue, delay_ms=9, attempts_max=None, labels={"k": "v"})
    event = driver.events()[-1]
    assert event["kind"] == "queue_updated"
    assert event["detail"]["changed"] == ["attempts_max", "delay_ms", "labels", "modified_ms"]
    assert event["detail"]["delay_ms"] == 9
    assert "changed" not in driver.events()[0]["detail"]


def test_an_update_that_changes_nothing_says_so(driver: Driver, queue: Queue) -> None:
    driver.change(puts=[queue])
    assert driver.events()[-1]["detail"] == msgspec.to_builtins(queue) | {"changed": []}


@pytest.mark.parametrize(
    "record",
    [
        KeyUse(id="c0" + "1" * 30, tenant=TENANT, parent="c0" + "1" * 30, created_ms=1, at_ms=2),
        Liveness(id="c0" + "1" * 30, tenant=TENANT, parent="c0" + "1" * 30, created_ms=1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_some_records_are_never_told_of(driver: Driver, record: KeyUse | Liveness) -> None:
    updated = msgspec.structs.replace(record, created_ms=2)
    for each in (record, updated):
        driver.change(puts=[each])
        assert driver.store.records.get(type(record), record.id) == each
    driver.change(drops=[updated])
    assert driver.store.records.get(type(record), record.id) is None
    assert driver.events() == []


def test_the_use_of_a_session_is_not_told(driver: Driver) -> None:
    session = Session(
        id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=1, expires_ms=5
    )
    driver.change(puts=[session])
    prolonged = msgspec.structs.replace(session, expires_ms=9)
    driver.change(puts=[prolonged])
    assert driver.store.records.get(Session, session.id) == prolonged
    driver.change(drops=[prolonged])
    assert driver.kinds() == ["session_created", "session_deleted"]


def test_the_progress_of_a_pipeline_is_not_told(driver: Driver) -> None:
    pipeline = Pipeline(id=ids.new_id(), tenant="", name="lake", created_ms=1, offset=0, seen_ms=1)
    driver.change(puts=[pipeline])
    moved = msgspec.structs.replace(pipeline, offset=5, seen_ms=2)
    driver.change(puts=[moved])
    assert driver.store.records.get(Pipeline, pipeline.id) == moved
    assert driver.kinds() == ["pipeline_created"]
    driver.change(drops=[moved])
    assert driver.kinds() == ["pipeline_created", "pipeline_deleted"]


def test_a_tenants_own_record_is_told(driver: Driver) -> None:
    tenant = Tenant(id=TENANT, tenant=TENANT, name="default", created_ms=1, organization="o")
    driver.change(puts=[tenant])
    [event] = driver.events()
    assert (event["kind"], event["tenant"], event["queue"]) == ("tenant_created", TENANT, "")


def test_any_range_reads_the_same_events(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcd")
    for message in driver.lease(queue, count=3):
        driver.ack(queue, message)
    driver.publish(queue, *"ef")
    everything = driver.events()
    last = driver.last()
    assert len(everything) == last
    for after in range(last + 1):
        for limit in range(last + 2):
            wanted = everything[after : after + limit]
            assert driver.events(after=after, limit=limit) == wanted
    assert driver.events(after=last + 100, limit=5) == []


def test_what_was_read_at_an_offset_never_changes(driver: Driver, queue: Queue) -> None:
    headers = {"k": ["v"]}
    driver.publish(queue, Draft(b"a", headers=headers))
    first = driver.events()
    first_again = driver.events()
    for event in first_again:
        event.get("headers", {}).clear()
        event.get("detail", {}).clear()
    driver.update(queue, name="renamed")
    driver.retry(queue, driver.lease_one(queue))
    driver.purge(queue, upto_seq=9)
    assert driver.events()[: len(first)] == first


def test_a_trim_forgets_the_oldest_events_and_only_those(driver: Driver, queue: Queue) -> None:
    for body in "abcde":
        driver.publish(queue, body)
    everything = driver.events()
    size = driver.run(driver.store.journal.head()).bytes
    forgotten = driver.run(driver.store.journal.trim(upto=3))
    assert forgotten == 3
    head = driver.run(driver.store.journal.head())
    assert (head.first, head.last) == (4, 6)
    assert 0 < head.bytes < size
    assert driver.events() == everything[3:]
    assert driver.events(after=1, limit=2) == everything[3:5]
    assert driver.events(after=4) == everything[4:]


def test_a_trim_keeps_what_lies_above(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abcdefgh")
    driver.publish(queue, "i")
    everything = driver.events()
    driver.run(driver.store.journal.trim(upto=5))
    head = driver.run(driver.store.journal.head())
    assert head.first <= 6
    assert driver.events() == everything[head.first - 1 :]


def test_a_trim_spares_what_is_not_old_enough(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    driver.advance(10)
    driver.publish(queue, "b")
    driver.publish(queue, "c")
    before_ms = driver.now_ms
    assert driver.run(driver.store.journal.trim(upto=4, before_ms=before_ms)) == 2
    assert driver.run(driver.store.journal.head()).first == 3
    assert driver.run(driver.store.journal.trim(upto=3, before_ms=before_ms + 1)) == 1
    assert driver.run(driver.store.journal.head()).first == 4


def test_offsets_go_on_after_a_trim(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    last = driver.last()
    driver.run(driver.store.journal.trim(upto=last))
    driver.publish(queue, "b")
    assert driver.last() == last + 1
    assert [event["offset"] for event in driver.events(after=last)] == [last + 1]


def test_a_trim_below_the_first_offset_forgets_nothing(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    assert driver.run(driver.store.journal.trim(upto=0)) == 0
    driver.run(driver.store.journal.trim(upto=1))
    assert driver.run(driver.store.journal.trim(upto=1)) == 0
    assert driver.last() == 2


def test_runs_are_in_order_and_do_not_overlap(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *"abc")
    driver.lease(queue, count=2)
    driver.publish(queue, "d")
    runs = driver.run(driver.store.journal.read(after=0, limit=100))
    expected = 1
    for run in runs:
        assert run.offset == expected
        assert run.count >= 1
        expected += run.count


def test_values_that_only_compare_equal_are_told_apart(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    driver.publish(
        queue, *(Draft(b"a", headers={"k": value}) for value in (1, True, 1.0, 0, False, None))
    )
    told = [event["headers"]["k"] for event in driver.events(after=before)]
    assert [repr(value) for value in told] == ["1", "True", "1.0", "0", "False", "None"]


def test_checking_a_store_that_works_is_no_event(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a")
    before, figures = driver.last(), driver.store.health.figures()
    driver.run(driver.store.health.check())
    assert driver.last() == before
    assert all(driver.store.health.figures()[name] >= value for name, value in figures.items())


# --- what happened when ---


def test_an_offset_is_looked_up_by_time(driver: Driver, queue: Queue) -> None:
    start_ms = driver.now_ms
    driver.publish(queue, "a", "b")
    driver.advance(10)
    driver.publish(queue, "c")
    driver.lease(queue)
    driver.advance(10)
    driver.publish(queue, "d")
    times = [event["at_ms"] - start_ms for event in driver.events()]
    assert times == [0, 0, 0, 10, 10, 10, 10, 20]
    found = [driver.offset_at(start_ms + ms) for ms in (-1, 0, 1, 9, 10, 11, 20, 21)]
    assert found == [0, 0, 3, 3, 3, 7, 7, 8]
    for ms in range(-1, 22):
        rest = driver.events(after=driver.offset_at(start_ms + ms))
        assert rest == [event for event in driver.events() if event["at_ms"] >= start_ms + ms]


def test_an_empty_journal_begins_at_zero(driver: Driver) -> None:
    assert [driver.offset_at(at_ms) for at_ms in (0, driver.now_ms)] == [0, 0]


def test_an_offset_is_looked_up_in_what_is_left_of_the_journal(
    driver: Driver, queue: Queue
) -> None:
    start_ms = driver.now_ms
    for body in "abc":
        driver.advance(10)
        driver.publish(queue, body)
    driver.run(driver.store.journal.trim(upto=2))
    assert [driver.offset_at(start_ms + ms) for ms in (0, 20, 21, 30, 31)] == [2, 2, 3, 3, 4]
    driver.run(driver.store.journal.trim(upto=3))
    assert [driver.offset_at(start_ms + ms) for ms in (0, 30, 31)] == [3, 3, 4]


def test_a_long_journal_is_read_in_parts_and_at_least_one_row_at_a_time(
    driver: Driver, queue: Queue
) -> None:
    for number in range(20):
        driver.publish(queue, Draft(bytes(1_000) + str(number).encode()))
    last = driver.last()

    def read(after: int, bytes_max: int | None) -> int:
        """The last offset of what is read in one go."""
        runs = driver.run(driver.store.journal.read(after=after, limit=1_000, bytes_max=bytes_max))
        assert runs[0].offset <= after + 1
        return runs[-1].offset + runs[-1].count - 1

    assert read(0, None) == last
    assert read(last - 20, 1) == last - 19
    assert last - 20 < read(last - 20, 5_000) <= last - 14
    assert read(last - 20, 1 << 20) == last


def test_a_trim_leaves_the_bodies_of_later_events(driver: Driver, queue: Queue) -> None:
    for body in ("a", "b", "c"):
        driver.publish(queue, body)
        driver.ack(queue, driver.lease_one(queue))
    published = [event["offset"] for event in driver.events() if event["kind"] == "published"]
    driver.run(driver.store.journal.trim(upto=published[1] - 1))
    left = driver.events(after=published[1] - 1)
    assert [event["body"] for event in left if event["kind"] == "published"] == [b"b", b"c"]
