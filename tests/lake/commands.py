"""`courier` in a process that runs one command after the other, so that Java starts only once.

`python -m tests.lake.commands OUT TERMINAL`: every line of stdin has as JSON whether a command
speaks to a person, the module of its `main`, and its arguments; every line of stdout has the exit
status of one. What commands print goes into the file OUT, and what they say to a person into the
open file TERMINAL.
"""

import importlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.cli.command import clean_environ, sigint_heard
from tests.lake.processes import Started
from tests.lake.running import bury

COURIER = "courier.cli.main"
RUN_S_MAX = 600.0
POLL_S = 0.1
READ_BYTES = 65_536


class Commands:
    """Each is run as it was given; what it says goes into a file, or to a terminal."""

    def __init__(self, process: Started, out: Path, err: int, terminal: int) -> None:
        self.process = process
        self._out = out
        self._ears = (err, terminal)
        self._err = err
        self._read = 0
        self._said = ""
        self.busy = False

    def __call__(
        self, *args: str, terminal: bool = False, module: str = COURIER
    ) -> tuple[int, str, str]:
        """Run one to its end: its exit status, and what was printed and said."""
        self.begin(*args, terminal=terminal, module=module)
        return self.end()

    def begin(self, *args: str, terminal: bool = False, module: str = COURIER) -> None:
        """`terminal`: what it says, it says to a person. `module`: where another than ours is."""
        assert self.process.stdin is not None
        assert not self.busy, f"another one has not ended: {self.said()}"
        self.busy = True
        self._said, self._err = "", self._ears[terminal]
        self.process.stdin.write(json.dumps([terminal, module, args]).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, text: str) -> None:
        """Until the command has said this."""
        deadline_s = time.monotonic() + RUN_S_MAX
        while text not in self.said():
            assert time.monotonic() < deadline_s, self._said
            time.sleep(POLL_S)

    def end(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], RUN_S_MAX)
        assert ready, f"it does not end: {self.said()}"
        status = self.process.stdout.readline()
        assert status, f"it ended with the process: {self.said()}"
        self.busy = False
        printed = self._out.read_bytes()
        shown, self._read = printed[self._read :].decode(), len(printed)
        return int(status), shown, self.said()

    def said(self) -> str:
        """By the last one, up to now."""
        while select.select([self._err], [], [], 0)[0] and (part := os.read(self._err, READ_BYTES)):
            self._said += part.decode()
        return self._said


@contextmanager
def commands(folder: Path, python: Path = Path(sys.executable)) -> Iterator[Commands]:
    folder.mkdir()
    terminal, given = os.openpty()
    with (folder / "err").open("wb") as err, (folder / "err").open("rb") as heard:
        try:
            with sigint_heard():
                process = Started(
                    [python, "-m", "tests.lake.commands", folder / "out", str(given)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=err,
                    env=clean_environ(),
                    pass_fds=[given],
                )
            with process:
                made = Commands(process, folder / "out", heard.fileno(), terminal)
                try:
                    yield made
                except BaseException:
                    process.kill_all()
                    raise
                # Of a test that failed; nobody would tell it to end any more.
                if made.busy:
                    process.kill_all()
            bury(process, (folder / "err").read_text)
        finally:
            os.close(given)
            os.close(terminal)


def main(out: str, terminal: int, asked: IO[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    ears = (os.dup(2), terminal)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in asked:
        to_person, module, args = json.loads(line)
        os.dup2(ears[to_person], 2)
        # The most careless there is: commands care for themselves.
        os.umask(0)
        # One that has written to a file would go on as if it were one.
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        try:
            status: object = importlib.import_module(module).main(args)
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        print(status, file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), os.fdopen(os.dup(0)))
