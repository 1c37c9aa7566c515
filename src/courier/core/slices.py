"""Long work on the event loop, cut so that others have their turn."""

import asyncio
import time

SLICE_S_MAX = 0.01


class Slices:
    """Used by a loop over many things: call `turn` after each few of them."""

    def __init__(self) -> None:
        self._until_s = time.perf_counter() + SLICE_S_MAX

    async def turn(self) -> None:
        """Let others run, if this slice has lasted long enough."""
        if time.perf_counter() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.perf_counter() + SLICE_S_MAX
