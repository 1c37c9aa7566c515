"""Finding the Java that Spark needs."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST = 17
WAIT_S_MAX = 30.0
MISSING = (
    f"Spark needs Java {OLDEST} or newer, and there is none: install a JRE (on Debian and Ubuntu: "
    f"apt-get install openjdk-{OLDEST}-jre-headless), or set JAVA_HOME to one"
)


def find() -> Path | None:
    """The home of a Java that will do: JAVA_HOME's, the PATH's, or one that is installed."""
    for home in _homes():
        if (home / "bin" / "java").is_file() and (version(home) or 0) >= OLDEST:
            return home
    return None


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parents[1]
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def version(home: Path) -> int | None:
    """Its major version, as it says itself."""
    try:
        told = (home / "release").read_text("utf-8", "replace")
    except OSError:
        try:
            command = [str(home / "bin" / "java"), "-version"]
            run = subprocess.run(command, capture_output=True, timeout=WAIT_S_MAX, text=True)
        except (OSError, subprocess.TimeoutExpired):
            return None
        told = run.stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?([0-9]+)', told)
    return int(found[1]) if found else None
