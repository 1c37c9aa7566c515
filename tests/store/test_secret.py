"""The store's secret: the same over restarts, and never in clear in any of its files."""

import asyncio
import logging
from pathlib import Path

import apsw
import pytest

from courier.sealing import KEY_BYTES, KeySealer
from courier.store.embedded import EmbeddedStore
from tests.private.looking import holding

ONE, TWO = KeySealer([b"1" * KEY_BYTES]), KeySealer([b"2" * KEY_BYTES])
BOTH = KeySealer([b"2" * KEY_BYTES, b"1" * KEY_BYTES])
CLEAR = bytes(range(100, 132))


def opened(path: Path, sealer: KeySealer | None) -> bytes:
    """The secret of a store that was opened, used and closed."""

    async def story() -> bytes:
        store = await EmbeddedStore.open(path, sealer=sealer)
        try:
            for _ in range(300):
                await store.health.check()
            return store.secret
        finally:
            await store.close()

    return asyncio.run(story())


def kept(path: Path) -> bytes:
    db = apsw.Connection(str(path))
    try:
        found: bytes = db.execute("SELECT secret FROM meta").get
        return found
    finally:
        db.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "courier.db"


def test_it_survives_and_is_not_in_the_file(path: Path) -> None:
    secret = opened(path, ONE)
    assert len(secret) == 32
    assert opened(path, ONE) == secret
    assert holding(secret, path.parent.iterdir()) == []


def test_a_new_key_seals_it_again_while_the_old_one_is_at_hand(path: Path) -> None:
    secret = opened(path, ONE)
    before = kept(path)
    assert opened(path, ONE) == secret
    assert kept(path) == before
    assert opened(path, BOTH) == secret
    assert kept(path) != before
    assert opened(path, TWO) == secret


def test_without_its_key_it_is_replaced_and_that_is_said(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = opened(path, ONE)
    with caplog.at_level(logging.WARNING):
        other = opened(path, TWO)
    assert other != secret
    assert [record.message for record in caplog.records] == ["secret_replaced"]
    assert opened(path, TWO) == other


@pytest.mark.parametrize(
    "spoilt", [b"", b"x", b"\xff" * 40, b"a" * 31, b"name:!", b"n:" + b"A" * 80]
)
def test_one_that_cannot_be_read_is_replaced(path: Path, spoilt: bytes) -> None:
    secret = opened(path, ONE)
    db = apsw.Connection(str(path))
    db.execute("UPDATE meta SET secret = ?", (spoilt,))
    db.close()
    other = opened(path, ONE)
    assert other != secret
    assert opened(path, ONE) == other


def test_one_that_was_sealed_for_something_else_is_not_taken(path: Path) -> None:
    opened(path, ONE)
    sealed, name = ONE.seal(CLEAR, b"somewhere else")
    db = apsw.Connection(str(path))
    db.execute("UPDATE meta SET secret = ?", (name.encode() + b":" + sealed,))
    db.close()
    assert opened(path, ONE) != CLEAR


def test_without_a_sealer_there_is_another_at_every_opening(path: Path) -> None:
    first, second = opened(path, None), opened(path, None)
    assert first != second
    assert holding(first, path.parent.iterdir()) == holding(second, path.parent.iterdir()) == []
    secret = opened(path, ONE)
    assert opened(path, None) != secret
    assert opened(path, ONE) == secret
