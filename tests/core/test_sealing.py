"""Sealed bodies: nobody reads or changes them without the key, and keys can be changed."""

import base64
import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from courier import sealing
from courier.core.errors import StoreUnavailable
from courier.core.sealed import open_text, reseal_text
from courier.sealing import BadKey, KeySealer

ONE, TWO = b"1" * 32, b"2" * 32
HERE, THERE = b"here", b"there"
TEXTS = [b"", b"a", b"\x00\xff" * 100, b"long " * 100_000]


def text(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


@pytest.mark.parametrize("clear", TEXTS)
def test_what_was_sealed_is_opened(clear: bytes) -> None:
    sealer = KeySealer([ONE])
    sealed, name = sealer.seal(clear, HERE)
    assert sealer.open(sealed, name, HERE) == clear
    assert KeySealer([ONE]).open(sealed, name, HERE) == clear


def test_what_is_sealed_shows_nothing_of_what_it_was() -> None:
    clear = b"a well-known beginning " * 10
    sealed, _ = KeySealer([ONE]).seal(clear, HERE)
    assert not any(clear[at : at + 4] in sealed for at in range(len(clear) - 3))


def test_the_same_text_is_sealed_differently_every_time() -> None:
    sealer = KeySealer([ONE])
    nonces = {sealer.seal(b"same", HERE)[0][:12] for _ in range(1_000)}
    assert len(nonces) == 1_000


def test_the_name_of_a_key_tells_keys_apart_and_nothing_else() -> None:
    (_, one), (_, two) = KeySealer([ONE]).seal(b"", HERE), KeySealer([TWO]).seal(b"", HERE)
    assert one != two
    assert one == KeySealer([ONE]).seal(b"other", HERE)[1]
    for key, name in ((ONE, one), (TWO, two)):
        assert re.fullmatch(r"[0-9a-f]{16}\.2", name)
        assert name not in key.hex()


@pytest.mark.parametrize("place", [0, 11, 12, 13, -17, -16, -1])
def test_what_was_changed_is_not_opened(place: int) -> None:
    sealer = KeySealer([ONE])
    sealed, name = sealer.seal(b"some text", HERE)
    changed = bytearray(sealed)
    changed[place] ^= 1
    with pytest.raises(StoreUnavailable, match=name[:16]):
        sealer.open(bytes(changed), name, HERE)


@pytest.mark.parametrize("length", [0, 1, 12, 27, 28])
def test_what_was_cut_off_is_not_opened(length: int) -> None:
    sealer = KeySealer([ONE])
    sealed, name = sealer.seal(b"some text", HERE)
    with pytest.raises(StoreUnavailable):
        sealer.open(sealed[:length], name, HERE)


def test_without_its_key_nothing_is_opened() -> None:
    sealed, name = KeySealer([ONE]).seal(b"some text", HERE)
    with pytest.raises(StoreUnavailable, match=name[:16]):
        KeySealer([TWO]).open(sealed, name, HERE)
    other = KeySealer([TWO]).seal(b"", HERE)[1]
    with pytest.raises(StoreUnavailable):
        KeySealer([TWO]).open(sealed, other, HERE)


def test_the_first_key_seals_and_all_open() -> None:
    old, old_name = KeySealer([ONE]).seal(b"old", HERE)
    both = KeySealer([TWO, ONE])
    new, new_name = both.seal(b"new", HERE)
    assert new_name == KeySealer([TWO]).seal(b"", HERE)[1]
    assert (both.open(old, old_name, HERE), both.open(new, new_name, HERE)) == (b"old", b"new")


def test_what_was_sealed_for_one_place_does_not_open_in_another() -> None:
    sealer = KeySealer([ONE])
    sealed, name = sealer.seal(b"some text", HERE)
    for place in (THERE, b"", HERE + HERE):
        with pytest.raises(StoreUnavailable, match="moved from where it belongs"):
            sealer.open(sealed, name, place)
    # Nor does it pass for one of those that were sealed without a place.
    with pytest.raises(StoreUnavailable):
        sealer.open(sealed, name.removesuffix(".2"), HERE)


def test_what_was_sealed_before_there_were_places_is_still_opened() -> None:
    name, nonce = KeySealer([ONE]).name.removesuffix(".2"), b"n" * 12
    sealed = nonce + AESGCM(ONE).encrypt(nonce, b"old", None)
    sealer = KeySealer([TWO, ONE])
    assert sealer.open(sealed, name, HERE) == b"old"
    with pytest.raises(StoreUnavailable):
        sealer.open(sealed, name + ".2", HERE)
    text = f"{name}:{base64.b64encode(sealed).decode()}"
    again = reseal_text(text, sealer, HERE)
    assert again.startswith(sealer.name + ":")
    assert open_text(again, sealer, HERE) == b"old"
    assert reseal_text(again, sealer, HERE) == again


@pytest.mark.parametrize("text", ["", ":", "x", "x:y", f"{'0' * 16}.2:AAAA", "é:A"])
def test_text_that_nothing_was_sealed_as_is_refused(text: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_text(text, KeySealer([ONE]), HERE)


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
    (tmp_path / "encryption.key.new").write_bytes(b"half")
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
