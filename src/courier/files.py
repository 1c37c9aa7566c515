"""Files that hold secrets."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """For the owner's eyes only, and either whole or not there."""
    fresh = path.with_suffix(".new")
    with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
