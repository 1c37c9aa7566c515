"""Pure: whether a listener seems to be there, from how its probes and pushes went.

pending --ok--> stable <--ok-- unstable <--ok-- inactive
   |               |              | ^               ^
   '----failed-----'---failed-----+-'               |
                                  '-- third in a row, or five pushes without any answer
"""

from typing import Literal

from msgspec.structs import replace

from courier.core.types import Liveness

FAILURES_MAX = 3
UNANSWERED_MAX = 5


def probed(known: Liveness, *, ok: bool, now_ms: int, why: str = "") -> Liveness:
    if ok:
        return replace(
            known,
            state="unstable" if known.state == "inactive" else "stable",
            in_row=0,
            success_count=known.success_count + 1,
            last_success_ms=now_ms,
        )
    in_row = known.in_row + 1
    state: Literal["unstable", "inactive"] = "unstable"
    if known.state == "inactive" or in_row >= FAILURES_MAX:
        state = "inactive"
    return replace(
        known,
        state=state,
        in_row=in_row,
        failure_count=known.failure_count + 1,
        last_failure_ms=now_ms,
        last_failure=why,
    )


def silent(known: Liveness, *, now_ms: int, why: str) -> Liveness:
    """Enough pushes in a row got no answer: the next ones wait for a good probe."""
    return replace(known, state="inactive", last_failure_ms=now_ms, last_failure=why)
