"""Spark's filters, as far as the broker can leave rows out by them.

Every filter is checked by Spark again, so leaving out too little is allowed, and too much never.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from courier.lake.options import at_ms

# Names travel in a URL, divided by commas.
NAMES_CHARACTERS_MAX = 4_000


@dataclass(frozen=True)
class WantedEvents:
    """Events after offset `after`, up to `upto`, not before `since_ms`, of these queues and kinds.

    None leaves out nothing; no names at all leave out everything.
    """

    after: int = 0
    upto: int | None = None
    since_ms: int | None = None
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None

    @property
    def nothing(self) -> bool:
        return self.queues == () or self.kinds == ()


def narrowed(wanted: WantedEvents, filters: Iterable[Filter]) -> WantedEvents:
    """What is still wanted of it when all the filters hold."""
    for each in filters:
        column = getattr(each, "attribute", ())
        if column == ("offset",):
            wanted = _by_offset(wanted, each)
        elif column == ("at",):
            wanted = _by_time(wanted, each)
        elif column == ("queue",):
            wanted = replace(wanted, queues=_by_name(wanted.queues, each))
        elif column == ("kind",):
            wanted = replace(wanted, kinds=_by_name(wanted.kinds, each))
    return wanted


def _by_offset(wanted: WantedEvents, each: Filter) -> WantedEvents:
    values = [value for value in _values(each) if type(value) is int]
    if not values or len(values) != len(_values(each)):
        return wanted
    low, high = min(values), max(values)
    match each:
        case GreaterThan():
            return _between(wanted, low + 1, None)
        case GreaterThanOrEqual():
            return _between(wanted, low, None)
        case LessThan():
            return _between(wanted, None, high - 1)
        case LessThanOrEqual():
            return _between(wanted, None, high)
        case EqualTo() | EqualNullSafe() | In():
            return _between(wanted, low, high)
    return wanted


def _between(wanted: WantedEvents, first: int | None, last: int | None) -> WantedEvents:
    after = wanted.after if first is None else max(wanted.after, first - 1)
    known = [each for each in (wanted.upto, last) if each is not None]
    return replace(wanted, after=after, upto=min(known) if known else None)


def _by_time(wanted: WantedEvents, each: Filter) -> WantedEvents:
    """Only from below: after a clock was set back, later offsets have earlier times."""
    values = [value for value in _values(each) if isinstance(value, datetime) and value.tzinfo]
    if not values or len(values) != len(_values(each)):
        return wanted
    match each:
        case GreaterThan() | GreaterThanOrEqual() | EqualTo() | EqualNullSafe() | In():
            since_ms = max(at_ms(min(values)), wanted.since_ms or 0)
            return replace(wanted, since_ms=since_ms)
    return wanted


def _by_name(known: tuple[str, ...] | None, each: Filter) -> tuple[str, ...] | None:
    if not isinstance(each, EqualTo | EqualNullSafe | In):
        return known
    names = _values(each)
    if not names or any(type(name) is not str or not name or "," in name for name in names):
        return known
    if sum(len(name) + 1 for name in names) > NAMES_CHARACTERS_MAX:
        return known
    if known is not None:
        return tuple(name for name in known if name in names)
    return tuple(dict.fromkeys(names))


def _values(each: Filter) -> Sequence[Any]:
    """What the column is compared with. NULL equals nothing, so a list is as good without it."""
    value = getattr(each, "value", None)
    if isinstance(each, In):
        return [one for one in value or () if one is not None]
    return [] if value is None else [value]
