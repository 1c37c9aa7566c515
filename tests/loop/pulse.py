"""Asks for /health again and again in a process of its own, and notes how long each answer took."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

EVERY_S = 0.002
ANSWER_S_MAX = 120.0
_ASK = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Pulse:
    def __init__(self, port: int, notes: Path) -> None:
        self._port = port
        self._notes = notes
        self._process: subprocess.Popen[bytes] | None = None
        self._at = 0
        self._beats: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._notes.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.loop.pulse", str(self._port), str(self._notes)]
        )
        deadline = time.monotonic() + 10
        while not self._notes.stat().st_size:
            assert time.monotonic() < deadline, "the pulse does not beat"
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def longest_ms(self, since_s: float, until_s: float) -> float:
        """The longest wait of those that were on between two times; asked for in their order."""
        assert self._process is not None
        while not self._beats or self._beats[-1][0] <= until_s:
            assert self._process.poll() is None, "the pulse has stopped"
            time.sleep(EVERY_S)
            self._read()
        self._beats = [beat for beat in self._beats if sum(beat) > since_s]
        return max((took for began, took in self._beats if began < until_s), default=0) * 1e3

    def _read(self) -> None:
        with self._notes.open("rb") as file:
            file.seek(self._at)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self._at += len(whole) + 1
            for line in whole.split(b"\n"):
                began, took = line.split()
                self._beats.append((float(began), float(took)))


def beat(port: int, notes: Path) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as link,
        notes.open("ab") as file,
    ):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            began_s = time.monotonic()
            link.sendall(_ASK)
            answer = link.recv(4_096)
            while b"}" not in answer:
                answer += link.recv(4_096)
            file.write(b"%.6f %.6f\n" % (began_s, time.monotonic() - began_s))
            file.flush()
            time.sleep(EVERY_S)


if __name__ == "__main__":
    beat(int(sys.argv[1]), Path(sys.argv[2]))
