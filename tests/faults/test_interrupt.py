"""Ctrl-C at any moment of a start: one line, status 130, and the next start is as good as any."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import clean_environ, sigint_heard
from tests.server import Server, free_port

MOMENTS = 4
END_S_MAX = 30.0
# What Python prints for every module that it has loaded.
LOADED = "import time:"
COMMANDS = [
    "serve --port {port} --data {data}",
    "up --port {port} --data {data}",
    "config --json",
    "pipeline run --once --data {data}",
    "lake tables --data {data}",
    "queue list --data {data}",
]


class Started:
    """A command whose own code has begun to load; Python itself is not ours to mend."""

    def __init__(self, command: list[str]) -> None:
        with sigint_heard():
            self.process = subprocess.Popen(
                [sys.executable, "-X", "importtime", "-m", "courier", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=clean_environ(),
            )
        assert self.process.stderr is not None
        self._said = ""
        for line in self.process.stderr:
            if line.startswith(LOADED) and line.rstrip().endswith("courier.cli"):
                return
            self._said += "" if line.startswith(LOADED) else line
        raise AssertionError(f"it ended before it began: {self._said}")

    def end(self) -> tuple[int, str]:
        """Its status, and what it said."""
        try:
            _, rest = self.process.communicate(timeout=END_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        said = [line for line in rest.splitlines(True) if not line.startswith(LOADED)]
        return self.process.returncode, self._said + "".join(said)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_an_interrupt_while_a_command_loads_is_one_line(tmp_path: Path, command: str) -> None:
    words = command.format(port=free_port(), data=tmp_path / "data").split()
    began_s = time.monotonic()
    whole = Started(words)
    # The server takes signals as soon as it serves; the others end by themselves.
    lasts_s = 1.0
    if words[0] in ("serve", "up"):
        time.sleep(lasts_s)
        whole.process.send_signal(signal.SIGINT)
        whole.end()
    else:
        whole.end()
        lasts_s = time.monotonic() - began_s
    chance = random.Random(command)
    interrupted = 0
    for moment in range(MOMENTS):
        started = Started(words)
        time.sleep(chance.random() * lasts_s if moment else 0)
        started.process.send_signal(signal.SIGINT)
        status, said = started.end()
        assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
        if status == 130:
            interrupted += 1
            assert said.count("courier:") <= 1, said
        else:  # it was faster: served and stopped in order, or had done what it can do
            assert status in (0, 1, 2, 3, -signal.SIGINT), (status, said)
    assert interrupted, "no moment was early enough to show anything"
    if words[0] == "serve":
        with Server(tmp_path).start() as server:
            assert "Traceback" not in server.log()
