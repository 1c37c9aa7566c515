"""Patterns from outside, on an engine that never goes back.

Its time grows with the text times the length of the pattern's program, at worst; both are limited.
"""

from functools import lru_cache
from typing import Any

import re2

PATTERN_CHARACTERS_MAX = 256
# Of one pattern's program; a usual one has some dozens.
PROGRAM_STEPS_MAX = 1_500
# For what the engine remembers of the texts that it has seen, each pattern.
MEMORY_BYTES_MAX = 256 << 10
PATTERNS_REMEMBERED_MAX = 128

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = MEMORY_BYTES_MAX
_OPTIONS.never_capture = True


@lru_cache(maxsize=PATTERNS_REMEMBERED_MAX)
def compiled(pattern: str) -> Any:
    """A pattern as it stands, or between slashes with flags behind them. Raises ValueError."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"it is longer than {PATTERN_CHARACTERS_MAX} characters")
    flags = ""
    if len(pattern) >= 2 and pattern.startswith("/") and "/" in pattern[1:]:
        pattern, _, flags = pattern[1:].rpartition("/")
        if set(flags) - set("gimsu"):
            raise ValueError(f"unknown flags '{flags}'")
    # What the others ask for is either how this engine works, or of no effect on one match.
    inline = "".join(flag for flag in "ims" if flag in flags)
    try:
        found = re2.compile(f"(?{inline}){pattern}" if inline else pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(text) from error
    if found.programsize > PROGRAM_STEPS_MAX:
        raise ValueError(f"it takes {found.programsize} steps, and {PROGRAM_STEPS_MAX} are allowed")
    return found
