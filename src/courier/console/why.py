"""Facts in, an answer out: why a message is late, or where its time went. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from courier.console.life import Step
from courier.words import clock, count, duration, number

_ENDS = ("acked", "expired", "purged", "deleted")
BEFORE_MAX = 200


class Waiting(Struct):
    """What is known of a message that is still there.

    `before` counts messages that come before it, BEFORE_MAX at most; `group_before` is one of the
    same FIFO group.
    """

    paused: bool = False
    before: int = 0
    group_before: str = ""
    out_rate: float = 0.0
    leased_lately: bool = False
    expires_ms: int | None = None
    encrypted_without_key: bool = False


def why_late(waiting: Waiting, steps: Sequence[Step], now_ms: int) -> str:
    """Why nobody has it done yet."""
    last = next((step for step in reversed(steps) if not step.listener), None)
    if last is not None:
        said = _held(last, now_ms)
        if said:
            return said
    if waiting.encrypted_without_key:
        return "Its body was encrypted with a key that this server does not have."
    if waiting.paused:
        return "The queue is paused: nothing is handed out until somebody resumes it."
    if waiting.group_before:
        return "An earlier message of its group has to be done first."
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


def parts(steps: Sequence[Step], home: str) -> TimeParts:
    """`home` is the queue that it was first published on; elsewhere it is a dead letter."""
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
                found.waiting += passed - delayed
        last = step
    return found


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


def where_it_went(steps: Sequence[Step]) -> str:
    """Of a life that is over: how long it took, and on what; the longest part first."""
    own = [step for step in steps if not step.listener]
    if not own:
        return ""
    whole = own[-1].at_ms - own[0].at_ms
    found = parts(own, own[0].queue)
    leases = count(found.losses, "lease that ended", "leases that ended")
    failures = count(found.failures, "attempt that failed", "attempts that failed")
    named = [
        (found.dead, f"{duration(found.dead)} as a dead letter"),
        (found.lost, f"{duration(found.lost)} in {leases} unanswered"),
        (found.failed, f"{duration(found.failed)} in {failures}"),
        (found.delayed, f"{duration(found.delayed)} delayed"),
        (found.waiting, f"{duration(found.waiting)} waiting"),
        (found.work, f"{duration(found.work)} of work"),
    ]
    said = ", ".join(text for ms, text in sorted(named, key=lambda each: -each[0]) if ms)
    return (
        f"{duration(whole)} in all{': ' if said else ''}{said}.{_hint(own, found)}{_end(own[-1])}"
    )


def _hint(steps: Sequence[Step], found: TimeParts) -> str:
    """What to change, where the events say it."""
    leases = [step.lease_ms for step in steps if step.kind == "leased" and step.lease_ms]
    if found.losses and leases and found.lost >= 0.95 * found.losses * min(leases):
        lease = duration(min(leases))
        return f" Its work takes longer than the lease of {lease}, or its consumer failed."
    return ""


def _end(last: Step) -> str:
    ends = {
        "expired": " It expired before anybody had it done.",
        "purged": " It was purged.",
        "deleted": " It was deleted.",
        "buried": " It was buried" + (f", into {last.into}." if last.into else " and dropped."),
    }
    return ends.get(last.kind, "")
