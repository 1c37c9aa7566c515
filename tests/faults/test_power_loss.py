"""The power goes: whatever of the unsynced writes has got to the disk, no promise is broken.

A run of the bounded story is recorded, call by call. Cut anywhere, with any of the writes since
the last sync lost, torn or reordered and with names that were not synced gone or back, the store
must start without a word of damage and hold what was answered.
"""

import asyncio
import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from courier.core.errors import StoreUnavailable
from tests.faults.disk_run import Run, judge, opened, small_store
from tests.faults.disk_story import (
    LARGE,
    ORDERS,
    SECOND_STORY,
    SMALL,
    STORY,
    TENANT,
    State,
    Step,
    publish,
    put,
    state,
)
from tests.faults.images import write_image
from tests.faults.lying import Fault, Op, lying_disk
from tests.server import Server

pytestmark = pytest.mark.slow
IMAGES = int(os.environ.get("IMAGES", "160"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 32)
# Of every so many images the start itself is cut off, and what is left is started.
CUT_AGAIN = 4
SYNCS_MAX = 1_000


class Recorded(NamedTuple):
    root: Path
    log: list[Op]
    marks: list[tuple[int, list[State]]]

    def allowed(self, cut: int) -> list[State]:
        return [maybe for at, maybe in self.marks if at <= cut][-1]


def record(root: Path, fault: Fault | None = None, story: list[Step] = STORY) -> Recorded:
    root.mkdir()
    marks: list[tuple[int, list[State]]] = []
    with lying_disk(root, fault, recording=True) as disk:
        run = Run(disk, lambda run: marks.append((len(disk.log), list(run.model.maybe))), story)
        asyncio.run(run.go())
    assert bool(disk.failed) == bool(fault)
    return Recorded(root, disk.log, marks)


def check_image(recorded: Recorded, place: Path, seed: str) -> None:
    chance = random.Random(seed)
    cut = chance.randint(0, len(recorded.log))
    story = f"SEED={SEED} image {seed!r} cut after {cut} of {len(recorded.log)} calls"
    image = place / "image"
    write_image(recorded.log[:cut], chance, root=recorded.root, target=image)
    data = image / "data"
    data.mkdir(exist_ok=True)
    if not chance.randrange(CUT_AGAIN):
        data = cut_start(image, image, chance, place / "again")
    judge_image(data, recorded.allowed(cut), story)
    shutil.rmtree(place)


def judge_image(data: Path, maybe: list[State], story: str) -> None:
    """On a disk that syncs nothing: what matters is how it was left, and real syncs take long."""
    with lying_disk(data):
        asyncio.run(judge(data, maybe, story))


def cut_start(seen: Path, durable: Path, chance: random.Random, target: Path) -> Path:
    """Start on `seen`, of which the disk has only `durable`, and cut that off, too."""

    async def start() -> None:
        store = await opened(seen / "data")
        await store.close()

    with lying_disk(seen, recording=True) as disk:
        disk.note("create", f"{seen / 'data'}/")
        disk.note("names", str(seen))
        for file in sorted((durable / "data").iterdir()):
            path = str(seen / "data" / file.name)
            disk.note("create", path)
            disk.note("write", path, 0, file.read_bytes())
            disk.note("sync", path)
        disk.note("names", str(seen / "data"))
        there = len(disk.log)
        asyncio.run(start())
    cut = chance.randint(there, len(disk.log))
    write_image(disk.log[:cut], chance, root=seen, target=target)
    (target / "data").mkdir(exist_ok=True)
    return target / "data"


def test_a_power_loss_breaks_no_promise(tmp_path: Path) -> None:
    with small_store():
        recorded = record(tmp_path / "story")
        for number in range(IMAGES):
            check_image(recorded, tmp_path / f"{number}", f"{SEED}-{number}")


def test_a_power_loss_breaks_no_promise_of_lines_claims_and_the_journal(tmp_path: Path) -> None:
    with small_store():
        recorded = record(tmp_path / "story", story=SECOND_STORY)
        for number in range(IMAGES // 2):
            check_image(recorded, tmp_path / f"{number}", f"{SEED}-{number}-second")


def test_a_power_loss_after_a_failed_sync_breaks_no_promise(tmp_path: Path) -> None:
    """Writes whose sync has failed may be lost for good, though a later sync succeeds."""
    each = max(2, IMAGES // 100)
    with small_store():
        for number in range(1, SYNCS_MAX):
            root = tmp_path / f"story-{number}"
            try:
                recorded = record(root, Fault(("sync",), number, "EIO"))
            except AssertionError:  # the story has no more
                break
            for image in range(each):
                place = tmp_path / f"{number}-{image}"
                check_image(recorded, place, f"{SEED}-{number}-{image}")
            shutil.rmtree(root)
    assert number > 20


def test_a_start_builds_only_on_what_the_disk_has(tmp_path: Path) -> None:
    """A sync fails, the process is killed, the next one finds in the system's memory what the disk
    never got, and then the power goes."""
    each = max(2, IMAGES // 100)
    with small_store():
        for number in range(4, SYNCS_MAX):
            root = tmp_path / f"story-{number}"
            try:
                recorded = record(root, Fault(("sync",), number, "EIO", times=SYNCS_MAX))
            except AssertionError:  # the story has no more
                break
            cut, maybe = recorded.marks[-1]
            for image in range(each):
                seed = f"{SEED}-{number}-{image}-killed"
                chance, place = random.Random(seed), tmp_path / f"{number}-{image}"
                durable, seen = place / "durable", place / "seen"
                write_image(recorded.log[:cut], chance, root=root, target=durable)
                write_image(recorded.log[:cut], None, root=root, target=seen)
                for path in (durable, seen):
                    (path / "data").mkdir(exist_ok=True)
                data = cut_start(seen, durable, chance, place / "again")
                judge_image(data, maybe, f"image {seed}")
                shutil.rmtree(place)
            shutil.rmtree(root)
    assert number > 20


def test_a_checkpoint_that_was_partly_lost_is_not_taken_for_whole(tmp_path: Path) -> None:
    """While somebody reads, SQLite copies a part of the log without a sync. If the next sync fails,
    the one after it says nothing about that part: the log must stay whole until it is recovered."""
    recorded: list[tuple[list[Op], State]] = []
    root = tmp_path / "story"

    async def story() -> None:
        store = await opened(root)
        for step in (put(TENANT, ORDERS), publish(ORDERS, SMALL, 20)):
            await step(store, {})
        reader = apsw.Connection(str(root / "courier.db"))
        reader.execute("BEGIN; SELECT * FROM sqlite_schema")
        for _ in range(8):
            await publish(ORDERS, LARGE, 2)(store, {})
        reader.close()
        disk.fault = Fault(("sync",), 1, "EIO", file="courier.db")
        for _ in range(30):
            await publish(ORDERS, LARGE, 2)(store, {})
        assert disk.failed
        with pytest.raises(StoreUnavailable, match="restart"):
            await store.health.check()
        recorded.append((list(disk.log), await state(store)))
        await store.close()
        recorded.append((list(disk.log), recorded[0][1]))

    root.mkdir()
    with small_store():
        with lying_disk(root, recording=True) as disk:
            asyncio.run(story())
        for number in range(40):
            log, seen = recorded[number % 2]
            seed = f"{SEED}-{number}-partial"
            image = tmp_path / f"{number}"
            write_image(log, random.Random(seed), root=root, target=image)
            judge_image(image, [seen], f"image {seed}")


def test_a_server_starts_after_a_power_loss(tmp_path: Path) -> None:
    with small_store():
        recorded = record(tmp_path / "story")
    for number in range(4):
        chance = random.Random(f"{SEED}-{number}-server")
        cut = chance.randint(0, len(recorded.log))
        place = tmp_path / f"{number}"
        write_image(recorded.log[:cut], chance, root=recorded.root, target=place)
        with Server(place).start():
            pass
