"""Commands that are run beside a test, and killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.command import clean_environ
from tests.server import Server

RUN_S_MAX = 240.0
POLL_S = 0.05


@contextmanager
def running(server: Server, words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command beside the test, of which no process stays behind."""
    with (
        log.open("a") as output,
        subprocess.Popen(
            [sys.executable, "-m", "courier", *words.split(), "--data", str(server.data)],
            stdout=output,
            stderr=output,
            env=clean_environ(),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The command and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def wait(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + RUN_S_MAX
    while not happened():
        assert process.poll() is None, f"it ended with exit status {process.returncode}"
        assert time.monotonic() < deadline_s, "it does not get on"
        time.sleep(POLL_S)
