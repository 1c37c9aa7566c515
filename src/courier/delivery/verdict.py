"""Pure: what a worker's answer does to the messages of its batch.

An answer of 2xx acks whatever it does not retry; any other, or none, retries whatever it does not
ack. A JSON object as its body can say more:

    {"acks": ["id", ...], "retries": ["id", {"id": "id", "delay_seconds": 30}, ...],
     "retry_all": true, "delay_seconds": 30}

`acks` and `retries` decide single messages: the first word on a message counts, and acks are read
first. `retry_all` is for the rest, and `delay_seconds` for every retry that names none of its own.
An object that cannot be understood retries everything: to ack what the worker may have wanted
back would lose it. A body that is no object (`OK`, an empty one) says nothing.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

from courier.core.types import DAY_MS, SECOND_MS, Ack, Message, Retry, Settlement
from courier.delivery.transport import PushResult

DELAY_MS_MAX = DAY_MS

BatchOutcome = Literal["done", "refused", "unanswered"]


class BatchCounts(Protocol):
    """What monitoring asks about workers."""

    workers_missing: int

    def batch_began(self) -> None: ...

    def batch_ended(self, outcome: BatchOutcome) -> None: ...


class Verdict(Struct, frozen=True):
    """One settlement for each message, in their order; `reason` says what was wrong, if anything.

    `refused`: answered, but not with success, or in a way that cannot be understood.
    """

    outcome: BatchOutcome
    settlements: list[Settlement]
    reason: str = ""


class _Retried(Struct):
    id: str
    delay_seconds: float | None = None


class _Answer(Struct):
    acks: list[str] | None = None
    retries: list[str | _Retried] | None = None
    retry_all: bool | None = None
    delay_seconds: float | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def judge(messages: Sequence[Message], result: PushResult) -> Verdict:
    if not result.status:
        return Verdict("unanswered", _settlements(messages, _Answer(), ok=False), result.error)
    try:
        answer = _decode(result.body) if result.body.lstrip().startswith(b"{") else _Answer()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = f"the answer cannot be understood: {error}"
        return Verdict("refused", _settlements(messages, _Answer(), ok=False), reason)
    settlements = _settlements(messages, answer, ok=result.ok)
    if result.ok:
        return Verdict("done", settlements)
    return Verdict("refused", settlements, f"answered {result.status}")


def _settlements(messages: Sequence[Message], answer: _Answer, *, ok: bool) -> list[Settlement]:
    acked = set(answer.acks or ())
    delays: dict[str, int | None] = {}
    for item in answer.retries or ():
        retried = _Retried(item) if isinstance(item, str) else item
        own = retried.delay_seconds
        delays.setdefault(retried.id, _ms(answer.delay_seconds if own is None else own))
    rest_acked = ok and not answer.retry_all
    settlements: list[Settlement] = []
    for message in messages:
        id = message.id
        if id in acked or (rest_acked and id not in delays):
            # The worker is done with it, even if saying so took longer than the lease.
            settlements.append(Ack(message.seq, message.attempts, late=True))
        else:
            delay_ms = delays.get(id, _ms(answer.delay_seconds))
            settlements.append(Retry(message.seq, message.attempts, delay_ms=delay_ms))
    return settlements


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(max(0, min(DELAY_MS_MAX, seconds * SECOND_MS)))
