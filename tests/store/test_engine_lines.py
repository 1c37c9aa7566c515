"""What histories found in the engine's lines, each as short as it can be told."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from courier.clock import ManualClock
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.driver import Driver
from tests.model.accounts import audit


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with asyncio.Runner() as runner:
        store = runner.run(EmbeddedStore.open(tmp_path / "courier.db"))
        yield Driver(store, ManualClock(), runner)
        runner.run(store.close())


def test_a_deleted_listener_that_is_half_swept_owes_nothing(driver: Driver) -> None:
    queue = driver.queue()
    deleted, other = driver.listener(queue, "deleted"), driver.listener(queue, "other")
    # Its cursor stands before the first message, which is another's.
    driver.publish_rows(queue, "for the other", listener=other)
    driver.publish(queue, "for both")
    driver.change(drops=[deleted])

    swept = driver.sweep(limit=2)

    assert swept.more
    assert isinstance(driver.store, EmbeddedStore)
    audit(driver.store)
