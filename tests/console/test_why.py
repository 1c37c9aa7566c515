"""Why a message is late, and where the time of one went: from facts to a sentence."""

from typing import Any

import msgspec
import pytest

from courier.console.life import Step, folded
from courier.console.why import (
    UNKNOWN,
    Owed,
    UsualWork,
    Waiting,
    is_over,
    note_work,
    where_it_went,
    why_late,
)

NOW_MS = 1_794_950_030_000
HOME = "home"


def step(at_s: float, kind: str, **fields: Any) -> Step:
    return Step(0, NOW_MS + int(at_s * 1_000), kind, fields.pop("queue", HOME), "orders", "m",
                **fields)  # fmt: skip


PUBLISHED = step(-60, "published")
LATE: list[tuple[Waiting, list[Step], str]] = [
    (Waiting(), [PUBLISHED], "Nobody has leased from the queue in the last ten minutes."),
    (Waiting(before=1), [PUBLISHED],
     "Nobody has leased from the queue in the last ten minutes. 1 message comes before it."),
    (Waiting(paused=True), [PUBLISHED],
     "The queue is paused: nothing is handed out until somebody resumes it."),
    (Waiting(encrypted_without_key=True), [PUBLISHED],
     "Its body was encrypted with a key that this server does not have."),
    (Waiting(group_before="x"), [PUBLISHED],
     "An earlier message of its group has to be done first."),
    (Waiting(leased_lately=True), [PUBLISHED], "It is the next to be handed out."),
    (Waiting(buried="orders", before=77), [PUBLISHED],
     "It is a dead letter of orders, and nobody leases from this queue. A redrive sends it back."),
    (Waiting(buried="orders", leased_lately=True), [PUBLISHED], "It is the next to be handed out."),
    (Waiting(leased_lately=True, before=3), [PUBLISHED],
     "It waits for its turn. 3 messages come before it."),
    (Waiting(leased_lately=True, before=120, out_rate=2.0), [PUBLISHED],
     "It waits for its turn: 120 before it, and 2 are done each second. Its turn comes in 1 min."),
    (Waiting(leased_lately=True, before=200, out_rate=2.0), [PUBLISHED],
     "It waits for its turn: more than 200 before it, and 2 are done each second. Its turn "
     "comes in more than 1 min 40 s."),
    (Waiting(), [step(-60, "published", delay_ms=90_000)],
     "It was published with a delay, until 21:14:20, 30 s from now."),
    (Waiting(), [PUBLISHED, step(-2, "leased", attempt=2, lease_ms=5_000, actor_name="shop")],
     "shop has it, leased until 21:13:53: attempt 2."),
    (Waiting(leased_lately=True), [PUBLISHED, step(-20, "leased", attempt=1, lease_ms=5_000)],
     "It is the next to be handed out."),
    (Waiting(), [PUBLISHED, step(-2, "retried", attempt=1, delay_ms=62_000)],
     "Attempt 1 failed; the next may begin at 21:14:50, 1 min from now."),
    (Waiting(paused=True), [PUBLISHED, step(-1, "push_failed", listener="l", delay_ms=9_000)],
     "The queue is paused: nothing is handed out until somebody resumes it."),
    (Waiting(owed=(Owed("mailer"),), consumed=False), [PUBLISHED],
     "It has not been pushed to listener mailer yet."),
    (Waiting(owed=(Owed("mailer"),)), [PUBLISHED],
     "It has not been pushed to listener mailer yet. Nobody has leased from the queue in the last "
     "ten minutes."),
    (Waiting(owed=(Owed("mailer", 2, '500 "oops!"', NOW_MS + 25_000),), consumed=False),
     [PUBLISHED], 'Listener mailer did not take it: 500 "oops!". The next attempt is at 21:14:15, '
     "25 s from now."),
    (Waiting(owed=(Owed("mailer", 2, "503", NOW_MS),), consumed=False), [PUBLISHED],
     "Listener mailer did not take it: 503. The next attempt is due."),
    (Waiting(owed=(Owed("mailer", 11, "503", exhausted=True),), consumed=False), [PUBLISHED],
     "Listener mailer did not take it in 11 attempts: 503. It is not pushed again by itself."),
    (Waiting(owed=(Owed("mailer", held="disabled"),), consumed=False), [PUBLISHED],
     "Listener mailer is disabled: what is for it waits."),
    (Waiting(owed=(Owed("mailer", 3, "timed out", held="inactive"),), consumed=False), [PUBLISHED],
     "Listener mailer does not answer: timed out. It is pushed when a probe is answered."),
    (Waiting(owed=tuple(Owed(name, held="disabled") for name in "abcde"), consumed=False),
     [PUBLISHED], "Listener a is disabled: what is for it waits. Listener b is disabled: what is "
     "for it waits. Listener c is disabled: what is for it waits. 2 more listeners have not taken "
     "it."),
    (Waiting(consumed=False), [PUBLISHED],
     "Nobody has leased from the queue in the last ten minutes."),
]  # fmt: skip


@pytest.mark.parametrize(("waiting", "steps", "says"), LATE)
def test_why_it_is_late(waiting: Waiting, steps: list[Step], says: str) -> None:
    assert why_late(waiting, steps, NOW_MS) == says


DONE: list[tuple[list[Step], str]] = [
    ([PUBLISHED, step(-58, "leased", lease_ms=5_000), step(-57.9, "acked")],
     "2.1 s in all: 2 s waiting, 100 ms of work."),
    ([PUBLISHED, step(-56, "leased", lease_ms=5_000), step(-51, "lease_expired"),
      step(-51, "leased", lease_ms=5_000), step(-46, "lease_expired"), step(-46, "buried",
      into="failed"), step(-46, "published", queue="dead"), step(54, "published", reason="redrive"),
      step(54, "deleted", queue="dead"), step(55, "leased", lease_ms=5_000), step(56, "acked")],
     "1 min 56 s in all: 1 min 41 s as a dead letter, 10 s in 2 leases that ended unanswered, "
     "4 s waiting, 1 s of work. Its work takes longer than the lease of 5 s, or its consumer "
     "failed."),
    ([PUBLISHED, step(-50, "leased", lease_ms=30_000), step(-49, "retried", delay_ms=9_000),
      step(-40, "leased", lease_ms=30_000), step(-39, "acked")],
     "21 s in all: 10 s waiting, 9 s delayed, 1 s in 1 attempt that failed, 1 s of work."),
    ([PUBLISHED, step(0, "expired")],
     "1 min in all: 1 min waiting. It expired before anybody had it done."),
    ([PUBLISHED, step(0, "purged")], "1 min in all: 1 min waiting. It was purged."),
    ([PUBLISHED, step(-60, "deleted")], "0 ms in all. It was deleted."),
    ([PUBLISHED, step(-59, "leased"), step(-58, "retried"), step(-58, "buried")],
     "2 s in all: 1 s in 1 attempt that failed, 1 s waiting. It was buried and dropped."),
    ([step(-60, "published", delay_ms=90_000), step(0, "deleted")],
     "1 min in all: 1 min delayed. It was deleted."),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "says"), DONE)
def test_where_the_time_went(steps: list[Step], says: str) -> None:
    assert is_over(steps)
    assert where_it_went(steps) == says


@pytest.mark.parametrize(
    ("switches", "says"),
    [
        # Times are seconds, of a minute of waiting that begins at -60.
        ([], "1 min waiting"),
        ([(-50, True), (-20, False)], "30 s waiting, 30 s while the queue was paused"),
        ([(-20, False)], "40 s while the queue was paused, 20 s waiting"),
        ([(-15, True)], "45 s waiting, 15 s while the queue was paused"),
        ([(-55, True), (-50, False), (-40, True), (-10, False)],
         "35 s while the queue was paused, 25 s waiting"),
    ],
)  # fmt: skip
def test_a_pause_is_told_from_waiting(switches: list[tuple[int, bool]], says: str) -> None:
    steps = [PUBLISHED, step(0, "leased", lease_ms=5_000), step(1, "acked")]
    at = [(NOW_MS + at_s * 1_000, paused) for at_s, paused in switches]
    assert where_it_went(steps, at) == f"1 min 1 s in all: {says}, 1 s of work."


LOST = [PUBLISHED, step(-50, "leased", lease_ms=5_000), step(-45, "lease_expired")]
AGAIN = step(-2, "leased", attempt=2, lease_ms=5_000, actor_name="shop")
NEXT = "It is the next to be handed out."
HELD = "shop has it, leased until 21:13:53: attempt 2."
CHANGED = "5 s since 02:40; before, 2 min"


@pytest.mark.parametrize(
    ("steps", "usual", "says", "more"),
    [
        (LOST, UNKNOWN, NEXT, "takes longer than the lease of 5 s, or its consumer failed."),
        (LOST, UsualWork(9_000), NEXT, "usually takes 9 s: longer than the lease of 5 s."),
        (LOST, UsualWork(9_000, CHANGED), NEXT,
         f"usually takes 9 s: longer than the lease ({CHANGED})."),
        (LOST, UsualWork(5_000), NEXT,
         "usually takes 5 s, within the lease of 5 s: its consumer failed or hung."),
        ([*LOST, AGAIN], UsualWork(9_000), HELD,
         "usually takes 9 s: longer than the lease of 5 s."),
        ([PUBLISHED, AGAIN], UsualWork(800), HELD, "usually takes 800 ms."),
        ([PUBLISHED, AGAIN], UNKNOWN, HELD, ""),
        ([PUBLISHED], UsualWork(9_000), NEXT, ""),
    ],
)  # fmt: skip
def test_how_long_work_usually_takes_is_why_it_is_late(
    steps: list[Step], usual: UsualWork, says: str, more: str
) -> None:
    found = why_late(Waiting(leased_lately=True), steps, NOW_MS, usual)
    assert found == (f"{says} Its work {more}" if more else says)


def test_how_long_work_usually_takes_is_where_the_time_went() -> None:
    steps = [*LOST, step(-44, "leased", lease_ms=5_000), step(-43, "acked")]
    assert where_it_went(steps, (), UsualWork(9_000)).endswith(
        "Its work usually takes 9 s: longer than the lease of 5 s."
    )
    assert "usually" not in where_it_went([*steps[:1], *steps[3:]], (), UsualWork(9_000))


@pytest.mark.parametrize(
    ("usual", "hint"),
    [
        (UNKNOWN, ""),
        (UsualWork(5_000), "its work usually takes 5 s"),
        (UsualWork(9_000), "its work usually takes 9 s: longer than the lease"),
    ],
)
def test_a_lease_that_ended_unanswered_has_it_beside(usual: UsualWork, hint: str) -> None:
    steps = [msgspec.structs.replace(each) for each in LOST]
    note_work(steps, usual)
    assert [each.hint for each in steps] == ["", "", hint]


def test_of_nothing_nothing_is_said() -> None:
    assert where_it_went([]) == "" and not is_over([])
    assert not is_over([PUBLISHED])


def attempts(count: int, **fields: Any) -> list[Step]:
    return [step(n, kind, **fields) for n in range(count) for kind in ("leased", "retried")]


@pytest.mark.parametrize(
    ("steps", "groups"),
    [
        ([], []),
        ([PUBLISHED, *attempts(1)], [1, 1, 1]),
        ([PUBLISHED, *attempts(2)], [1, 1, 1, 1, 1]),
        ([PUBLISHED, *attempts(3)], [1, 1, 1, 4]),
        ([PUBLISHED, *attempts(9), step(10, "buried")], [1, 1, 1, 16, 1]),
        ([*attempts(3, actor="a"), *attempts(3, actor="b")], [1, 1, 4, 1, 1, 4]),
        ([*attempts(3), step(9, "leased"), step(9, "lease_expired")], [1, 1, 4, 1, 1]),
    ],
)
def test_attempts_that_went_alike_are_shown_together(steps: list[Step], groups: list[int]) -> None:
    found = folded(steps)
    assert [len(group) for group in found] == groups
    assert [each for group in found for each in group] == steps
