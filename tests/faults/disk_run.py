"""One run of the bounded story on a lying disk, in this process, and how what is left is judged."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from courier.core.errors import StoreUnavailable
from courier.files import make_directory
from courier.store.disk_sqlite import volume, writer
from courier.store.embedded import EmbeddedStore
from tests.faults.disk_story import STORY, Leases, Model, State, Step, restart, state
from tests.faults.lying import LyingDisk

# So few that the story has several checkpoints.
WAL_PAGES = 24
# Steps after the one that met the fault, before the process is killed.
STEPS_AFTER = 2


@contextmanager
def small_store() -> Iterator[None]:
    """Stores that checkpoint often, and do not wait long for a disk that stays broken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volume, "WAL_PAGES_MAX", WAL_PAGES)
        patch.setattr(volume, "WAL_PAGES_MIN", WAL_PAGES)
        patch.setattr(writer, "DOUBT_S_MAX", 0.02)
        patch.setattr(writer, "DOUBT_RETRY_S", 0.001)
        yield


async def opened(path: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(path / "courier.db", check_at_start="full")


class Run:
    """The story on `disk`; `at_mark` is called whenever what may be found after a crash changes."""

    def __init__(
        self, disk: LyingDisk, at_mark: Callable[["Run"], None], story: list[Step] = STORY
    ) -> None:
        self._story = story
        self.disk = disk
        self.data = Path(disk.root) / "data"
        self.model = Model()
        self.store: EmbeddedStore | None = None
        self._leases: Leases = {}
        self._at_mark = at_mark

    async def go(self) -> None:
        await self.model.begin()
        self._at_mark(self)
        after = 0
        for step in (restart, *self._story):
            if after > STEPS_AFTER:
                break
            if not await self._step(step):
                break
            after += bool(self.disk.failed)
        with self.disk.healthy():
            await self._close()

    async def _step(self, step: object) -> bool:
        if step is restart:
            await self._close()
            await self._open()
            return True
        assert self.store is not None and callable(step)
        task = self.model.run(step, self.store, self._leases, begun=lambda: self._at_mark(self))
        known = await task
        self._at_mark(self)
        return known

    async def _open(self) -> None:
        """A disk that fails only once lets the second start through."""
        with suppress(StoreUnavailable, OSError):
            make_directory(self.data)
            self.store = await opened(self.data)
        if self.store is None:
            with self.disk.healthy():
                make_directory(self.data)
                self.store = await opened(self.data)

    async def _close(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            await store.close()


def killed(data: Path, target: Path) -> Path:
    """What a process that is killed now leaves behind."""
    target.mkdir()
    for file in data.iterdir() if data.exists() else ():
        if file.name.endswith((".db", "-wal", "-journal")):
            shutil.copyfile(file, target / file.name)
    return target


async def judge(data: Path, maybe: list[State], story: str) -> None:
    """Start on what is left. It must be one of the states that the answers allow."""
    try:
        store = await opened(data)
    except StoreUnavailable as error:
        raise AssertionError(f"{story}: {error}") from error
    try:
        found = await state(store)
        assert found in maybe, f"{story}:\nfound   {found}\nallowed {maybe}"
        await store.health.check()
    finally:
        await store.close()
