"""Failed sign-ins: counted as they happen, and written to the journal once a minute.

A stranger can fail as often as it likes. So equal failures of a minute are one event with a
count, and there is a limit to how many different ones are told apart.
"""

import asyncio
import logging

from msgspec import Struct

from courier.clock import Clock
from courier.core.store import Store
from courier.core.types import MINUTE_MS, Actor, Note

# Different failures of one minute; further ones are counted by reason, without address and key.
FAILURES_MAX = 100
KIND = "signin_failed"

log = logging.getLogger("courier.signins")


class Failure(Struct, frozen=True):
    """Why a request was not let in. `key` is the id of the key, and "" if there is no such key."""

    reason: str
    dialect: str
    address: str = ""
    tenant: str = ""
    key: str = ""


class SignIns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[Failure, int] = {}
        self._since_ms = 0
        self._flushing = asyncio.Lock()

    def failed(self, failure: Failure) -> None:
        if not self._counts:
            self._since_ms = self._clock.now_ms()
        _add(self._counts, failure, 1)

    async def flush(self, store: Store, *, now_ms: int, early: bool = False) -> None:
        """Write down what was counted, if that is for a minute; `early`: in any case."""
        async with self._flushing:
            # Also after the clock was set back.
            young = 0 <= now_ms - self._since_ms < MINUTE_MS
            if not self._counts or (young and not early):
                return
            counts, since_ms = self._counts, self._since_ms
            self._counts = {}
            try:
                notes = [_note(failure, count, since_ms) for failure, count in counts.items()]
                await store.journal.note(notes, now_ms=now_ms)
            except BaseException:
                for failure, count in self._counts.items():
                    _add(counts, failure, count)
                self._counts, self._since_ms = counts, since_ms
                raise
        for note in notes:
            log.warning(KIND, extra={**note.detail, "key": note.actor.id})


def _add(counts: dict[Failure, int], failure: Failure, count: int) -> None:
    if failure not in counts and len(counts) >= FAILURES_MAX:
        failure = Failure(failure.reason, failure.dialect)
    counts[failure] = counts.get(failure, 0) + count


def _note(failure: Failure, count: int, since_ms: int) -> Note:
    detail = {
        "reason": failure.reason,
        "address": failure.address,
        "count": count,
        "since_ms": since_ms,
    }
    return Note(KIND, failure.tenant, Actor(failure.key, failure.dialect), detail)
