"""The log is copied into the database beside the commits, on a thread of its own."""

import asyncio
import logging
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from courier.core.errors import StoreUnavailable
from courier.store.disk_sqlite import volume
from courier.store.embedded import EmbeddedStore
from tests.faults.disk_run import opened, small_store
from tests.faults.disk_story import LARGE, ORDERS, SMALL, TENANT, State, publish, put, state
from tests.faults.images import write_image
from tests.faults.lying import Fault, Op, lying_disk
from tests.faults.test_power_loss import judge_image

WAL_PAGES = 64
ROUNDS = 60
IMAGES = 60


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores whose log is short, and copied beside the commits all the same."""
    with small_store():
        monkeypatch.setattr(volume, "WAL_PAGES_MAX", WAL_PAGES)
        monkeypatch.setattr(volume, "WAL_PAGES_MIN", WAL_PAGES)
        monkeypatch.setattr(volume, "COPIED_BESIDE_PAGES_MIN", 1)
        yield


async def begun(root: Path) -> EmbeddedStore:
    store = await opened(root)
    for step in (put(TENANT, ORDERS), publish(ORDERS, SMALL, 20)):
        await step(store, {})
    return store


def log_pages(root: Path) -> int:
    return os.stat(root / "courier.db-wal").st_size // 4_096


async def test_commits_go_on_while_the_log_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when the thread does not keep up, they wait before the log is longer than it may be."""

    store = await begun(tmp_path)
    held, copy = asyncio.Event(), store.disk.volume.copy
    loop, going = asyncio.get_running_loop(), []

    def slow() -> None:
        going.append(store.writer.groups)
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result()
        copy()

    monkeypatch.setattr(store.disk.volume, "copy", slow)
    while not going:
        await publish(ORDERS, LARGE, 2)(store, {})
    for _ in range(3):
        await publish(ORDERS, SMALL, 1)(store, {})
    assert store.writer.groups >= going[0] + 3
    for _ in range(ROUNDS):
        await publish(ORDERS, LARGE, 2)(store, {})
    held.set()
    for _ in range(ROUNDS):
        await publish(ORDERS, LARGE, 2)(store, {})
    assert len(going) > 1, "it was copied again"
    await store.close()


async def test_the_log_begins_again_and_stays_short(tmp_path: Path) -> None:
    store = await begun(tmp_path)
    longest = 0
    for _ in range(4 * ROUNDS):
        await publish(ORDERS, LARGE, 1)(store, {})
        longest = max(longest, log_pages(tmp_path))
    # One commit may be longer than what was left of the log.
    assert longest < 3 * WAL_PAGES
    before = await state(store)
    await store.close()
    store = await opened(tmp_path)
    assert await state(store) == before
    await store.close()


def recorded_story(root: Path, fault: Fault | None) -> list[tuple[list[Op], State]]:
    """All that was written, with what must be found, now and then and at the end."""
    marks: list[tuple[list[Op], State]] = []

    async def story() -> None:
        store = await begun(root)
        disk.fault = fault
        for number in range(ROUNDS):
            try:
                await publish(ORDERS, LARGE, 2)(store, {})
            except StoreUnavailable:
                continue
            if number % 6 == 5:
                marks.append((list(disk.log), await state(store)))
        await store.close()
        marks.append((list(disk.log), marks[-1][1]))

    root.mkdir()
    with lying_disk(root, recording=True) as disk:
        asyncio.run(story())
    return marks


FAULTS: dict[str, Fault | None] = {
    "no fault": None,
    "a sync fails": Fault(("sync",), 1, "EIO", file="courier.db"),
    "a later sync fails": Fault(("sync",), 4, "EIO", file="courier.db"),
    "a write fails": Fault(("write",), 20, "EIO", file="courier.db"),
    "the disk is full": Fault(("write",), 20, "ENOSPC", times=3, file="courier.db"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_after_a_power_loss_everything_that_was_answered_is_there(
    tmp_path: Path, name: str
) -> None:
    root = tmp_path / "story"
    marks = recorded_story(root, FAULTS[name])
    for number in range(IMAGES):
        # The last one was taken when no step was on its way.
        log, seen = marks[-1 - number % len(marks)]
        seed = f"beside-{name}-{number}"
        image = tmp_path / f"{number}"
        write_image(log, random.Random(seed), root=root, target=image)
        judge_image(image, [seen], f"image {seed}")
        shutil.rmtree(image)


def test_a_sync_that_fails_on_the_thread_stops_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was copied may be lost: the log stays until the next start recovers from all of it."""

    async def story() -> State:
        store = await begun(tmp_path)
        monkeypatch.setattr(os, "fsync", failing)
        for _ in range(ROUNDS):
            await publish(ORDERS, LARGE, 2)(store, {})
        with pytest.raises(StoreUnavailable, match="restart"):
            await store.health.check()
        monkeypatch.undo()
        seen = await state(store)
        await store.close()
        return seen

    def failing(_: Any) -> None:
        raise OSError("EIO")

    with caplog.at_level(logging.ERROR):
        seen = asyncio.run(story())
    assert "checkpoints_stopped" in [record.message for record in caplog.records]
    assert log_pages(tmp_path) > WAL_PAGES

    async def again() -> None:
        store = await opened(tmp_path)
        assert await state(store) == seen
        await store.close()

    asyncio.run(again())
