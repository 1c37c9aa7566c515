"""Every rule, from facts to a sentence or to nothing."""

from typing import Any

import pytest

from courier.console.recent import MINUTES, QUIET, History, Sums
from courier.console.rules import (
    Listening,
    QueueFacts,
    ReaderFacts,
    ServerFacts,
    looks_at,
    looks_at_server,
    who_left,
)
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

NOW_MS = 1_794_950_000_000 // MINUTE_MS * MINUTE_MS + 30_000


def history(*, buried_hour: int = 0, buried_before: int = 0, **each: int) -> History:
    """The same in every minute, the running one included."""
    return History((Sums(**each),) * MINUTES, buried_hour, buried_before)


def grown(leased: int = 0, lately: int = 0, ended: int = 0) -> History:
    """600 published a minute; `lately` leases in the last two minutes and the running one."""
    minutes = [Sums(published=600, published_bytes=6_000, leased=leased, ended=ended)] * MINUTES
    minutes[-3:] = [Sums(published=600, published_bytes=6_000, leased=lately, ended=ended)] * 3
    return History(tuple(minutes))


def quiet_once() -> History:
    """Grows, except in one minute."""
    minutes = [Sums(published=600)] * MINUTES
    minutes[4] = Sums(published=600, ended=600)
    return History(tuple(minutes))


def queue(**fields: Any) -> QueueFacts:
    return QueueFacts("c0" + "1" * 30, "orders", **fields)


def listener(**fields: Any) -> Listening:
    return Listening("l", "mailer", "https://example.org/", **fields)


CASES: list[tuple[str, QueueFacts, str]] = [
    ("nothing", queue(), ""),
    ("grows_alone", queue(count=1, history=grown()),
     "Grows by 10/s, at least since 21:03; nobody has leased from it in the last 10 minutes."),
    ("grows_alone", queue(count=1, history=grown(leased=5)),
     "Grows by 10/s, at least since 21:03; nobody has leased from it for 2 minutes."),
    ("nothing", queue(count=1, history=quiet_once()), ""),
    ("paused", queue(count=7, paused=True, history=grown()),
     "Paused: nothing is handed out; 7 messages wait."),
    ("grows", queue(count=1, history=grown(leased=5, lately=5, ended=300)),
     "Grows by 5/s, at least since 21:03, although consumers lease from it: they would have to be "
     "2.0 times as fast."),
    ("grows", queue(count=1, history=grown(leased=5, lately=5)),
     "Grows by 10/s, at least since 21:03, although consumers lease from it: they would have to "
     "be faster."),
    ("dead_letters", queue(dead_letter="failed", history=history(buried_hour=37)),
     "37 dead letters in the last hour, now in failed; none in the hour before."),
    ("dead_letters", queue(history=history(buried_hour=1)),
     "1 dead letter in the last hour, which was dropped; none in the hour before."),
    ("nothing", queue(history=history(buried_hour=5, buried_before=5)), ""),
    ("dead_letters", queue(dead_letter="f", history=history(buried_hour=6, buried_before=5)),
     "6 dead letters in the last hour, now in f; 5 in the hour before."),
    ("leases_too_short",
     queue(lease_ms=5 * SECOND_MS, history=history(leased=10, lease_expired=6)),
     "60% of the leases of the last 10 minutes ended without an answer: the lease of 5 s is "
     "shorter than the work, or consumers fail."),
    ("nothing", queue(history=history(leased=10, lease_expired=2)), ""),
    ("listener", queue(listeners=(listener(disabled_by="gone", open=3),)),
     "Listener mailer was disabled because it answered 410: it is there no more. 3 pushes wait."),
    ("listener", queue(listeners=(listener(disabled_by="user", open=1),)),
     "Listener mailer is disabled. 1 push waits."),
    ("nothing", queue(listeners=(listener(disabled_by="user"),)), ""),
    ("listener", queue(listeners=(listener(state="inactive", last_failure="500", open=2),)),
     "Listener mailer does not answer: 500. 2 pushes wait."),
    ("listener", queue(listeners=(listener(missed=4, last_failure_ms=NOW_MS),)),
     "Listener mailer fails and never took one: 4 messages not taken."),
    ("listener",
     queue(listeners=(listener(missed=1, last_failure_ms=NOW_MS,
                               last_success_ms=NOW_MS - 60_000),)),
     "Listener mailer fails since 21:12:30: 1 message not taken."),
    ("nothing",
     queue(listeners=(listener(missed=1, last_failure_ms=1, last_success_ms=2),)), ""),
    ("listener",
     queue(listeners=(listener(missed=2, open=412, last_failure_ms=NOW_MS, answer='500 "oops!"',
                               last_success_ms=NOW_MS - 60_000),)),
     'Listener mailer fails since 21:12:30: 500 "oops!"; 2 messages not taken. 412 pushes wait.'),
    ("listeners_behind", queue(count=1, history=grown(), consumed=False,
                               listeners=(listener(open=900),)),
     "Grows by 10/s, at least since 21:03: its listeners take fewer than come; 900 pushes wait."),
    ("grows_alone", queue(count=1, history=grown(), consumed=False, listeners=(listener(),)),
     "Grows by 10/s, at least since 21:03; nobody has leased from it in the last 10 minutes."),
    ("grows_alone", queue(count=1, history=grown(), listeners=(listener(open=900),)),
     "Grows by 10/s, at least since 21:03; nobody has leased from it in the last 10 minutes."),
    ("worker_missing", queue(unplaced="resize"),
     "Its consumer is the worker resize, which has no URL here; `courier worker add resize URL` "
     "gives it one."),
    ("nothing", queue(paused=True), ""),
    ("frozen", queue(frozen=True), "Frozen: publishers are refused."),
    ("frozen", queue(frozen=True, count=2), "Frozen: publishers are refused; 2 messages left."),
    ("expires_soon", queue(count=1, oldest_ms=NOW_MS - 4 * DAY_MS + 20 * MINUTE_MS),
     "Its oldest message expires in 20 min: messages are kept for 4 d."),
    ("nothing", queue(count=1, oldest_ms=NOW_MS - 4 * DAY_MS + 2 * HOUR_MS), ""),
    ("nothing", queue(count=1, oldest_ms=NOW_MS - 1, retention_ms=HOUR_MS), ""),
    ("full", queue(count=1, bytes=100, bytes_max=100),
     "Full: 100 B of 100 B; publishers are refused."),
    ("fills_up", queue(count=1, bytes=400, bytes_max=360_400, history=grown(leased=1, lately=1)),
     "Full in 1 h at this rate: 400 B of 360 KB. Publishers are then refused."),
    ("nothing", queue(count=1, bytes=1, bytes_max=10**12, history=quiet_once()), ""),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "facts", "says"), CASES)
def test_facts_make_the_sentence(rule: str, facts: QueueFacts, says: str) -> None:
    looks = {look.rule: look for look in looks_at(facts, NOW_MS)}
    if rule == "nothing":
        assert looks == {}
        return
    assert looks[rule].sentence == says
    assert looks[rule].queue == facts.id and looks[rule].state


LAST_MS = NOW_MS // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"names": [], "waiting": 5}, ""),
        ({"waiting": 0}, ""),
        ({"minute_ms": NOW_MS - 3 * MINUTE_MS + 1}, ""),
        ({}, "Nobody has leased since 21:03. billing did then."),
        ({"names": ["a", "b"], "acked": 600, "waiting": 102_000},
         "Nobody has leased since 21:03. a and b did then, and would need 2 h 50 min for what "
         "waits."),
    ],
)  # fmt: skip
def test_who_leased_last_and_how_long_they_would_need(known: dict[str, Any], says: str) -> None:
    facts = {"names": ["billing"], "minute_ms": LAST_MS, "acked": 0, "waiting": 7, **known}
    assert who_left(**facts, now_ms=NOW_MS) == says


def test_the_gravest_comes_first() -> None:
    facts = queue(count=1, bytes=1, bytes_max=1, history=grown(), unplaced="resize")
    assert [look.rule for look in looks_at(facts, NOW_MS)] == [
        "full", "grows_alone", "worker_missing",
    ]  # fmt: skip


SERVER: list[tuple[str, ServerFacts, str]] = [
    ("", ServerFacts((ReaderFacts("lake", NOW_MS, 0),), 1, 100, 50, 10), ""),
    ("", ServerFacts((), 1, 100, None, 10), ""),
    ("reader", ServerFacts((ReaderFacts("lake", NOW_MS - HOUR_MS, 1_200),), 1, 100),
     "Reader of the journal lake: not seen for 1 h; 1,200 events behind. The journal is kept "
     "until then."),
    ("journal", ServerFacts((), 95, 100),
     "The journal has 95 B of 100 B; then its oldest events go, read or not."),
    ("disk", ServerFacts((), 1, 100, 9, 10),
     "The disk has 9 B left for messages: publishing is refused, messages can be pulled, "
     "acknowledged and purged."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "facts", "says"), SERVER)
def test_facts_of_the_server_make_the_sentence(rule: str, facts: ServerFacts, says: str) -> None:
    found = [(look.rule, look.sentence) for look in looks_at_server(facts, NOW_MS)]
    assert found == ([(rule, says)] if rule else [])


def test_a_quiet_queue_has_a_quiet_history() -> None:
    assert QUIET.rate("published", 30) == 0.0
    assert grown().rate("published", 30) == pytest.approx(1_200 / 90)
