"""Pure: which of an exchange's bindings let a message through."""

from collections.abc import Mapping, Sequence
from typing import Any

from courier.core.types import Rule

Headers = Mapping[str, Any]


def passes(rule: Rule | None, headers: Sequence[Headers]) -> bool:
    """Whether a binding with this rule takes a message with these headers.

    The same name may stand in several of the mappings; one value that passes is enough.
    """
    if rule is None:
        return True
    found = [each[rule.name] for each in headers if rule.name in each]
    if rule.test == "exists":
        return bool(found) is rule.value
    return any(_holds(rule, value) for value in found if _is_of(rule.kind, value))


def _is_of(kind: str, value: Any) -> bool:
    if kind == "text":
        return isinstance(value, str)
    # To Python True is a number; to a rule it is not.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds(rule: Rule, value: Any) -> bool:
    wanted = rule.value
    match rule.test:
        case "eq":
            return bool(value == wanted)
        case "prefix":
            return bool(value.startswith(wanted))
        case "any_of":
            return value in wanted
        case "none_of":
            return value not in wanted
        case "lt":
            return bool(value < wanted)
        case "le":
            return bool(value <= wanted)
        case "gt":
            return bool(value > wanted)
        case "ge":
            return bool(value >= wanted)
        case "range":
            low, high = wanted
            return bool(low <= value <= high)
    raise AssertionError(f"no such test: {rule.test}")
