"""What the documentation shows to be pasted, and a shell to paste it into."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.command import SECONDS_MAX, clean_environ

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def run(place: Path, *command: str, seconds_max: float = SECONDS_MAX) -> str:
    """What the command prints; it must succeed, and reach the server without a proxy."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=place,
        env={**clean_environ(), "PATH": path, "NO_PROXY": "*", "no_proxy": "*"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds_max,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def shell(place: Path, *pasted: str, seconds_max: float = SECONDS_MAX) -> str:
    command = ["bash", "-e", "-u", "-o", "pipefail", "-c", "\n".join(pasted)]
    return run(place, *command, seconds_max=seconds_max)
