"""Sealed bodies: nobody reads or changes them without the key, and keys can be changed."""

import base64
import re
import stat
from pathlib import Path

import pytest

from courier import sealing
from courier.core.errors import StoreUnavailable
from courier.sealing import BadKey, Sealer

ONE, TWO = b"1" * 32, b"2" * 32
TEXTS = [b"", b"a", b"\x00\xff" * 100, b"long " * 100_000]


def text(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


@pytest.mark.parametrize("clear", TEXTS)
def test_what_was_sealed_is_opened(clear: bytes) -> None:
    sealer = Sealer([ONE])
    sealed, name = sealer.seal(clear)
    assert sealer.open(sealed, name) == clear
    assert Sealer([ONE]).open(sealed, name) == clear


def test_what_is_sealed_shows_nothing_of_what_it_was() -> None:
    clear = b"a well-known beginning " * 10
    sealed, _ = Sealer([ONE]).seal(clear)
    assert not any(clear[at : at + 4] in sealed for at in range(len(clear) - 3))


def test_the_same_text_is_sealed_differently_every_time() -> None:
    sealer = Sealer([ONE])
    nonces = {sealer.seal(b"same")[0][:12] for _ in range(1_000)}
    assert len(nonces) == 1_000


def test_the_name_of_a_key_tells_keys_apart_and_nothing_else() -> None:
    (_, one), (_, two) = Sealer([ONE]).seal(b""), Sealer([TWO]).seal(b"")
    assert one != two
    assert one == Sealer([ONE]).seal(b"other")[1]
    for key, name in ((ONE, one), (TWO, two)):
        assert re.fullmatch("[0-9a-f]{16}", name)
        assert name not in key.hex()


@pytest.mark.parametrize("place", [0, 11, 12, 13, -17, -16, -1])
def test_what_was_changed_is_not_opened(place: int) -> None:
    sealer = Sealer([ONE])
    sealed, name = sealer.seal(b"some text")
    changed = bytearray(sealed)
    changed[place] ^= 1
    with pytest.raises(StoreUnavailable, match=name):
        sealer.open(bytes(changed), name)


@pytest.mark.parametrize("length", [0, 1, 12, 27, 28])
def test_what_was_cut_off_is_not_opened(length: int) -> None:
    sealer = Sealer([ONE])
    sealed, name = sealer.seal(b"some text")
    with pytest.raises(StoreUnavailable):
        sealer.open(sealed[:length], name)


def test_without_its_key_nothing_is_opened() -> None:
    sealed, name = Sealer([ONE]).seal(b"some text")
    with pytest.raises(StoreUnavailable, match=name):
        Sealer([TWO]).open(sealed, name)
    other = Sealer([TWO]).seal(b"")[1]
    with pytest.raises(StoreUnavailable):
        Sealer([TWO]).open(sealed, other)


def test_the_first_key_seals_and_all_open() -> None:
    old, old_name = Sealer([ONE]).seal(b"old")
    both = Sealer([TWO, ONE])
    new, new_name = both.seal(b"new")
    assert new_name == Sealer([TWO]).seal(b"")[1]
    assert (both.open(old, old_name), both.open(new, new_name)) == (b"old", b"new")


# --- where keys come from ---


def test_keys_are_read_from_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "key"
    assert sealing.keys(text(ONE), file=file) == [ONE]
    assert sealing.keys(text(ONE, TWO), file=file) == [ONE, TWO]
    assert sealing.keys(text(ONE).replace(",", " , ") + " ", file=file) == [ONE]
    assert not file.exists()


@pytest.mark.parametrize(
    "bad",
    [
        "x",
        "not base64!",
        text(ONE) + ",",
        text(ONE[:31]),
        text(ONE + b"x"),
        text(ONE) + "," + text(b"short"),
        "é",
        ",",
    ],
)
def test_a_bad_key_is_refused_without_being_shown(tmp_path: Path, bad: str) -> None:
    with pytest.raises(BadKey) as refused:
        sealing.keys(bad, file=tmp_path / "key")
    assert "32 bytes" in str(refused.value)
    assert text(ONE) not in str(refused.value)


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "encryption.key"
    [made] = sealing.keys("", file=file)
    assert len(made) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sealing.keys("", file=file) == [made]
    assert [path.name for path in tmp_path.iterdir()] == ["encryption.key"]


def test_every_server_makes_a_key_of_its_own(tmp_path: Path) -> None:
    made = {sealing.keys("", file=tmp_path / str(number))[0] for number in range(10)}
    assert len(made) == 10


def test_a_key_that_was_half_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "encryption.new").write_bytes(b"half")
    [made] = sealing.keys("", file=tmp_path / "encryption.key")
    assert len(made) == 32


@pytest.mark.parametrize("content", ["", "\n", "x", text(ONE[:16])])
def test_a_file_without_a_key_is_refused_and_not_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "encryption.key"
    file.write_text(content)
    with pytest.raises(BadKey):
        sealing.keys("", file=file)
    assert file.read_text() == content


def test_a_file_may_hold_several_keys(tmp_path: Path) -> None:
    file = tmp_path / "encryption.key"
    file.write_text(text(TWO, ONE) + "\n")
    assert sealing.keys("", file=file) == [TWO, ONE]
