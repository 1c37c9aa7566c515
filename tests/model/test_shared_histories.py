"""Random histories of two servers that share a database: every verb goes to the other one."""

import os
from typing import Any

import pytest

from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import SEALER
from tests.model.histories import Histories, live

# A soak run asks for more.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "2"))
STEPS_MAX = 60


class SharedHistories(Histories):
    def opened(self) -> Any:
        return postgres.InTurn([self.runner.run(self._node()) for _ in range(2)])

    async def _node(self) -> SharedStore:
        url = postgres.url_of(self.folder / "courier.db")
        return await SharedStore.open(url, sealer=SEALER, block_messages=3, block_cache_bytes=0)


class FifoSharedHistories(SharedHistories):
    FIFO = frozenset({"work", "dead"})


@pytest.mark.slow
@pytest.mark.parametrize("histories", [SharedHistories, FifoSharedHistories])
def test_two_servers_live_every_history_like_the_reference(
    histories: type[SharedHistories],
) -> None:
    live(histories, examples=EXAMPLES, steps=STEPS_MAX)
