"""Bits that the disk got wrong, anywhere in the database of a store that was stopped.

What comes of each is a start that is refused in one sentence, a call that is refused because of
damage, or nothing at all.
"""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from courier.core.errors import StoreUnavailable
from courier.store.embedded import EmbeddedStore
from tests.faults.disk_story import (
    SECOND_STORY,
    STORY,
    Leases,
    State,
    restart,
    state,
    trim,
)

pytestmark = pytest.mark.slow
FLIPS = int(os.environ.get("IMAGES", "160"))
SEED = int(os.environ.get("IMAGES_SEED", "1"))
# Rows of messages that were tried before have no checksum: such a bit may change what becomes of
# one message, and no more is asked of it than that nothing falls over.
UNSUMMED = ("delivery", "push", "expiry", "fact")
SUMMED = ("record", "line", "range")


async def story(data: Path) -> State:
    """Both stories, but for what would leave little to be damaged."""
    store = await EmbeddedStore.open(data)
    leases: Leases = {}
    for step in (*STORY[:13], *SECOND_STORY[:-7]):
        if step not in (restart, trim):
            await step(store, leases)
    found = await state(store)
    await store.close()
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """A database, and what it says."""
    data = tmp_path_factory.mktemp("whole") / "courier.db"
    return data, asyncio.run(story(data))


async def read(data: Path, *, accept: bool = False) -> State | str:
    """What a store says, or how it refuses to."""
    try:
        store = await EmbeddedStore.open(data, check_at_start="full", accept_damage=accept)
    except StoreUnavailable as error:
        assert "\n" not in str(error) and len(str(error)) < 500, error
        return "refused"
    try:
        return await state(store)
    except StoreUnavailable as error:
        with pytest.raises(StoreUnavailable, match="damaged"):
            await store.health.check()
        return f"error {error}"
    finally:
        await store.close()


def test_a_flipped_bit_anywhere_is_noticed_or_does_no_harm(
    told: tuple[Path, State], tmp_path: Path
) -> None:
    data, expected = told
    whole = data.read_bytes()
    db = apsw.Connection(str(data))
    size: int = db.pragma("page_size")
    pages: dict[int, str] = dict(db.execute("SELECT pageno, name FROM dbstat"))
    db.close()
    chance, came = random.Random(SEED), Counter[str]()
    for number in range(FLIPS):
        page = chance.choice(sorted(pages))
        start = (page - 1) * size
        used = [at for at in range(start, start + size) if whole[at]] or [start]
        at, bit = chance.choice(used), 1 << chance.randrange(8)
        image = tmp_path / f"{number}.db"
        image.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        found = asyncio.run(read(image))
        same = isinstance(found, str) or found == expected
        assert same or pages[page] in UNSUMMED, f"SEED={SEED}: byte {at} of {pages[page]}, {found}"
        came["noticed" if isinstance(found, str) else "same"] += 1
    assert came["noticed"] > FLIPS // 2


@pytest.mark.parametrize("table", SUMMED)
def test_settings_lines_and_ranges_are_believed_only_as_they_were_written(
    told: tuple[Path, State], tmp_path: Path, table: str
) -> None:
    """Also if every value is one that could have been written. Who accepts it is asked once."""
    data, expected = told
    image = tmp_path / "courier.db"
    db = apsw.Connection(str(data))
    *columns, kept = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    db.close()
    assert kept == "sum" and rows and all(row[-1] is not None for row in rows)
    for place, column in enumerate(columns):
        row = next((row for row in rows if row[place] is not None), None)
        if row is None or column in ("no", "id"):  # another number is another row
            continue
        image.write_bytes(data.read_bytes())
        db = apsw.Connection(str(image))
        value: Any = row[place]
        spoilt = value ^ 1 if isinstance(value, int) else value * 2 or "x"
        db.execute(f"UPDATE {table} SET {column} = ? WHERE sum = ?", (spoilt, row[-1]))
        db.close()
        assert asyncio.run(read(image)) == "refused", column
    image.write_bytes(data.read_bytes())
    db = apsw.Connection(str(image))
    db.execute(f"UPDATE {table} SET sum = sum + 1")
    db.close()
    assert asyncio.run(read(image)) == "refused"
    assert asyncio.run(read(image, accept=True)) == expected
    assert asyncio.run(read(image)) == expected


@pytest.mark.parametrize("column", ["at_ms", "flags", "only", "count", "last"])
def test_what_a_block_says_beside_its_bodies_is_checked_when_it_is_read(
    told: tuple[Path, State], tmp_path: Path, column: str
) -> None:
    data, _ = told
    image = tmp_path / "courier.db"
    image.write_bytes(data.read_bytes())
    db = apsw.Connection(str(image))
    db.execute(f"UPDATE block SET {column} = {column} + 1")
    db.close()
    found = asyncio.run(read(image))
    assert isinstance(found, str) and "damaged" in found


def test_rows_from_before_checksums_get_them_at_the_start(
    told: tuple[Path, State], tmp_path: Path
) -> None:
    data, expected = told
    image = tmp_path / "courier.db"
    image.write_bytes(data.read_bytes())
    db = apsw.Connection(str(image))
    for table in SUMMED:
        db.execute(f"ALTER TABLE {table} DROP COLUMN sum")
    db.execute("PRAGMA user_version = 1001")
    db.close()
    assert asyncio.run(read(image)) == expected
    db = apsw.Connection(str(image))
    for table in SUMMED:
        assert not db.execute(f"SELECT count(*) FROM {table} WHERE sum IS NULL").get
    db.close()
