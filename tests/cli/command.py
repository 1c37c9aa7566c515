"""The command as its users run it: a process with arguments, stdin and an exit status."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

SECONDS_MAX = 60


class Ran:
    """What a finished command left behind."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.status = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """A table's cells below its header. No cell may hold two spaces in a row."""
        return [
            [cell.strip() for cell in line.split("  ") if cell] for line in self.out.splitlines()
        ][1:]


class Command:
    """`courier`, with `common` arguments behind those of each run."""

    def __init__(self, *common: str, cwd: Path | None = None) -> None:
        self._common = common
        self._cwd = cwd

    def __call__(
        self, *args: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None
    ) -> Ran:
        """Run it, and expect success."""
        ran = self.attempt(*args, stdin=stdin, environ=environ)
        assert ran.status == 0, ran.err
        return ran

    def attempt(
        self, *args: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None
    ) -> Ran:
        """Run it, whatever comes of it, but never a traceback."""
        words, dashes, rest = _split(args)
        ran = Ran(
            subprocess.run(
                [sys.executable, "-m", "courier", *words, *self._common, *dashes, *rest],
                input=stdin,
                capture_output=True,
                timeout=SECONDS_MAX,
                cwd=self._cwd,
                env={**clean_environ(), **(environ or {})},
            )
        )
        assert "Traceback" not in ran.err, ran.err
        return ran

    @contextmanager
    def start(
        self, *args: str, stdin: int | IO[bytes] | None = None, stderr: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run it beside the test. Its stdout is a pipe; so is stderr, unless given."""
        with sigint_heard():
            started = subprocess.Popen(
                [sys.executable, "-m", "courier", *args, *self._common],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self._cwd,
                env=clean_environ(),
            )
        with started as process:
            try:
                yield process
            except BaseException:
                # Nobody will tell it to end any more, and leaving this block waits for it.
                process.kill()
                raise

    def fails(self, status: int, *args: str, stdin: bytes = b"") -> str:
        """Run it, expect this status and one line of explanation, and return that line."""
        ran = self.attempt(*args, stdin=stdin)
        assert (ran.status, ran.out) == (status, ""), ran.err
        [line] = ran.err.splitlines()
        return line


@contextmanager
def sigint_heard() -> Iterator[None]:
    """What is started meanwhile can be interrupted, even if the tests run in the background.

    A shell may let background jobs ignore SIGINT. Their processes inherit that, but no handler.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def clean_environ() -> dict[str, str]:
    """The variables of this process without those that are settings of Courier."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COURIER_")}


def _split(args: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Arguments before, at and behind a `--`, which must stay behind all flags."""
    if "--" not in args:
        return args, (), ()
    at = args.index("--")
    return args[:at], args[at : at + 1], args[at + 1 :]
