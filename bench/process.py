"""A server that the bench starts, watches and stops."""

import atexit
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# RabbitMQ takes some seconds of CPU, and other work may share the machine.
START_S_MAX = 240.0
STOP_S_MAX = 60.0
POLL_S = 0.002
# To the nanosecond; ticks are a hundredth of a second.
_SCHEDSTATS = "task/*/schedstat"
_CHILDREN = "task/*/children"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        assert isinstance(port, int)
        return port


class Process:
    """One child process listening on a loopback port; its output goes to a file beside its data."""

    def __init__(self, command: Sequence[str], *, port: int, directory: Path) -> None:
        self.port = port
        self._log = directory / f"server-{port}.log"
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        # A bench that fails leaves no server behind.
        atexit.register(self._child.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def answers(self) -> bool:
        """Whether something listens on the port by now."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def wait_until(self, ready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        while not ready():
            if self._child.poll() is not None:
                raise RuntimeError(f"{self._child.args!r} ended at start:\n{self._tail()}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self._child.args!r} is not ready:\n{self._tail()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
                raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def cpu_s(self) -> float:
        """CPU time of all its threads and children, also of those that it has waited for."""
        return cpu_s_of(self._child.pid)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self._child.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def cpu_s_of(pid: int) -> float:
    """CPU time of a process and of all below it, but for those that end meanwhile."""
    process = Path(f"/proc/{pid}")
    try:
        threads_ns = sum(int(path.read_text().split()[0]) for path in process.glob(_SCHEDSTATS))
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        below = [each for path in process.glob(_CHILDREN) for each in path.read_text().split()]
    except OSError:
        return 0.0
    waited_s = sum(int(field) for field in fields[13:15]) / _TICKS_PER_S
    return threads_ns / 1e9 + waited_s + sum(cpu_s_of(int(each)) for each in below)
