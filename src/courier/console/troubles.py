"""What a page says when something was refused, and with which status."""

import difflib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from courier.console.guard import ForeignForm
from courier.core.errors import (
    BrokerError,
    NotFound,
    OutOfSpace,
    RateLimited,
    Rejected,
    RowsChanged,
    SchemaBroken,
)
from courier.refusals import OURS, Refusal, Refusals

RETRY_AFTER_S = 5
NEAREST_MAX = 5
# Names that are compared letter by letter.
COMPARED_MAX = 500


class PlanConflict(Rejected):
    """A plan cannot do this now, because of another one or of what it has done."""


class Unmatched(NotFound):
    """Nothing is called that; `near` are names that are like it, with the paths of their pages."""

    def __init__(self, kind: str, ref: str, near: Sequence[tuple[str, str]]) -> None:
        super().__init__(kind, ref)
        self.near = tuple(near)


def nearest(ref: str, named: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of names with their paths, those that are most like `ref`."""
    ref = ref.lower()
    letters, length = set(ref), len(ref)
    alike = {
        name: path
        for name, path in named
        if ref in name.lower()
        or (abs(len(name) - length) <= 3 and len(letters & {*name.lower()}) >= len(letters) - 1)
    }
    found = difflib.get_close_matches(ref, [*alike][:COMPARED_MAX], NEAREST_MAX, cutoff=0.6)
    found = found or sorted(name for name in alike if ref in name.lower())[:NEAREST_MAX]
    return [(name, alike[name]) for name in found]


class Trouble(Struct):
    """What an error page says."""

    status: int
    code: str
    message: str
    retry_after_s: int = 0
    near: tuple[tuple[str, str], ...] = ()


_REFUSALS = Refusals(
    {
        **OURS,
        SchemaBroken: Refusal(400, "invalid_request"),
        ForeignForm: Refusal(403, "forbidden"),
        RowsChanged: Refusal(409, "conflict"),
        PlanConflict: Refusal(409, "conflict"),
    }
)


def retry_after_s(error: BrokerError, status: int) -> int:
    if isinstance(error, OutOfSpace):
        return OutOfSpace.RETRY_AFTER_S
    if isinstance(error, RateLimited):
        return error.retry_after_ms // 1_000 + 1
    return RETRY_AFTER_S if status == 503 else 0


def refusal(error: BrokerError) -> tuple[int, str]:
    refused = _REFUSALS.of(error)
    return refused.status, str(refused.code)
