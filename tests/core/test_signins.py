"""Failed sign-ins: what the journal gets of them, and how little however many there are."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from courier.core import journal
from courier.core.errors import StoreUnavailable
from courier.core.signins import FAILURES_MAX, KIND, Failure, SignIns
from courier.core.types import MINUTE_MS, Note
from tests.core.desk import CoreDesk
from tests.oracle.parts import Events

BAD = Failure("wrong_secret", "cloudflare", "192.0.2.1", "c0" + "7" * 30, "c0" + "1" * 30)


class Journal(Events):
    """One that can be away."""

    away = False

    async def note(self, notes: Sequence[Note], *, now_ms: int) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().note(notes, now_ms=now_ms)


class Desk(CoreDesk):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.store.journal = self.journal = Journal(self.store)
        self.signins = SignIns(self.clock)

    def flush(self, *, early: bool = False) -> None:
        now_ms = self.clock.now_ms()
        self.run(self.signins.flush(self.store, now_ms=now_ms, early=early))

    def events(self) -> list[dict[str, Any]]:
        runs = self.run(self.store.journal.read(after=0, limit=10_000))
        return list(journal.events(runs, after=0, limit=10_000))


def test_equal_failures_of_a_minute_are_one_event(desk: Desk) -> None:
    begun_ms = desk.clock.now_ms()
    for _ in range(1_000):
        desk.signins.failed(BAD)
    desk.clock.advance(MINUTE_MS - 1)
    desk.flush()
    assert desk.events() == []
    desk.clock.advance(1)
    desk.flush()
    (event,) = desk.events()
    assert event["kind"] in journal.KINDS
    assert (event["kind"], event["tenant"], event["actor"]) == (KIND, BAD.tenant, BAD.key)
    assert event["dialect"] == "cloudflare"
    assert event["detail"] == {
        "reason": "wrong_secret",
        "address": "192.0.2.1",
        "count": 1_000,
        "since_ms": begun_ms,
    }
    desk.clock.advance(MINUTE_MS)
    desk.flush()
    assert len(desk.events()) == 1


def test_failures_that_differ_are_told_apart(desk: Desk) -> None:
    others = [
        Failure("expired", *list(_values(BAD))[1:]),
        Failure("wrong_secret", "discue", "192.0.2.1", BAD.tenant, BAD.key),
        Failure("wrong_secret", "cloudflare", "192.0.2.2", BAD.tenant, BAD.key),
        Failure("wrong_secret", "cloudflare", "192.0.2.1"),
    ]
    for failure in (BAD, *others):
        desk.signins.failed(failure)
    desk.flush(early=True)
    assert len(desk.events()) == 5


def _values(failure: Failure) -> Iterator[str]:
    for name in failure.__struct_fields__:
        yield getattr(failure, name)


def test_a_stranger_with_very_many_addresses_does_not_fill_the_journal(desk: Desk) -> None:
    for number in range(20_000):
        desk.signins.failed(Failure("unknown_key", "discue", f"2001:db8::{number:x}"))
    desk.flush(early=True)
    events = desk.events()
    assert len(events) == FAILURES_MAX + 1
    assert sum(event["detail"]["count"] for event in events) == 20_000
    rest = [event for event in events if not event["detail"]["address"]]
    assert [event["detail"]["count"] for event in rest] == [20_000 - FAILURES_MAX]


def test_nothing_is_lost_or_grows_while_the_store_is_away(desk: Desk) -> None:
    desk.journal.away = True
    for turn in range(10):
        for number in range(FAILURES_MAX):
            desk.signins.failed(Failure("unknown_key", "discue", f"192.0.2.{turn}/{number}"))
        with pytest.raises(StoreUnavailable):
            desk.flush(early=True)
    desk.journal.away = False
    desk.flush(early=True)
    events = desk.events()
    assert len(events) <= FAILURES_MAX + 1
    assert sum(event["detail"]["count"] for event in events) == 10 * FAILURES_MAX


def test_a_clock_that_was_set_back_holds_nothing_up(desk: Desk) -> None:
    desk.signins.failed(BAD)
    desk.clock.advance(-10 * MINUTE_MS)
    desk.flush()
    assert len(desk.events()) == 1
