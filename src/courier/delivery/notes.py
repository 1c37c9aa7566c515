"""What is known of listeners, written down together: many probes end in the same moment."""

import asyncio
import logging
from contextlib import suppress

from courier.core.errors import BrokerError
from courier.core.listeners import Listeners
from courier.core.types import Liveness

# How long a note may wait for others, unless it says something new.
NOTE_WITHIN_S = 0.2
# Notes of one commit.
NOTES_MAX = 200

log = logging.getLogger("courier.delivery")


class LivenessNotes:
    """The newest note of each listener, until it is written."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._waiting: dict[str, Liveness] = {}
        self._task: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()

    def add(self, note: Liveness, *, urgent: bool = False) -> None:
        """`urgent`: it is written at once, with those that wait."""
        self._waiting[note.id] = note
        if urgent:
            self._urgent.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTE_WITHIN_S):
                    await self._urgent.wait()
            self._urgent.clear()
            await self._write()

    async def _write(self) -> None:
        """Write what waits. A failure is logged: the next probe makes another note."""
        while self._waiting:
            notes = [*self._waiting.values()][:NOTES_MAX]
            for note in notes:
                del self._waiting[note.id]
            try:
                await self._listeners.note_liveness(notes)
            except BrokerError as error:
                extra = {"listeners": len(notes), "reason": str(error)}
                log.warning("liveness_not_noted", extra=extra)

    async def finish(self) -> None:
        """Until all are written; there must be no more probes."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
