"""A server whose wall clock is set by a test: `python -m tests.faults.steered serve ...`.

Only the source of the wall clock differs from `courier serve`.
"""

import argparse
import os
import time
from pathlib import Path

from courier.app import serve as run_server
from courier.cli import serve
from tests.server import Server

OFFSET_VARIABLE = "TEST_WALL_OFFSET_FILE"
_MS_NS = 1_000_000


class SteeredServer(Server):
    """A real server. What its wall clock shows is this machine's time and `set_ms` on top."""

    def __init__(self, directory: Path, *, step_wait_ms: int) -> None:
        self._offset = directory / "offset"
        self.set_wall(0)
        super().__init__(
            directory,
            args=[
                *("--clock-step-wait-ms", str(step_wait_ms)),
                *("--push-networks", "127.0.0.0/8"),
                *("--journal-retention-ms", "100d"),
                *("--api-rate-max", "100000"),
            ],
            env={OFFSET_VARIABLE: str(self._offset)},
            module="tests.faults.steered",
        )

    def set_wall(self, ahead_ms: int) -> None:
        self.set_ms = ahead_ms
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(str(ahead_ms))
        fresh.replace(self._offset)

    def forget_boot(self) -> None:
        """As if the machine had been started again; the server must not be running."""
        assert not self.running
        (self.data / "clock.json").unlink(missing_ok=True)


def main() -> None:
    offset = Path(os.environ[OFFSET_VARIABLE])
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    serve.add_settings(parser)
    run_server(
        serve.load(parser.parse_args()),
        wall_ns=lambda: time.time_ns() + int(offset.read_text()) * _MS_NS,
    )


if __name__ == "__main__":
    main()
