import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from courier import ids
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.records import Change, Decide, Records, decided
from courier.core.store import Store
from courier.core.types import (
    AnyRecord,
    Binding,
    Consumer,
    Domain,
    Draft,
    EventSubscription,
    Exchange,
    Grant,
    Key,
    KeyUse,
    Listener,
    Liveness,
    Pipeline,
    PurgeStatus,
    Queue,
    Rule,
    Schema,
    Secret,
    Session,
    Tenant,
    Worker,
)
from tests.conformance.store.driver import CALLER, TENANT, Driver

OTHER_TENANT = "c0" + "8" * 30


def sample_queue(name: str = "orders", **fields: Any) -> Queue:
    return Queue(
        **{"id": ids.new_id(), "tenant": TENANT, "created_ms": 5, "modified_ms": 6, **fields},
        name=name,
    )


def sample_consumer(parent: str, **fields: Any) -> Consumer:
    return Consumer(
        **{"id": ids.new_id(), "tenant": TENANT, "created_ms": 5, "mode": "pull", **fields},
        parent=parent,
        batch_size=5,
    )


def sample_key(name: str = "orders", **fields: Any) -> Key:
    return Key(
        id=ids.new_id(),
        tenant=TENANT,
        name=name,
        created_ms=5,
        digest="d" * 64,
        hint="co_ab",
        grants=(Grant("messages:read", ("orders", "returns")), Grant("journal")),
        enabled=False,
        expires_ms=99,
        **fields,
    )


def sample_binding(parent: str, rule: Rule | None = None) -> Binding:
    return Binding(
        id=ids.new_id(),
        tenant=TENANT,
        parent=parent,
        created_ms=5,
        queue=ids.new_id(),
        rule=rule,
    )


RECORDS: list[AnyRecord] = [
    Tenant(id=TENANT, tenant=TENANT, name="default", created_ms=1, organization="o" * 32),
    sample_key(),
    sample_key("app", kind="app", sealed="s" * 40, modified_ms=7, labels={"shown": [1, None]}),
    KeyUse(id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=5, at_ms=9),
    Session(id=ids.new_id(), tenant=TENANT, parent=ids.new_id(), created_ms=5, expires_ms=99),
    sample_queue("groups", fifo=True, encrypted=True, schema=ids.new_id()),
    sample_queue(
        delay_ms=1,
        retention_ms=2,
        lease_ms=3,
        retry_delay_ms=4,
        attempts_max=None,
        dead_letter=ids.new_id(),
        paused=True,
        frozen=True,
        purge=PurgeStatus(7, 9, completed=True),
        labels={"jurisdiction": "eu"},
    ),
    Schema(
        id=ids.new_id(),
        tenant=TENANT,
        parent=ids.new_id(),
        created_ms=5,
        fingerprint="f" * 16,
        properties={"size": {"type": "number", "required": True}, "größe": [None, 1.5]},
    ),
    Exchange(
        id=ids.new_id(),
        tenant=TENANT,
        name="orders",
        created_ms=5,
        modified_ms=6,
        encrypted=True,
    ),
    sample_binding(ids.new_id()),
    sample_binding(ids.new_id(), Rule("kind", "text", "any_of", ["a", "größe"])),
    sample_binding(ids.new_id(), Rule("weight", "number", "range", [-2.5, 10])),
    sample_binding(ids.new_id(), Rule("kind", "text", "exists", False)),
    sample_consumer(ids.new_id(), script="mill", concurrency_max=3, wait_ms_max=0),
    Worker(
        id=ids.new_id(),
        tenant="",
        name="mill",
        created_ms=5,
        url="https://mill.example",
        secrets=(Secret("s", until_ms=9), Secret("t")),
    ),
    Listener(
        id=ids.new_id(),
        tenant=TENANT,
        parent=ids.new_id(),
        name="orders/mill",
        created_ms=5,
        title="mill",
        modified_ms=6,
        url="https://mill.example/push",
        liveness_url="https://mill.example/live",
        secrets=(Secret("s", until_ms=9), Secret("t")),
        private="p",
        timeout_ms=7,
        attempts_max=8,
        ordered=True,
        envelope=True,
        disabled_by="gone",
    ),
    Liveness(
        id=ids.new_id(),
        tenant=TENANT,
        parent=ids.new_id(),
        created_ms=5,
        state="unstable",
        in_row=1,
        success_count=2,
        failure_count=3,
        last_success_ms=4,
        last_failure_ms=5,
        last_failure="timed out",
    ),
    Domain(
        id=ids.new_id(),
        tenant=TENANT,
        name="mill.example:443",
        created_ms=5,
        modified_ms=6,
        hostname="mill.example",
        port=443,
        file_name="proof.txt",
        file_content="proof",
        challenged_ms=7,
        expires_ms=8,
        verified_ms=9,
    ),
    EventSubscription(
        id=ids.new_id(),
        tenant=TENANT,
        parent=ids.new_id(),
        name="buckets",
        created_ms=1,
        title="Buckets",
        modified_ms=2,
        enabled=True,
        source={"type": "r2"},
        events=("bucket.created", "bucket.deleted"),
    ),
    Pipeline(id=ids.new_id(), tenant="", name="lake", created_ms=1, offset=12, seen_ms=3),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.every_value
def test_a_record_is_read_as_it_was_put(driver: Driver, record: AnyRecord) -> None:
    driver.change(puts=[record])
    store, kind = driver.store, type(record)
    assert store.records.get(kind, record.id) == record
    found = store.records.named(kind, tenant=record.tenant, name=record.name)
    assert found == (record if record.name else None)
    assert store.records.scan(kind) == [record]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_dropped_record_is_gone(driver: Driver, record: AnyRecord) -> None:
    driver.change(puts=[record])
    driver.change(drops=[record])
    store, kind = driver.store, type(record)
    assert store.records.get(kind, record.id) is None
    assert store.records.named(kind, tenant=record.tenant, name=record.name) is None
    assert store.records.scan(kind) == []


def test_records_of_different_kinds_may_share_an_id_and_a_name(driver: Driver) -> None:
    queue = sample_queue("shared")
    key = msgspec.structs.replace(sample_key("shared"), id=queue.id)
    driver.change(puts=[queue, key])
    assert driver.store.records.get(Queue, queue.id) == queue
    assert driver.store.records.get(Key, queue.id) == key
    assert driver.store.records.get(Tenant, queue.id) is None


def test_a_put_of_a_known_id_replaces_the_record(driver: Driver) -> None:
    queue = sample_queue()
    changed = msgspec.structs.replace(queue, name="returns", delay_ms=9)
    driver.change(puts=[queue])
    driver.change(puts=[changed])
    assert driver.store.records.scan(Queue) == [changed]
    assert driver.store.records.named(Queue, tenant=TENANT, name="orders") is None


@pytest.mark.one_process
@pytest.mark.one_node
def test_a_record_is_the_same_object_until_it_is_changed(driver: Driver) -> None:
    records, queue, other = driver.store.records, sample_queue(), sample_queue("returns")
    driver.change(puts=[queue, other])
    first, version = records.require(Queue, queue.id), records.version
    driver.change(puts=[msgspec.structs.replace(other, delay_ms=9)])
    assert driver.store.records is records
    assert records.get(Queue, queue.id) is first
    assert records.named(Queue, tenant=TENANT, name="orders") is first
    assert records.scan(Queue)[0] is first
    assert records.version > version
    driver.change(puts=[msgspec.structs.replace(queue, delay_ms=9)])
    assert records.get(Queue, queue.id) is not first
    driver.change(drops=[queue])
    assert records.get(Queue, queue.id) is None
    with pytest.raises(NotFound) as missing:
        records.require(Queue, queue.id)
    assert (missing.value.kind, missing.value.ref) == ("queue", queue.id)


def test_a_decision_sees_what_others_of_its_group_decided(driver: Driver) -> None:
    store, queue = driver.store, sample_queue(delay_ms=0)
    driver.change(puts=[queue])

    def more(records: Records) -> Change[int]:
        known = records.require(Queue, queue.id)
        assert records.named(Queue, tenant=TENANT, name=known.name) is known
        assert records.scan(Queue, tenant=TENANT) == [known]
        longer = msgspec.structs.replace(known, delay_ms=known.delay_ms + 1)
        return Change(puts=[longer], answer=longer.delay_ms)

    async def all_at_once() -> list[int]:
        calls = [store.change(more, actor=CALLER, now_ms=driver.now_ms) for _ in range(20)]
        return await asyncio.gather(*calls)

    assert sorted(driver.run(all_at_once())) == list(range(1, 21))
    assert store.records.require(Queue, queue.id).delay_ms == 20


@pytest.mark.one_node
def test_a_limit_holds_for_those_who_decide_at_once(driver: Driver) -> None:
    """Names that others of the group take are taken, those that they give up are free."""
    store, old = driver.store, sample_queue("old", created_ms=1)
    driver.change(puts=[old])

    def add(name: str) -> Decide[None]:
        def decide(records: Records) -> Change[None]:
            if records.count(Queue, tenant=TENANT) >= 4:
                raise OverLimit("queues", limit=4, actual=5)
            assert records.count(Queue) == len(records.scan(Queue))
            return Change(puts=[sample_queue(name)])

        return decide

    async def all_at_once() -> list[object]:
        decisions = [add("a"), add("a"), decided(drops=[old]), add("old")]
        decisions += [add("b"), add("c"), add("d")]
        calls = [store.change(each, actor=CALLER, now_ms=driver.now_ms) for each in decisions]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = [type(answer) for answer in driver.run(all_at_once())]
    done = type(None)
    assert answers == [done, Conflict, done, done, done, done, OverLimit]
    assert sorted(queue.name for queue in store.records.scan(Queue)) == ["a", "b", "c", "old"]


def test_a_decision_that_raises_changes_nothing_and_harms_nobody(driver: Driver) -> None:
    store, queue = driver.store, sample_queue()

    def fail(_: Records) -> Change[None]:
        raise ValueError("undecided")

    async def all_at_once() -> list[object]:
        decisions = [decided(puts=[queue]), fail, decided(puts=[sample_queue("b")])]
        calls = [store.change(each, actor=CALLER, now_ms=driver.now_ms) for each in decisions]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = driver.run(all_at_once())
    assert answers[0] is None and answers[2] is None
    assert isinstance(answers[1], ValueError)
    assert [each.name for each in store.records.scan(Queue)] == ["b", "orders"]


def test_a_decision_to_change_nothing_is_no_event(driver: Driver) -> None:
    before = driver.run(driver.store.journal.head()).last
    nothing: Change[str] = Change(answer="as it was")
    call = driver.store.change(lambda _: nothing, actor=CALLER, now_ms=driver.now_ms)
    assert driver.run(call) == "as it was"
    assert driver.run(driver.store.journal.head()).last == before


def test_names_are_looked_up_exactly_and_within_their_tenant(driver: Driver) -> None:
    here, there = sample_queue(), sample_queue(tenant=OTHER_TENANT)
    driver.change(puts=[here, there])
    named = driver.store.records.named
    assert named(Queue, tenant=TENANT, name="orders") == here
    assert named(Queue, tenant=OTHER_TENANT, name="orders") == there
    for name in ("Orders", "order", "orders ", "order_", "%", ""):
        assert named(Queue, tenant=TENANT, name=name) is None
    assert named(Queue, tenant="", name="orders") is None


def test_a_scan_lists_the_oldest_first_then_by_name_and_id(driver: Driver) -> None:
    wanted = [
        sample_queue("z", created_ms=1),
        sample_queue("a", created_ms=2),
        sample_queue("b", created_ms=2, id="c0" + "1" * 30),
        sample_queue("b", created_ms=2, id="c0" + "2" * 30, tenant=OTHER_TENANT),
        sample_queue("a", created_ms=3, tenant=OTHER_TENANT),
    ]
    driver.change(puts=wanted[::-1])
    assert driver.store.records.scan(Queue) == wanted


def test_a_scan_is_narrowed_by_tenant_and_parent(driver: Driver) -> None:
    left, right = ids.new_id(), ids.new_id()
    here = sample_consumer(left)
    there = sample_consumer(right, tenant=OTHER_TENANT)
    operators = sample_consumer("", tenant="")
    driver.change(puts=[here, there, operators])

    def found(**narrowed: str) -> set[str]:
        return {record.id for record in driver.store.records.scan(Consumer, **narrowed)}

    assert found() == {here.id, there.id, operators.id}
    assert found(tenant=TENANT) == {here.id}
    assert found(tenant="") == {operators.id}
    assert found(parent=right) == {there.id}
    assert found(parent="") == {operators.id}
    assert found(tenant=TENANT, parent=right) == set()


def test_queues_are_found_by_the_one_they_bury_in(driver: Driver) -> None:
    dead, other = driver.queue("dead"), driver.queue("other")
    one, two = (driver.queue(name, dead_letter=dead.id) for name in ("one", "two"))

    def buriers(queue: Queue) -> list[str]:
        found = driver.store.records.scan(Queue, tenant=TENANT, parent=queue.id)
        return [each.name for each in found]

    assert (buriers(dead), buriers(other)) == (["one", "two"], [])
    driver.change(puts=[msgspec.structs.replace(one, dead_letter=other.id)], drops=[two])
    assert (buriers(dead), buriers(other)) == ([], ["one"])


def test_a_taken_name_is_a_conflict_and_nothing_of_the_call_happens(driver: Driver) -> None:
    taken, dropped = sample_queue("orders"), sample_queue("old")
    driver.change(puts=[taken, dropped])
    before = driver.last()
    with pytest.raises(Conflict) as refused:
        driver.change(puts=[sample_queue("new"), sample_queue("orders")], drops=[dropped])
    assert (refused.value.kind, refused.value.ref) == ("queue", "orders")
    assert {q.name for q in driver.store.records.scan(Queue)} == {"orders", "old"}
    assert driver.last() == before


def test_two_new_records_of_one_call_cannot_share_a_name(driver: Driver) -> None:
    with pytest.raises(Conflict) as refused:
        driver.change(puts=[sample_key("same"), sample_key("same")])
    assert (refused.value.kind, refused.value.ref) == ("key", "same")
    assert driver.store.records.scan(Key) == []


def test_a_rename_onto_a_taken_name_is_a_conflict(driver: Driver) -> None:
    first, second = sample_queue("first"), sample_queue("second")
    driver.change(puts=[first, second])
    with pytest.raises(Conflict):
        driver.change(puts=[msgspec.structs.replace(second, name="first")])
    assert driver.store.records.get(Queue, second.id) == second


def test_a_name_is_free_in_another_tenant_and_for_another_kind(driver: Driver) -> None:
    other = sample_queue("orders", tenant=OTHER_TENANT)
    driver.change(puts=[sample_queue("orders"), other, sample_key()])
    assert len(driver.store.records.scan(Queue)) == 2


def test_a_record_may_keep_its_own_name(driver: Driver) -> None:
    queue = sample_queue()
    driver.change(puts=[queue])
    driver.change(puts=[msgspec.structs.replace(queue, delay_ms=1)])
    assert driver.store.records.scan(Queue)[0].delay_ms == 1


def test_a_dropped_or_renamed_record_frees_its_name_in_the_same_call(driver: Driver) -> None:
    first, second = sample_queue("orders"), sample_queue("orders")
    driver.change(puts=[first])
    driver.change(puts=[second], drops=[first])
    renamed = msgspec.structs.replace(second, name="returns")
    third = sample_queue("orders")
    driver.change(puts=[renamed, third])
    assert {q.id: q.name for q in driver.store.records.scan(Queue)} == {
        second.id: "returns",
        third.id: "orders",
    }


def test_records_without_a_name_are_not_compared(driver: Driver) -> None:
    driver.change(puts=[sample_consumer(ids.new_id()), sample_consumer(ids.new_id())])
    assert len(driver.store.records.scan(Consumer)) == 2


def test_an_exchange_has_any_number_of_bindings(driver: Driver) -> None:
    exchange, other = ids.new_id(), ids.new_id()
    bindings = [sample_binding(exchange) for _ in range(3)]
    driver.change(puts=[*bindings, sample_binding(other)])
    found = driver.store.records.scan(Binding, parent=exchange)
    assert {binding.id for binding in found} == {binding.id for binding in bindings}


def test_an_exchange_may_have_the_name_of_a_queue(driver: Driver, queue: Queue) -> None:
    exchange = Exchange(
        id=ids.new_id(), tenant=TENANT, name=queue.name, created_ms=1, modified_ms=1
    )
    driver.change(puts=[exchange])
    assert driver.store.records.named(Queue, tenant=TENANT, name=queue.name) == queue
    assert driver.store.records.named(Exchange, tenant=TENANT, name=queue.name) == exchange
    with pytest.raises(Conflict) as refused:
        driver.change(puts=[msgspec.structs.replace(exchange, id=ids.new_id())])
    assert (refused.value.kind, refused.value.ref) == ("exchange", queue.name)


def test_a_queue_has_at_most_one_consumer(driver: Driver, queue: Queue) -> None:
    first, second = sample_consumer(queue.id), sample_consumer(queue.id)
    driver.change(puts=[first])
    with pytest.raises(Conflict) as refused:
        driver.change(puts=[second])
    assert (refused.value.kind, refused.value.ref) == ("consumer", queue.id)
    driver.change(puts=[msgspec.structs.replace(first, batch_size=9)])
    driver.change(puts=[second], drops=[first])
    assert driver.store.records.scan(Consumer) == [second]


def test_dropping_what_is_not_there_changes_nothing(driver: Driver, queue: Queue) -> None:
    before = driver.last()
    driver.change(drops=[sample_queue("ghost"), sample_consumer(queue.id)])
    assert driver.last() == before
    assert driver.store.records.scan(Queue) == [queue]


def test_names_may_hold_any_text(driver: Driver) -> None:
    names = ["o'rders", 'o"rders', "o%rders_", "größe", "\N{OWL}", "a/b c\n", "o\\rders"]
    driver.change(puts=[sample_queue(name) for name in names])
    for name in names:
        found = driver.store.records.named(Queue, tenant=TENANT, name=name)
        assert found is not None
        assert found.name == name


VERBS: dict[str, Callable[[Store, str], Coroutine[Any, Any, Any]]] = {
    "publish": lambda s, q: s.publish([(q, [Draft(b"a")])], actor=CALLER, now_ms=9),
    "lease": lambda s, q: s.lease(q, count=1, lease_ms=1, actor=CALLER, now_ms=9),
    "settle": lambda s, q: s.settle(q, [], actor=CALLER, now_ms=9),
    "peek": lambda s, q: s.messages.peek(q, count=1, now_ms=9),
    "find": lambda s, q: s.messages.find(q, "m", now_ms=9),
    "rename": lambda s, q: s.rename(q, 1, "n", actor=CALLER, now_ms=9),
    "remove": lambda s, q: s.remove(q, [1], actor=CALLER, now_ms=9),
    "purge": lambda s, q: s.purge(q, upto_seq=9, limit=9, actor=CALLER, now_ms=9),
    "tail": lambda s, q: s.messages.tail(q),
    "browse": lambda s, q: s.messages.browse(q, after_seq=0, limit=1, now_ms=9),
    "browse kept": lambda s, q: s.messages.browse(q, after_seq=0, limit=1, now_ms=9, kept=True),
    "pushes": lambda s, q: s.pushes.of_message(q, 1, now_ms=9),
    "redrive": lambda s, q: s.redrive(q, seqs=[1], actor=CALLER, now_ms=9),
    "levels": lambda s, q: s.past.levels([q], since_ms=0),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_an_unknown_queue_is_refused(driver: Driver, verb: str) -> None:
    unknown = ids.new_id()
    with pytest.raises(NotFound) as refused:
        driver.run(VERBS[verb](driver.store, unknown))
    assert (refused.value.kind, refused.value.ref) == ("queue", unknown)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_a_dropped_queue_is_refused_before_and_after_its_sweep(
    driver: Driver, queue: Queue, verb: str
) -> None:
    driver.publish(queue, "a", "b")
    driver.lease_one(queue)
    driver.change(drops=[queue])
    for _ in range(2):
        with pytest.raises(NotFound):
            driver.run(VERBS[verb](driver.store, queue.id))
        driver.sweep_all()


def test_a_queue_created_again_under_the_same_name_starts_empty(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, "a", "b")
    driver.change(drops=[queue])
    again = driver.queue(queue.name)
    assert driver.stats(again).count == 0
    assert driver.tail(again) == 0
    driver.publish(again, "c")
    driver.sweep_all()
    assert [m.body for m in driver.lease(again)] == [b"c"]
