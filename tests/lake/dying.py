"""Points at which a command that a test has started kills itself, and how a test chooses one.

The file `die` names a point and a command, by its first process. Whoever of the command comes to
the point takes the file away, and with it the command: all of its processes, or the first alone,
which its Spark outlives for a moment.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path


def arm(home: Path, point: str, first: int, *, alone: bool = False) -> None:
    """From now on whoever of this process's command comes to the point dies."""
    (home / "died").unlink(missing_ok=True)
    new = home / "die.new"
    new.write_text(f"{point}\n{first}\n{'alone' if alone else 'all'}")
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
        named, first, whom = die.read_text().split("\n")
        # What an earlier command has left behind, and is at work for a moment, is not meant.
        if named != point or os.getsid(0) != int(first):
            return
        die.rename(die.with_name("died"))
    except FileNotFoundError:
        return
    with suppress(ProcessLookupError):
        (os.kill if whom == "alone" else os.killpg)(int(first), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
