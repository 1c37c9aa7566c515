"""A request to end that signal handlers may make."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType

# SIGTERM that comes again within this time is the same request.
SAME_S = 1.0


class EndRequest:
    """Signals that ask to end: the first to end in order, the next to end at once."""

    def __init__(self) -> None:
        self._first_s: float | None = None

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """A signal handler that raises KeyboardInterrupt, once for each request."""
        begun = self._first_s is not None
        if self.again(number) or not begun:
            raise KeyboardInterrupt

    def again(self, number: int) -> bool:
        """Whether this signal is another request.

        Supervisors may send SIGTERM twice at once, to a process and to its group: that is one.
        """
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
            return False
        return number != signal.SIGTERM or now_s - self._first_s > SAME_S


class End:
    """Set once, and waited for by one thread.

    A signal handler interrupts its own thread anywhere, also where that holds the lock of a
    `threading.Event`; `set` would then wait for it for ever. Nothing here has a lock to hold.
    """

    def __init__(self) -> None:
        self._set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def heed(self, signals: Iterable[int]) -> None:
        """From now on any of these signals sets it, and another one after that ends the process."""
        request = EndRequest()

        def hear(number: int, frame: FrameType | None) -> None:
            if request.again(number):
                end_now(number)
            self.set()

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


def end_now(number: int) -> None:
    """End this process as a signal does; also the first process of a container."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    # The kernel delivers no default action to the first process.
    os._exit(128 + number)
