"""Who waits for messages on which queue."""

import asyncio


class Waiters:
    """Hints to those who wait, in the order in which they came."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[asyncio.Future[bool], None]] = {}

    def wait(self, queue: str) -> "asyncio.Future[bool]":
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting = self._queues.setdefault(queue, {})
        waiting[future] = None
        future.add_done_callback(lambda done: self._left(queue, done))
        return future

    def _left(self, queue: str, future: "asyncio.Future[bool]") -> None:
        waiting = self._queues.get(queue)
        if waiting is not None:
            waiting.pop(future, None)
            if not waiting:
                del self._queues[queue]

    def wake(self, queue: str, count: int) -> None:
        """Tell up to `count` of those who wait for this queue."""
        if not self._queues or count <= 0:
            return
        for future in list(self._queues.get(queue, ())):
            if not future.done():
                future.set_result(True)
                count -= 1
                if not count:
                    return
