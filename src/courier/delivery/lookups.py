"""Looking names up, so that a name server which does not answer holds up nobody else.

The event loop has a few threads of its own for this and for much else, which a handful of dead
names would occupy for minutes. Here a lookup has a thread of its own, which the end of the
process does not wait for; all who ask for the same name meanwhile get the same answer. Names of one
zone, such as `a.example.com` and `b.example.com`, share what `slots.py` gives to one tenant.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from courier.delivery.slots import Slots, Turn

LOOKUPS_MAX = 64
# Answers are used again for so long, failures too.
REMEMBERED_S = 10.0
NAMES_MAX = 10_000
# Of one name and kind of address. A zone may have thousands, which would each be judged, tried and
# remembered; two are enough to go on when one of them is down.
ADDRESSES_MAX = 2

Found = list[tuple[Any, ...]]
Look = Callable[[str, int, int], Coroutine[Any, Any, Found]]


class Lookups:
    """`look` finds what a name stands for, as `socket.getaddrinfo` does, or raises OSError."""

    def __init__(self, look: Look | None = None) -> None:
        self._look = look or in_thread
        self._running: dict[tuple[str, int, int], asyncio.Task[Found]] = {}
        self._known: dict[tuple[str, int, int], tuple[float, Found | OSError]] = {}
        self._slots = Slots(LOOKUPS_MAX)

    async def find(self, host: str, port: int, family: int) -> Found:
        """Raises OSError."""
        key = (host, port, family)
        now_s = asyncio.get_running_loop().time()
        at_s, known = self._known.get(key, (0.0, OSError()))
        if key not in self._known or now_s - at_s >= REMEMBERED_S:
            task = self._running.get(key)
            if task is None:
                task = asyncio.create_task(self._find(key))
                self._running[key] = task
                task.add_done_callback(lambda done: self._done(key, done))
            # Who gives up waiting does not end the lookup for the others.
            return await asyncio.shield(task)
        if isinstance(known, OSError):
            raise known
        return known

    async def _find(self, key: tuple[str, int, int]) -> Found:
        host = key[0]
        found_before = key in self._known and not isinstance(self._known[key][1], OSError)
        turn = Turn(self._slots, tenant=_zone(host), queue=host, quick=found_before)
        try:
            async with turn:
                return _few(await self._look(*key))
        finally:
            turn.close()

    def _done(self, key: tuple[str, int, int], task: "asyncio.Task[Found]") -> None:
        del self._running[key]
        if task.cancelled():
            return
        error = task.exception()
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        now_s = asyncio.get_running_loop().time()
        if isinstance(error, OSError):
            self._known[key] = now_s, error
        elif error is None:
            self._known[key] = now_s, task.result()


def _few(found: Found) -> Found:
    families = dict.fromkeys(place[0] for place in found)
    few = [[each for each in found if each[0] == family][:ADDRESSES_MAX] for family in families]
    return [place for part in few for place in part]


def _zone(host: str) -> str:
    """The last two labels of a name: who has many dead names has them in few zones."""
    return ".".join(host.lower().rstrip(".").split(".")[-2:])


async def in_thread(host: str, port: int, family: int) -> Found:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Found] = loop.create_future()

    def tell(found: Found | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        elif found is not None:
            answer.set_result(found)

    def look() -> None:
        found: Found | None = None
        error: Exception | None = None
        try:
            found = [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)]
        except (OSError, UnicodeError) as refused:
            error = refused if isinstance(refused, OSError) else OSError(str(refused))
        with suppress(RuntimeError):  # the loop has ended meanwhile, and nobody waits
            loop.call_soon_threadsafe(tell, found, error)

    threading.Thread(target=look, name="courier-lookup", daemon=True).start()
    return await answer
