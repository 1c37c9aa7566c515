"""Commands that are run beside a test, and killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import clean_environ, sigint_heard
from tests.lake import dying
from tests.lake.processes import Started
from tests.server import Server

RUN_S_MAX = 240.0
# Spark takes its time, and so do those who share the machine.
CHANGE_S_MAX = 600.0
# Spark notices that its driver is gone.
ORPHAN_S_MAX = 60.0
# To look at a lake costs what others on the machine would have had.
POLL_S = 0.2
HERE = Path(__file__).resolve().parents[2]


@contextmanager
def running(
    server: Server,
    words: str,
    log: Path,
    python: Path = Path(sys.executable),
    inside: Sequence[str] = (),
) -> Iterator[Started]:
    """A command beside the test, of which no process stays behind."""
    with (
        log.open("a") as output,
        Started(
            [*inside, python, "-m", "courier", *words.split(), "--data", str(server.data)],
            stdout=output,
            stderr=output,
            env=clean_environ(),
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill_all()


def wait_for(true: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + CHANGE_S_MAX
    while not true():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(POLL_S)


def bury(process: Started, log: Callable[[], str]) -> None:
    """Let what a command has started outlive it, but not for long."""
    process.wait(RUN_S_MAX)
    deadline_s = time.monotonic() + ORPHAN_S_MAX
    while left := process.belongings():
        if time.monotonic() > deadline_s:
            process.kill_all()
            raise AssertionError(f"processes outlive their driver: {left}; {log()}")
        time.sleep(POLL_S)


class Victim:
    """A command that is killed, by itself at a point (see `dying`) or by the test.

    What it prints is added to the file `log` in its home.
    """

    def __init__(self, home: Path, command: Sequence[str]) -> None:
        self._home = home
        dying.disarm(home)
        environ = clean_environ()
        # Spark's workers find what is in here by this.
        environ["PYTHONPATH"] = os.pathsep.join([str(HERE), environ.get("PYTHONPATH", "")])
        with sigint_heard(), (home / "log").open("ab") as log:
            self.process = Started(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                cwd=HERE,
            )

    def log(self) -> str:
        return (self._home / "log").read_text()

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def until(self, happened: Callable[[], bool], what: str = "a sign of it") -> bool:
        """Wait for something; False: the command has ended before."""
        deadline_s = time.monotonic() + RUN_S_MAX
        while not happened():
            if not self.runs:
                return False
            assert time.monotonic() < deadline_s, f"no {what}: {self.log()}"
            time.sleep(POLL_S)
        return True

    def arm(self, point: str, *, alone: bool) -> None:
        """Let it die when it comes to this point."""
        dying.arm(self._home, point, self.process, alone=alone)

    def dies_at(self, point: str) -> bool:
        """Wait for its end; whether it died at the point that it was armed with."""
        self.until(lambda: False, f"end at {point!r}")
        return self._killed() and dying.died(self._home) == point

    def kill(self, *, alone: bool = False) -> bool:
        """Kill it now; False: it had ended before."""
        if self.runs:
            self.process.kill() if alone else self.process.kill_all()
        return self._killed()

    def interrupt(self) -> bool:
        """As supervisors do: to the process and to its group, which is one request."""
        self.process.send_signal(signal.SIGTERM)
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(RUN_S_MAX) == 128 + signal.SIGINT

    def _killed(self) -> bool:
        return self.process.wait(RUN_S_MAX) == -signal.SIGKILL

    def bury(self) -> None:
        bury(self.process, self.log)


class Victims:
    """One after the other; the Spark of the last one may still be there beside the next."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._last: Victim | None = None

    @contextmanager
    def next(self, *command: str) -> Iterator[Victim]:
        victim = Victim(self._home, command)
        try:
            yield victim
        except BaseException:
            victim.process.kill_all()
            raise
        finally:
            if victim.runs:
                victim.process.kill_all()
            if self._last is not None:
                self._last.bury()
            self._last = victim

    def __enter__(self) -> "Victims":
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._last.bury()


class Toll:
    """What was killed, as it is told at the end."""

    def __init__(self) -> None:
        self.points: dict[str, int] = {}
        self.random = self.alone = self.broker = self.missed = 0

    def __str__(self) -> str:
        at = sum(self.points.values())
        return (
            f"{at + self.random} kills: {at} at {len(self.points)} points {self.points}, "
            f"{self.random} at random; {self.alone} of the driver alone; {self.broker} times the "
            f"broker meanwhile; {self.missed} missed and not counted"
        )
