"""`python -m tests.archive FILE`: what Java loads for Spark, in one file that it maps at once.

Tests start Spark many times, and a third of each start is the loading of classes. A Java that the
file is not of says so and goes on without it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.server import Server

SECONDS_MAX = 300
BYTES_MIN = 50 << 20
# The command would not wait for its Java to write so much.
COMMAND = f"""
import sys
from courier.__main__ import main
from courier.lake import session

session.JAVA_END_S_MAX = {SECONDS_MAX}
sys.exit(main())
"""


def main(file: Path) -> None:
    file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)).start() as server:
        with server.client() as client:
            client.post("/queues", json={"queue_name": "any"}).raise_for_status()
        subprocess.run(
            [
                *(sys.executable, "-c", COMMAND, "pipeline", "run", "--once"),
                *("--data", str(server.data)),
            ],
            env={**os.environ, "JAVA_TOOL_OPTIONS": f"-XX:ArchiveClassesAtExit={file}"},
            stderr=subprocess.DEVNULL,
            timeout=SECONDS_MAX,
            check=True,
        )
        _wait(file)


def _wait(file: Path) -> None:
    """Java writes it when everything else is over; Spark's launcher has written a small one."""
    deadline = time.monotonic() + SECONDS_MAX
    sizes = [0, 1]
    while sizes[-1] < BYTES_MIN or sizes[-1] != sizes[-2]:
        if time.monotonic() > deadline:
            file.unlink(missing_ok=True)
            sys.exit("Java did not write down its classes")
        time.sleep(0.5)
        sizes.append(file.stat().st_size if file.exists() else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
