"""Who waits for messages of which queue, or for pushes of which listener."""

import asyncio

# Longest wait without a hint where the store has its disk to itself, and no hint is ever lost.
LOOK_AGAIN_S = 30.0


class Waiters:
    """Gives hints to those who wait, in the order in which they came.

    A hint says: look again. It may come late, twice or for nothing, and one from another process
    may be lost, so a wait that got none ends with one after `longest_s`.
    """

    def __init__(self, *, longest_s: float = LOOK_AGAIN_S) -> None:
        self._longest_s = longest_s
        self._waiting: dict[str, dict[asyncio.Future[bool], None]] = {}

    def wait(self, id: str) -> "asyncio.Future[bool]":
        """Done with True when there may be something to take, or the queue or listener changed.

        Those who stop waiting set it to False; those who got a hint and will not look pass it on
        with `wake`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(id, {})[future] = None
        timer = loop.call_later(self._longest_s, _hint, future)

        def left(done: "asyncio.Future[bool]") -> None:
            timer.cancel()
            waiting = self._waiting.get(id)
            if waiting is not None:
                waiting.pop(done, None)
                if not waiting:
                    del self._waiting[id]

        future.add_done_callback(left)
        return future

    def wake(self, id: str, count: int = 1) -> None:
        """Give a hint to up to `count` of those who wait."""
        if not self._waiting or count <= 0:
            return
        for future in list(self._waiting.get(id, ())):
            if _hint(future):
                count -= 1
                if not count:
                    return


def _hint(future: "asyncio.Future[bool]") -> bool:
    """False: it has ended already."""
    if future.done():
        return False
    future.set_result(True)
    return True
