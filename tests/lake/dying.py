"""Points at which a command that a test has started kills itself, and how a test chooses one.

Whoever comes to the point that the file `die` names takes the file away, and with it the command:
all of its processes, or its first one alone, which its Spark outlives for a moment.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path


def arm(home: Path, point: str, *, alone: bool = False) -> None:
    """From now on whoever comes to the point dies."""
    (home / "died").unlink(missing_ok=True)
    new = home / "die.new"
    new.write_text(f"{point}\n{'alone' if alone else 'all'}")
    new.rename(home / "die")


def died(home: Path) -> str:
    """The point at which somebody died since `arm`; empty if nobody did."""
    file = home / "died"
    return file.read_text().partition("\n")[0] if file.exists() else ""


def disarm(home: Path) -> None:
    (home / "die").unlink(missing_ok=True)


def begin(home: Path) -> None:
    """Said by the command: this is its first process."""
    (home / "pid").write_text(str(os.getpid()))


def passes(home: str | Path, point: str) -> None:
    """Die here, if this is where to."""
    die = Path(home) / "die"
    try:
        named, _, whom = die.read_text().partition("\n")
        if named != point:
            return
        die.rename(die.with_name("died"))
    except FileNotFoundError:
        return
    first = int((Path(home) / "pid").read_text())
    with suppress(ProcessLookupError):
        (os.kill if whom == "alone" else os.killpg)(first, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
