"""What a store on disk is after its process is gone: the same one.

That it still knows everything is asked by all other tests here: one of the stores they run on is
closed and opened again before every verb.
"""

import asyncio
from pathlib import Path

import pytest

from courier.core.errors import StoreUnavailable
from tests.conformance.store.conftest import Opener


def test_the_secret_and_the_epoch_survive_and_are_the_stores_own(
    runner: asyncio.Runner, tmp_path: Path, opener: Opener
) -> None:
    async def opened(name: str) -> tuple[bytes, str]:
        store = await opener(tmp_path / name)
        head = await store.journal.head()
        await store.close()
        return store.secret, head.epoch

    secret, epoch = runner.run(opened("courier.db"))
    assert len(secret) == 32
    assert runner.run(opened("courier.db")) == (secret, epoch)
    other_secret, other_epoch = runner.run(opened("other.db"))
    assert other_secret != secret
    assert other_epoch != epoch


def test_one_file_is_opened_by_one_store_at_a_time(
    runner: asyncio.Runner, tmp_path: Path, opener: Opener
) -> None:
    store = runner.run(opener(tmp_path / "courier.db"))
    try:
        with pytest.raises(StoreUnavailable):
            runner.run(opener(tmp_path / "courier.db"))
        runner.run(store.health.check())
    finally:
        runner.run(store.close())
