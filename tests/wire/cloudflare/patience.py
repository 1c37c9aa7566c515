"""Waiting for something that time brings, without waiting longer than it takes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def eventually(look: Callable[[], T], *, seconds_max: float = 20.0) -> T:
    """The first answer of `look` that is true."""
    deadline = time.monotonic() + seconds_max
    while not (seen := look()):
        assert time.monotonic() < deadline, f"still {seen!r} after {seconds_max} s"
        time.sleep(POLL_SECONDS)
    return seen
