"""Disks as a power loss could have left them, made from what a `LyingDisk` remembers."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.faults.lying import Op

SECTORS = (512, 4_096)


class _Inode:
    """A file's bytes on the platter, and changes that may or may not have got there."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.pending: list[Op] = []

    def apply(self, op: Op) -> None:
        if op.kind == "truncate":
            del self.durable[op.at :]
            self.durable.extend(bytes(op.at - len(self.durable)))
            return
        self.durable.extend(bytes(max(0, op.at - len(self.durable))))
        self.durable[op.at : op.at + len(op.data)] = op.data

    def sync(self) -> None:
        for op in self.pending:
            self.apply(op)
        self.pending = []

    def lose(self, chance: random.Random | None) -> None:
        """Any of the changes got there, whole or torn, and none will be written again."""
        if chance is None:
            self.sync()
            return
        mode = chance.choice(("none", "all", "prefix", "any", "torn"))
        upto = chance.randint(0, len(self.pending))
        for number, op in enumerate(self.pending):
            if mode == "none" or (mode == "prefix" and number >= upto):
                continue
            if mode in ("all", "prefix") or chance.random() < 0.5:
                self.apply(op)
            elif mode == "torn" and op.kind == "write":
                self._tear(op, chance)
        self.pending = []

    def _tear(self, op: Op, chance: random.Random) -> None:
        """Some sectors of one write."""
        sector = chance.choice(SECTORS)
        at = op.at
        while at < op.at + len(op.data):
            end = min(op.at + len(op.data), (at // sector + 1) * sector)
            if chance.random() < 0.5:
                self.apply(Op("write", op.path, at, op.data[at - op.at : end - op.at]))
            at = end


class _Disk:
    def __init__(self) -> None:
        self.names: dict[str, _Inode] = {}
        self.durable: dict[str, _Inode] = {}
        self.inodes: list[_Inode] = []
        self.changed: list[str] = []

    def run(self, op: Op, chance: random.Random | None) -> None:
        if op.kind in ("create", "delete", "rename"):
            self._rename(op)
        elif op.kind == "names":
            self._sync_names(op.path)
        elif op.path in self.names:
            inode = self.names[op.path]
            if op.kind == "sync":
                inode.sync()
            elif op.kind == "lost":
                inode.lose(chance)
            else:
                inode.pending.append(op)

    def _rename(self, op: Op) -> None:
        self.changed.append(op.path)
        if op.kind == "create":
            self.names[op.path] = _Inode()
            self.inodes.append(self.names[op.path])
        elif op.kind == "delete":
            self.names.pop(op.path, None)
        else:
            self.changed.append(op.data)
            self.names[op.data] = self.names.pop(op.path)

    def _sync_names(self, directory: str) -> None:
        kept = []
        for path in self.changed:
            if str(Path(path).parent) == directory:
                self._make_durable(path)
            else:
                kept.append(path)
        self.changed = kept

    def _make_durable(self, path: str) -> None:
        if path in self.names:
            self.durable[path] = self.names[path]
        else:
            self.durable.pop(path, None)

    def lose(self, chance: random.Random | None) -> None:
        mode = "all" if chance is None else chance.choice(("none", "all", "any"))
        for path in self.changed:
            if mode == "all" or (chance and mode == "any" and chance.random() < 0.5):
                self._make_durable(path)
        for inode in self.inodes:
            inode.lose(chance)


def write_image(
    log: Sequence[Op], chance: random.Random | None, *, root: Path, target: Path
) -> None:
    """One disk that a power loss after `log` could leave of `root`, written to `target`.

    Without `chance`: what the process itself would read, synced or not.
    """
    disk = _Disk()
    for op in log:
        disk.run(op, chance)
    disk.lose(chance)
    target.mkdir(parents=True)
    directories = {path for path in disk.names if path.endswith("/")}
    lost = tuple(path for path in directories if path not in disk.durable)
    for path, inode in disk.durable.items():
        if path.endswith("/") or path.startswith(lost):
            continue
        place = target / Path(path).relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(inode.durable)
