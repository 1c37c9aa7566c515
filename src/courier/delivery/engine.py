"""The loop over listeners: each has a line of delivery of its own."""

import asyncio
import logging

from courier.clock import Clock
from courier.core.admin import Admin
from courier.core.broker import Broker
from courier.core.duties import Fence, Shares
from courier.core.errors import Unavailable
from courier.core.sealed import Sealer
from courier.core.store import Store
from courier.core.types import SECOND_MS, Listener
from courier.delivery.line import Line
from courier.delivery.moments import Soon
from courier.delivery.notes import LivenessNotes
from courier.delivery.requests import Spelling
from courier.delivery.room import PushRoom
from courier.delivery.slots import Slots
from courier.delivery.transport import Transport

log = logging.getLogger("courier.delivery")

LOOK_EVERY_S = 0.2
# How long requests that are on their way may still take when the server stops.
STOP_WAIT_S = 5.0
STOP_LOOK_S = 0.01


class Engine:
    """Pushes messages to listeners until cancelled, as far as there are slots for requests."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        admin: Admin,
        clock: Clock,
        sealer: Sealer,
        transport: Transport,
        spelling: Spelling,
        *,
        slots: Slots,
        room: PushRoom,
        delay_percent: int,
        liveness_every_ms: int,
        domains_required: bool,
    ) -> None:
        self.store = store
        self.broker = broker
        self.admin = admin
        self.clock = clock
        self.sealer = sealer
        self.transport = transport
        self.spelling = spelling
        self.slots = slots
        self.room = room
        self.soon = Soon()
        self.notes = LivenessNotes(admin.listeners)
        # As many connections are for probes alone: they tell who may be sent requests at all.
        self.probe_slots = Slots(slots.size)
        self.delay_percent = delay_percent
        self.liveness_every_s = liveness_every_ms / SECOND_MS
        self.domains_required = domains_required
        self.pushed = 0
        self.failed = 0
        self._shares = Shares("listeners", store, clock)
        self._lines: dict[str, tuple[Line, asyncio.Task[None]]] = {}

    @property
    def in_flight(self) -> int:
        """Requests to listeners on their way."""
        return sum(len(line.sending) for line, _ in self._lines.values())

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._shares.ask()
                    self._look()
                except Unavailable as error:
                    log.warning("listeners_not_seen", extra={"reason": str(error)})
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._stop()

    def _look(self) -> None:
        """Listeners come and go, and pass from one process to another."""
        wanted: dict[str, Fence] = {}
        for listener in self.store.records.scan(Listener):
            if fence := self._shares.of(listener.id):
                wanted[listener.id] = fence
        for id, fence in wanted.items():
            if id not in self._lines:
                line = Line(self, id, fence)
                self._lines[id] = line, asyncio.create_task(line.run())
        for id, (line, task) in [*self._lines.items()]:
            if task.done():
                del self._lines[id]
            elif line.fence != wanted.get(id):
                line.leave()

    async def _stop(self) -> None:
        """Nothing new is sent; what is on its way gets a little time, and its outcome noted."""
        lines = [line for line, _ in self._lines.values()]
        for _, task in self._lines.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._lines.values()), return_exceptions=True)
        until_s = asyncio.get_running_loop().time() + STOP_WAIT_S
        while self.in_flight and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(STOP_LOOK_S)
        for line in lines:
            line.give_up()
        await self.notes.finish()
        for line in lines:
            try:
                await line.settle()
            except Unavailable as error:
                log.warning("outcomes_not_noted", extra={"reason": str(error)})
