"""Points at which a command that a test has started kills itself, and how a test chooses one.

The file `die` names a point and a command, by its mark and its first process. What of the command
comes to the point takes the file away, and with it the command: all of its processes, or the first
alone, which its Spark outlives for a moment.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.lake.processes import MARK, Started, kill_marked


def arm(home: Path, point: str, command: Started, *, alone: bool = False) -> None:
    """From now on what of this command comes to the point dies."""
    (home / "died").unlink(missing_ok=True)
    new = home / "die.new"
    new.write_text(f"{point}\n{command.mark}\n{command.pid if alone else 0}")
    new.rename(home / "die")


def died(home: Path) -> str:
    """The point at which somebody died since `arm`; empty if nobody did."""
    file = home / "died"
    return file.read_text().partition("\n")[0] if file.exists() else ""


def disarm(home: Path) -> None:
    (home / "die").unlink(missing_ok=True)


def passes(home: str | Path, point: str) -> None:
    """Die here, if this is where to."""
    die = Path(home) / "die"
    try:
        named, mark, alone = die.read_text().split("\n")
        # What an earlier command has left behind, and is at work for a moment, is not meant.
        if named != point or os.environ.get(MARK) != mark:
            return
        die.rename(die.with_name("died"))
    except FileNotFoundError:
        return
    if int(alone):
        with suppress(ProcessLookupError):
            os.kill(int(alone), signal.SIGKILL)
    else:
        kill_marked(mark, spare=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
