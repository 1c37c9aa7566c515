"""Random histories: whatever happens, every store says what the reference says."""

import pytest

from tests.model.histories import Histories, live


@pytest.mark.slow
def test_every_store_lives_every_history_like_the_reference() -> None:
    live(Histories)
