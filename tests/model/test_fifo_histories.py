"""Random histories of queues that keep the order of their groups."""

import pytest

from tests.model.histories import Histories, live


class FifoHistories(Histories):
    """FIFO queues that bury into each other, and at last into one that is not."""

    FIFO = frozenset({"work", "dead"})


@pytest.mark.slow
def test_every_store_keeps_the_order_of_groups_like_the_reference() -> None:
    live(FifoHistories)
