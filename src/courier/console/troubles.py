"""What a page says when something was refused, and with which status."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import add

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
from courier.words import exact

RETRY_AFTER_S = 5
NEAREST_MAX = 5
# Names that are compared.
COMPARED_MAX = 500
# What two names share of their letters and pairs of letters, for one to be like the other.
ALIKE_MIN = 0.55


class PlanConflict(Rejected):
    """A plan cannot do this now, because of another one or of what it has done."""


class LifeTrimmed(Rejected):
    """A message has ended, and the journal no longer has its events."""

    def __init__(self, ref: str, began_ms: int) -> None:
        super().__init__(
            f"message '{ref}' has left its queue, and its events are no longer kept: the journal "
            f"begins at {exact(began_ms)[:16]}"
        )


class Unmatched(NotFound):
    """Nothing is called that; `near` are names that are like it, with the paths of their pages."""

    def __init__(self, kind: str, ref: str, near: Sequence[tuple[str, str]]) -> None:
        super().__init__(kind, ref)
        self.near = tuple(near)


def nearest(ref: str, named: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of names with their paths, those that are most like `ref`.

    Takes time in proportion to the names: comparing them letter by letter would not.
    """
    ref = ref.lower()
    letters, length = set(ref), len(ref)
    alike = {
        name: path
        for name, path in named
        if ref in name.lower()
        or (abs(len(name) - length) <= 3 and len(letters & {*name.lower()}) >= len(letters) - 1)
    }
    parts = _parts(ref) if alike else Counter[str]()
    compared = [(_likeness(parts, _parts(name.lower())), name) for name in [*alike][:COMPARED_MAX]]
    ranked = sorted((each for each in compared if each[0] >= ALIKE_MIN), reverse=True)
    found = [name for _, name in ranked] or sorted(name for name in alike if ref in name.lower())
    return [(name, alike[name]) for name in found[:NEAREST_MAX]]


def _parts(name: str) -> Counter[str]:
    """Its letters, and its pairs of letters with where it begins and ends."""
    framed = f" {name} "
    return Counter([*name, *map(add, framed, framed[1:])])


def _likeness(one: Counter[str], other: Counter[str]) -> float:
    return 2 * (one & other).total() / (one.total() + other.total())


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
        LifeTrimmed: Refusal(410, "trimmed"),
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
