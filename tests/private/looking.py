"""What a stranger on the same machine could see: modes, output, and bytes of files."""

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SECRET_FIELDS = {"api_token", "client_secret", "password", "api_key", "token"}


def open_to_others(root: Path) -> list[str]:
    """What is below a directory, itself included, and not for its owner alone."""
    found = []
    for path in (root, *root.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # removed meanwhile
            continue
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if stat.S_IMODE(mode) != wanted:
            found.append(f"{path.relative_to(root)}: {stat.S_IMODE(mode):o}")
    return found


def secrets_of(credentials: dict[str, Any]) -> Iterator[str]:
    """Every secret of a credentials file."""
    for name, value in credentials.items():
        if isinstance(value, dict):
            yield from secrets_of(value)
        elif name in SECRET_FIELDS:
            yield value


def holding(secret: bytes, files: Iterable[Path]) -> list[str]:
    """The files in whose bytes a secret is."""
    return [str(file) for file in files if file.is_file() and secret in file.read_bytes()]
