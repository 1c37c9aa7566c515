"""Where the listeners of these tests are: on this machine."""

import asyncio

from tests.delivery.receiver import Receiver

# Nobody answers there, and nobody has to look up a name to find that out.
NOWHERE = "http://127.0.0.1:9/hook"
# So often the loop goes round for the last of its connections to be closed.
TURNS = 10


class Host(Receiver):
    """A receiver that leaves no connection half closed behind."""

    async def _serve(self) -> None:
        await super()._serve()
        for _ in range(TURNS):
            await asyncio.sleep(0)
