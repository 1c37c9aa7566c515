"""A request to end that signal handlers may make."""

import signal
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType


class End:
    """Set once, and waited for by one thread.

    A signal handler interrupts its own thread anywhere, also where that holds the lock of a
    `threading.Event`; `set` would then wait for it for ever. Nothing here has a lock to hold.
    """

    def __init__(self) -> None:
        self._set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def heed(self, signals: Iterable[int]) -> None:
        """From now on any of these signals sets it, and Ctrl-C after that ends the process.

        Other signals do not: supervisors send them twice, and mean it to end in order.
        """

        def hear(number: int, frame: FrameType | None) -> None:
            self.set()
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        for number in signals:
            signal.signal(number, hear)

    def set(self) -> None:
        self._set = True
        self._told.put(None)

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        """Until it is set, but no longer than this; whether it is."""
        if not self._set:
            with suppress(Empty):
                self._told.get(timeout=seconds)
        return self._set
