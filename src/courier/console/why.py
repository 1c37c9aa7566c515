"""Facts in, an answer out: why a message is late, or where its time went. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from courier.console.life import Step
from courier.words import clock, count, duration, number

# Listeners that are named one by one.
OWED_MAX = 3
_ENDS = ("acked", "expired", "purged", "deleted")
BEFORE_MAX = 200


class Owed(Struct):
    """A listener that has not taken the message.

    `answer` is what came of the last attempt, and the next one may begin at `due_ms`; `exhausted`:
    there is none. `held`: disabled or inactive.
    """

    listener: str
    attempts: int = 0
    answer: str = ""
    due_ms: int = 0
    exhausted: bool = False
    held: str = ""


class Waiting(Struct):
    """What is known of a message that is still there.

    `before` counts messages that come before it, BEFORE_MAX at most; `group_before` is one of the
    same FIFO group. `consumed`: others than the listeners in `owed` take from the queue. `buried`
    is the queue whose dead letter it is.
    """

    paused: bool = False
    before: int = 0
    group_before: str = ""
    out_rate: float = 0.0
    leased_lately: bool = False
    expires_ms: int | None = None
    encrypted_without_key: bool = False
    owed: tuple[Owed, ...] = ()
    consumed: bool = True
    buried: str = ""


class UsualWork(Struct, frozen=True):
    """How long work on the queue usually takes, from lease to ack; None if that is not known.

    `changed` tells of the lease's length, and since when: "5 s since 02:40; before, 2 min".
    """

    ms: int | None = None
    changed: str = ""


UNKNOWN = UsualWork()


def why_late(
    waiting: Waiting, steps: Sequence[Step], now_ms: int, usual: UsualWork = UNKNOWN
) -> str:
    """Why nobody has it done yet."""
    own = [step for step in steps if not step.listener]
    said = _held(own[-1], now_ms) if own else ""
    return (said or _unheld(waiting, now_ms)) + _work(own, usual)


def _unheld(waiting: Waiting, now_ms: int) -> str:
    if waiting.encrypted_without_key:
        return "Its body was encrypted with a key that this server does not have."
    if waiting.paused:
        return "The queue is paused: nothing is handed out until somebody resumes it."
    owed = [_owed(each, now_ms) for each in waiting.owed[:OWED_MAX]]
    if len(waiting.owed) > OWED_MAX:
        owed.append(f"{len(waiting.owed) - OWED_MAX} more listeners have not taken it.")
    return " ".join([*owed, _unleased(waiting)] if waiting.consumed or not owed else owed)


def _owed(owed: Owed, now_ms: int) -> str:
    """Why this listener does not have it."""
    name, answer = f"Listener {owed.listener}", f": {owed.answer}" if owed.answer else ""
    if owed.exhausted:
        tried = count(owed.attempts, "attempt")
        return f"{name} did not take it in {tried}{answer}. It is not pushed again by itself."
    if owed.held == "disabled":
        return f"{name} is disabled: what is for it waits."
    if owed.held == "inactive":
        return f"{name} does not answer{answer}. It is pushed when a probe is answered."
    if not owed.attempts:
        return f"It has not been pushed to listener {owed.listener} yet."
    if owed.due_ms <= now_ms:
        return f"{name} did not take it{answer}. The next attempt is due."
    at, left = clock(owed.due_ms, now_ms), duration(owed.due_ms - now_ms)
    return f"{name} did not take it{answer}. The next attempt is at {at}, {left} from now."


def _unleased(waiting: Waiting) -> str:
    """Why nobody who asks for messages has it."""
    if waiting.group_before:
        return "An earlier message of its group has to be done first."
    if waiting.buried and not waiting.leased_lately:
        return (
            f"It is a dead letter of {waiting.buried}, and nobody leases from this queue. "
            "A redrive sends it back."
        )
    if not waiting.leased_lately:
        return f"Nobody has leased from the queue in the last ten minutes.{_before(waiting)}"
    if waiting.before and waiting.out_rate:
        more = "more than " if waiting.before >= BEFORE_MAX else ""
        turn = duration(waiting.before / waiting.out_rate * 1_000)
        return (
            f"It waits for its turn: {more}{number(waiting.before)} before it, and "
            f"{number(waiting.out_rate)} are done each second. Its turn comes in {more}{turn}."
        )
    if waiting.before:
        return f"It waits for its turn.{_before(waiting)}"
    return "It is the next to be handed out."


def _before(waiting: Waiting) -> str:
    if not waiting.before:
        return ""
    more = "More than " if waiting.before >= BEFORE_MAX else ""
    text = f" {more}{count(waiting.before, 'message comes', 'messages come')} before it."
    return text


def _held(last: Step, now_ms: int) -> str:
    """What the last event says about now: leased, or delayed."""
    who = last.actor_name or last.actor or "a consumer"
    if last.kind in ("leased", "extended") and last.at_ms + last.lease_ms > now_ms:
        until = clock(last.at_ms + last.lease_ms, now_ms)
        return f"{who} has it, leased until {until}: attempt {last.attempt}."
    if last.delay_ms and last.at_ms + last.delay_ms > now_ms:
        until = clock(last.at_ms + last.delay_ms, now_ms)
        left = duration(last.at_ms + last.delay_ms - now_ms)
        if last.kind == "published":
            return f"It was published with a delay, until {until}, {left} from now."
        return f"Attempt {last.attempt} failed; the next may begin at {until}, {left} from now."
    return ""


class TimeParts(Struct):
    """Where the time of a life went, in milliseconds."""

    waiting: int = 0
    delayed: int = 0
    work: int = 0
    lost: int = 0
    losses: int = 0
    failed: int = 0
    failures: int = 0
    dead: int = 0
    paused: int = 0


def parts(steps: Sequence[Step], home: str, switches: Sequence[tuple[int, bool]] = ()) -> TimeParts:
    """`home` is the queue that it was first published on; elsewhere it is a dead letter.

    `switches` are the times at which `home` was paused (True) and resumed meanwhile.
    """
    found = TimeParts()
    last: Step | None = None
    for step in steps:
        if step.listener:
            continue
        if last is not None:
            passed = step.at_ms - last.at_ms
            if last.queue != home:
                found.dead += passed
            elif last.kind in ("leased", "extended"):
                _leased(found, step, passed)
            else:
                delayed = min(passed, last.delay_ms)
                found.delayed += delayed
                paused = _paused(switches, last.at_ms + delayed, step.at_ms)
                found.paused += paused
                found.waiting += passed - delayed - paused
        last = step
    return found


def _paused(switches: Sequence[tuple[int, bool]], since_ms: int, until_ms: int) -> int:
    """How long of this time the queue was paused."""
    passed, from_ms, on = 0, since_ms, bool(switches) and not switches[0][1]
    for at_ms, paused in [*switches, (until_ms, False)]:
        if on:
            passed += max(0, min(at_ms, until_ms) - max(from_ms, since_ms))
        from_ms, on = at_ms, paused
    return passed


def _leased(found: TimeParts, step: Step, passed: int) -> None:
    """Time from a lease to whatever came of it."""
    if step.kind == "lease_expired":
        found.lost += passed
        found.losses += 1
    elif step.kind == "retried":
        found.failed += passed
        found.failures += 1
    else:
        found.work += passed


def is_over(steps: Sequence[Step]) -> bool:
    own = [step for step in steps if not step.listener]
    return bool(own) and own[-1].kind in (*_ENDS, "buried")


def where_it_went(
    steps: Sequence[Step],
    switches: Sequence[tuple[int, bool]] = (),
    usual: UsualWork = UNKNOWN,
) -> str:
    """Of a life that is over: how long it took, and on what; the longest part first."""
    own = [step for step in steps if not step.listener]
    if not own:
        return ""
    whole = own[-1].at_ms - own[0].at_ms
    found = parts(own, own[0].queue, switches)
    leases = count(found.losses, "lease that ended", "leases that ended")
    failures = count(found.failures, "attempt that failed", "attempts that failed")
    named = [
        (found.dead, f"{duration(found.dead)} as a dead letter"),
        (found.lost, f"{duration(found.lost)} in {leases} unanswered"),
        (found.failed, f"{duration(found.failed)} in {failures}"),
        (found.delayed, f"{duration(found.delayed)} delayed"),
        (found.waiting, f"{duration(found.waiting)} waiting"),
        (found.paused, f"{duration(found.paused)} while the queue was paused"),
        (found.work, f"{duration(found.work)} of work"),
    ]
    said = ", ".join(text for ms, text in sorted(named, key=lambda each: -each[0]) if ms)
    hint = _work(own, usual) if found.losses else ""
    return f"{duration(whole)} in all{': ' if said else ''}{said}.{hint}{_end(own[-1])}"


def _work(own: Sequence[Step], usual: UsualWork) -> str:
    """What leases that ended unanswered, and the one that runs, say about the work."""
    leases = [step.lease_ms for step in own if step.kind == "leased" and step.lease_ms]
    losses = sum(step.kind == "lease_expired" for step in own)
    if not leases or not (losses or own[-1].kind in ("leased", "extended")):
        return ""
    lease = min(leases)
    if usual.ms is None:
        failed = (
            f" Its work takes longer than the lease of {duration(lease)}, or its consumer failed."
        )
        return failed if losses else ""
    takes = f" Its work usually takes {duration(usual.ms)}"
    if usual.ms > lease:
        of = f" ({usual.changed})" if usual.changed else f" of {duration(lease)}"
        return f"{takes}: longer than the lease{of}."
    if losses:
        return f"{takes}, within the lease of {duration(lease)}: its consumer failed or hung."
    return f"{takes}."


def note_work(steps: Sequence[Step], usual: UsualWork) -> None:
    """Beside each lease that ended unanswered: how long work usually takes."""
    leases: dict[str, int] = {}
    for step in steps:
        if step.kind in ("leased", "extended"):
            leases[step.message] = step.lease_ms
        elif step.kind == "lease_expired" and usual.ms is not None:
            longer = usual.ms > leases.get(step.message, usual.ms)
            step.hint = f"its work usually takes {duration(usual.ms)}"
            step.hint += ": longer than the lease" if longer else ""


def _end(last: Step) -> str:
    ends = {
        "expired": " It expired before anybody had it done.",
        "purged": " It was purged.",
        "deleted": " It was deleted.",
        "buried": " It was buried" + (f", into {last.into}." if last.into else " and dropped."),
    }
    return ends.get(last.kind, "")
