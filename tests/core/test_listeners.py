"""Listeners: made, changed, given new secrets, disabled, deleted, and told of the past."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from courier import ids
from courier.core import listeners as module
from courier.core.errors import Conflict, NotFound, OverLimit
from courier.core.keys import Reach
from courier.core.listeners import LISTENERS_MAX, SECRETS_MAX, Backfilled, record_name
from courier.core.types import (
    DAY_MS,
    HOUR_MS,
    Draft,
    Listener,
    Liveness,
    Queue,
    Secret,
)
from tests.core.desk import CALLER, TENANT, CoreDesk

EVERYTHING = Reach("queues:write")


class Desk(CoreDesk):
    """A store with one queue, at the time of a clock that moves when told to."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.listeners = self.admin.listeners
        self.queue = self.new_queue()

    def new_queue(self) -> Queue:
        now_ms = self.clock.now_ms()
        id = ids.new_id()
        queue = Queue(id=id, tenant=TENANT, name=id, created_ms=now_ms, modified_ms=now_ms)
        return self.run(self.admin.create_queue(queue, actor=CALLER))

    def listener(self, title: str = "here", queue: Queue | None = None) -> Listener:
        parent = (queue or self.queue).id
        now_ms = self.clock.now_ms()
        return Listener(
            id=ids.new_id(),
            tenant=TENANT,
            parent=parent,
            name=record_name(parent, title),
            created_ms=now_ms,
            modified_ms=now_ms,
            title=title,
            url="https://example.com/hook",
            liveness_url="https://example.com/live",
            secrets=(Secret("first"),),
        )

    def create(self, title: str = "here", queue: Queue | None = None) -> Listener:
        listener = self.listener(title, queue)
        self.run(self.listeners.create(listener, actor=CALLER))
        return listener

    def known(self, listener: Listener) -> Listener | None:
        return self.listeners.get(listener.id)

    def all(self) -> list[Listener]:
        return self.store.records.scan(Listener)

    def liveness(self) -> list[Liveness]:
        return self.store.records.scan(Liveness)

    def note(self, listener: Listener, **fields: Any) -> None:
        liveness = Liveness(
            id=listener.id,
            tenant=TENANT,
            parent=listener.id,
            created_ms=listener.created_ms,
            **fields,
        )
        self.run(self.listeners.note_liveness([liveness]))

    def update(self, listener: Listener, **fields: Any) -> Listener:
        return self.run(
            self.listeners.update(
                listener.parent, listener.id, lambda known: replace(known, **fields), actor=CALLER
            )
        )

    def rotate(self, listener: Listener, sealed: str) -> Listener:
        return self.run(
            self.listeners.rotate(listener.parent, listener.id, Secret(sealed), actor=CALLER)
        )

    def publish(self, count: int) -> None:
        drafts = [Draft(b"x") for _ in range(count)]
        self.run(
            self.store.publish([(self.queue.id, drafts)], actor=CALLER, now_ms=self.clock.now_ms())
        )

    def backfill(self, listener: Listener, **asked: int) -> Backfilled:
        wanted = {"since_ms": 0, "until_ms": self.clock.now_ms() + 1, "after_seq": 0, **asked}
        return self.run(self.listeners.backfill(listener, **wanted))

    def open_pushes(self, listener: Listener) -> int:
        now_ms = self.clock.now_ms()
        return self.run(self.store.pushes.stats([listener.id], now_ms=now_ms))[listener.id].open


# --- made and changed ---


def test_a_new_listener_is_there(desk: Desk) -> None:
    listener = desk.create()
    assert desk.known(listener) == listener
    assert desk.listeners.of_queue(desk.queue.id, listener.id) == listener


def test_a_listener_is_looked_for_on_its_own_queue(desk: Desk) -> None:
    listener, other = desk.create(), desk.new_queue()
    for queue, id in ((other.id, listener.id), (desk.queue.id, ids.new_id())):
        with pytest.raises(NotFound):
            desk.listeners.of_queue(queue, id)


def test_a_queue_that_is_gone_gets_no_listener(desk: Desk) -> None:
    desk.run(desk.admin.delete_queue(TENANT, desk.queue.id, reach=EVERYTHING, actor=CALLER))
    with pytest.raises(NotFound):
        desk.create()
    assert desk.all() == []


def test_a_title_is_taken_once_on_a_queue(desk: Desk) -> None:
    first = desk.create("same")
    with pytest.raises(Conflict, match="'same'"):
        desk.create("same")
    elsewhere = desk.create("same", desk.new_queue())
    assert desk.all() == sorted([first, elsewhere], key=lambda each: each.name)


def test_a_title_is_free_again_after_a_change(desk: Desk) -> None:
    first = desk.create("first")
    second = desk.create("second")
    with pytest.raises(Conflict, match="'second'"):
        desk.update(first, title="second")
    desk.update(second, title="third")
    assert desk.update(first, title="second").name == record_name(desk.queue.id, "second")
    desk.create("first")


def test_a_queue_has_room_for_so_many(desk: Desk) -> None:
    made = [desk.create(f"no-{number}") for number in range(LISTENERS_MAX)]
    with pytest.raises(OverLimit):
        desk.create("one-more")
    assert len(desk.all()) == LISTENERS_MAX == 100
    desk.update(made[0], title="changed")
    desk.create("there", desk.new_queue())
    desk.run(desk.listeners.delete(desk.queue.id, made[0].id, actor=CALLER))
    desk.create("one-more")


def test_a_change_is_dated(desk: Desk) -> None:
    listener = desk.create()
    desk.clock.advance(5)
    changed = desk.update(listener, timeout_ms=1_000)
    assert changed == replace(listener, timeout_ms=1_000, modified_ms=listener.modified_ms + 5)
    assert desk.known(listener) == changed


# --- secrets ---


def test_a_replaced_secret_is_kept_for_a_day(desk: Desk) -> None:
    listener = desk.create()
    now_ms = desk.clock.now_ms()
    rotated = desk.rotate(listener, "second")
    assert rotated.secrets == (Secret("second"), Secret("first", now_ms + DAY_MS))
    desk.clock.advance(HOUR_MS)
    again = desk.rotate(listener, "third").secrets
    assert again == (
        Secret("third"),
        Secret("second", now_ms + HOUR_MS + DAY_MS),
        Secret("first", now_ms + DAY_MS),
    )
    desk.clock.advance(DAY_MS - HOUR_MS)
    assert [each.sealed for each in desk.rotate(listener, "fourth").secrets] == [
        "fourth",
        "third",
        "second",
    ]


def test_there_is_a_limit_to_the_secrets_of_a_listener(desk: Desk) -> None:
    listener = desk.create()
    for number in range(2 * SECRETS_MAX):
        rotated = desk.rotate(listener, str(number))
    newest = [str(number) for number in reversed(range(SECRETS_MAX, 2 * SECRETS_MAX))]
    assert [each.sealed for each in rotated.secrets] == newest


# --- disabled, watched, deleted ---


def test_a_listener_is_disabled_once(desk: Desk) -> None:
    listener = desk.create()
    desk.run(desk.listeners.disable(listener.id, "gone", actor=CALLER))
    desk.run(desk.listeners.disable(listener.id, "user", actor=CALLER))
    known = desk.known(listener)
    assert known and known.disabled_by == "gone"
    desk.update(listener, disabled_by="")
    known = desk.known(listener)
    assert known and known.disabled_by == ""


def test_nothing_is_noted_of_a_listener_that_is_gone(desk: Desk) -> None:
    listener = desk.create()
    desk.note(listener, state="stable")
    assert [each.state for each in desk.liveness()] == ["stable"]
    desk.run(desk.listeners.delete(desk.queue.id, listener.id, actor=CALLER))
    assert desk.all() == [] and desk.liveness() == []
    desk.note(listener, state="unstable")
    desk.run(desk.listeners.disable(listener.id, "gone", actor=CALLER))
    assert desk.all() == [] and desk.liveness() == []
    with pytest.raises(NotFound):
        desk.run(desk.listeners.delete(desk.queue.id, listener.id, actor=CALLER))


def test_listeners_go_with_their_queue(desk: Desk) -> None:
    desk.note(desk.create())
    kept = desk.create(queue=desk.new_queue())
    desk.note(kept)
    desk.run(desk.admin.delete_queue(TENANT, desk.queue.id, reach=EVERYTHING, actor=CALLER))
    assert [each.id for each in desk.all()] == [each.id for each in desk.liveness()] == [kept.id]


def test_listeners_go_with_their_tenant(desk: Desk) -> None:
    desk.note(desk.create())
    desk.run(desk.admin.clear_tenant(TENANT, actor=CALLER))
    assert desk.all() == [] and desk.liveness() == []


# --- backfill ---


def test_messages_from_before_are_bound_once(desk: Desk) -> None:
    desk.publish(3)
    listener = desk.create()
    assert desk.open_pushes(listener) == 0
    assert desk.backfill(listener) == Backfilled(3, None)
    assert desk.open_pushes(listener) == 3
    desk.publish(2)
    assert desk.backfill(listener) == Backfilled(0, None)
    assert desk.open_pushes(listener) == 5


def test_a_backfill_takes_the_times_that_it_is_given(desk: Desk) -> None:
    start_ms = desk.clock.now_ms()
    for _ in range(4):
        desk.publish(1)
        desk.clock.advance(10)
    listener = desk.create()
    assert desk.backfill(listener, since_ms=start_ms + 10, until_ms=start_ms + 30).bound == 2
    assert desk.backfill(listener, until_ms=start_ms).bound == 0
    assert desk.backfill(listener).bound == 2


def test_a_long_backfill_says_where_to_go_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKFILL_STEP", 2)
    monkeypatch.setattr(module, "BACKFILL_STEPS_MAX", 3)
    desk.publish(15)
    listener = desk.create()
    done = desk.backfill(listener)
    assert done == Backfilled(6, 6)
    assert done.next_seq is not None
    done = desk.backfill(listener, after_seq=done.next_seq)
    assert done == Backfilled(6, 12)
    assert done.next_seq is not None
    assert desk.backfill(listener, after_seq=done.next_seq) == Backfilled(3, None)
    assert desk.open_pushes(listener) == 15
    # One that comes to the end with its last step has nowhere to go on to.
    assert desk.backfill(listener, after_seq=9) == Backfilled(0, None)
