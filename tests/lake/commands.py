"""`courier` in a process that runs one command after the other, so that Java starts only once.

`python -m tests.lake.commands OUT`: every line of stdin has the arguments of a command as JSON,
every line of stdout the exit status of one. What commands print goes into the file OUT.
"""

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

RUN_S_MAX = 600.0
POLL_S = 0.1
READ_BYTES = 65_536


class Commands:
    """Each is run as it was given; `err` is a file, or a terminal's other end."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: int) -> None:
        self.process = process
        self._out = out
        self._err = err
        self._read = 0
        self._said = ""

    def __call__(self, *args: str) -> tuple[int, str, str]:
        """Run one to its end: its exit status, and what was printed and said."""
        self.begin(*args)
        return self.end()

    def begin(self, *args: str) -> None:
        assert self.process.stdin is not None
        self._said = ""
        self.process.stdin.write(json.dumps(args).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, text: str) -> None:
        """Until the command has said this."""
        deadline_s = time.monotonic() + RUN_S_MAX
        while text not in self._listen():
            assert time.monotonic() < deadline_s, self._said
            time.sleep(POLL_S)

    def end(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], RUN_S_MAX)
        assert ready, f"it does not end: {self._listen()}"
        status = self.process.stdout.readline()
        assert status, f"it ended with the process: {self._listen()}"
        printed = self._out.read_bytes()
        shown, self._read = printed[self._read :].decode(), len(printed)
        return int(status), shown, self._listen()

    def _listen(self) -> str:
        while select.select([self._err], [], [], 0)[0] and (part := os.read(self._err, READ_BYTES)):
            self._said += part.decode()
        return self._said


@contextmanager
def commands(folder: Path, *, terminal: bool = False) -> Iterator[Commands]:
    """`terminal`: what they say, they say to a person."""
    folder.mkdir()
    if terminal:
        err, given = os.openpty()
    else:
        given = os.open(folder / "err", os.O_WRONLY | os.O_CREAT)
        err = os.open(folder / "err", os.O_RDONLY)
    try:
        with sigint_heard():
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.lake.commands", str(folder / "out")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=given,
                env=clean_environ(),
            )
        with process:
            try:
                yield Commands(process, folder / "out", err)
            except BaseException:
                process.kill()
                raise
    finally:
        os.close(given)
        os.close(err)


def main(out: str, asked: IO[str]) -> None:
    from courier.cli.main import main as courier

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in asked:
        try:
            status: object = courier(json.loads(line))
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        print(status, file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], os.fdopen(os.dup(0)))
