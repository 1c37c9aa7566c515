"""Files are written whole, for their owner alone, and under names that a power cut spares."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from courier import files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What was synced, in order, by name; with whether `file` was there by then."""
    seen: list[tuple[str, bool]] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)
        seen.append((path.name, (path / "file").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_a_file_is_synced_before_its_name_and_its_name_after(
    tmp_path: Path, synced: list[tuple[str, bool]]
) -> None:
    for content in (b"old", b"new"):
        synced.clear()
        files.write(tmp_path / "file", content)
        assert synced == [("file.new", False), (tmp_path.name, True)]
        assert (tmp_path / "file").read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_names_are_synced_when_they_come_and_when_they_go(
    tmp_path: Path, synced: list[tuple[str, bool]]
) -> None:
    files.create(tmp_path / "file")
    assert synced == [(tmp_path.name, True)]
    files.create(tmp_path / "file")
    files.remove(tmp_path / "file")
    assert synced[1:] == [(tmp_path.name, False)]
    files.remove(tmp_path / "file")
    assert len(synced) == 2


def test_every_directory_that_is_made_is_synced_above(
    tmp_path: Path, synced: list[tuple[str, bool]]
) -> None:
    for _ in range(2):
        files.make_directory(tmp_path / "a" / "b" / "c")
        assert [name for name, _ in synced] == [tmp_path.name, "a", "b"]


def test_an_existing_file_keeps_its_content(tmp_path: Path) -> None:
    files.write(tmp_path / "file", b"here")
    files.create(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"here"


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        files.make_directory(tmp_path / "a" / "b")
        files.write(tmp_path / "a" / "written", b"")
        files.create(tmp_path / "a" / "created")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files.tree(tmp_path / "a")}
    assert modes == {"a": 0o700, "b": 0o700, "written": 0o600, "created": 0o600}


def test_what_a_crash_left_is_replaced_whatever_its_mode(tmp_path: Path) -> None:
    fresh = tmp_path / "file.new"
    fresh.write_bytes(b"half of it")
    fresh.chmod(0o666)
    files.write(tmp_path / "file", b"all")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    # One that leads elsewhere is not followed.
    other = tmp_path / "other"
    fresh.symlink_to(other)
    files.write(tmp_path / "file", b"again")
    assert not other.exists()


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError):
        files.write(tmp_path / "file", b"")
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "missing" / "file", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["file"], "no part of it is left"
    files.create(tmp_path / "other")
    with pytest.raises(OSError):
        files.make_directory(tmp_path / "other")


@pytest.mark.parametrize(
    "make", [lambda path: files.write(path, b"new"), files.create, files.make_directory]
)
def test_a_name_that_cannot_be_made_durable_is_taken_back(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later calls take what is there for durable."""

    def fails(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError):
            make(tmp_path / "name")
    assert [*tmp_path.iterdir()] == []
    make(tmp_path / "name")


def test_modes_are_tightened_and_never_widened(tmp_path: Path) -> None:
    modes = {"open": 0o666, "run": 0o755, "closed": 0o400, "private": 0o600}
    for name, mode in modes.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe", 0o644)
    names = [*modes, "dangling", "pipe", "missing"]
    assert files.tighten(tmp_path / name for name in names) == 2
    assert files.tighten(tmp_path / name for name in names) == 0
    found = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in modes}
    assert found == {"open": 0o600, "run": 0o600, "closed": 0o400, "private": 0o600}
