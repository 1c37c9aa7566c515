"""Rules of bindings: by type, by value, in either set of headers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from courier.core.routing import passes
from courier.core.types import Rule

# Everything a header can be; none of it may make a rule stumble.
VALUES: list[Any] = [
    "a", "", "5", "true", 5, 5.0, 0, -1, 1e300, True, False, None, [], ["a"], {}, {"a": 5},
]  # fmt: skip
TEXT_TESTS: dict[str, Any] = {"eq": "a", "prefix": "a", "any_of": ["a"], "none_of": ["b"]}
NOWHERE: list[list[dict[str, Any]]] = [
    [],
    [{}],
    [{}, {}],
    [{"other": "a"}, {"Key": 5}],
    [{"key ": 5}],
]
NUMBER_TESTS: dict[str, Any] = {
    "eq": 5,
    "lt": 6,
    "le": 5,
    "gt": 4,
    "ge": 5,
    "range": [5, 6],
    "none_of": [6],
}


def text(test: Any, value: Any) -> Rule:
    return Rule("key", "text", test, value)


def number(test: Any, value: Any) -> Rule:
    return Rule("key", "number", test, value)


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        (text("eq", "red"), "red", True),
        (text("eq", "red"), "Red", False),
        (text("eq", "red"), "red ", False),
        (text("prefix", "re"), "re", True),
        (text("prefix", "re"), "red", True),
        (text("prefix", "re"), "r", False),
        (text("prefix", "re"), "are", False),
        (text("any_of", ["a", "b"]), "b", True),
        (text("any_of", ["a", "b"]), "ab", False),
        (text("any_of", ["ab"]), "a", False),
        (text("none_of", ["a", "b"]), "c", True),
        (text("none_of", ["a", "b"]), "b", False),
        (text("none_of", ["ab"]), "a", True),
        (number("eq", 5), 5, True),
        (number("eq", 5), 5.0, True),
        (number("eq", 5), 5.1, False),
        (number("lt", 5), 4.9, True),
        (number("lt", 5), 5, False),
        (number("le", 5), 5, True),
        (number("le", 5), 5.1, False),
        (number("gt", 5), 5.1, True),
        (number("gt", 5), 5, False),
        (number("ge", 5), 5, True),
        (number("ge", 5), 4.9, False),
        (number("range", [1, 5]), 1, True),
        (number("range", [1, 5]), 5, True),
        (number("range", [1, 5]), 0.9, False),
        (number("range", [1, 5]), 5.1, False),
        (number("none_of", [1, 2]), 3, True),
        (number("none_of", [1, 2]), 2.0, False),
    ],
)
def test_a_rule_judges_a_value(rule: Rule, value: Any, holds: bool) -> None:
    for headers in ([{"key": value}], [{"key": value}, {}], [{}, {"key": value}]):
        assert passes(rule, headers) is holds


@pytest.mark.parametrize("test", TEXT_TESTS)
def test_a_rule_about_text_holds_for_text_only(test: str) -> None:
    rule = text(test, TEXT_TESTS[test])
    assert passes(rule, [{"key": "a"}])
    for value in VALUES:
        if not isinstance(value, str):
            assert not passes(rule, [{"key": value}]), value


@pytest.mark.parametrize("test", NUMBER_TESTS)
def test_a_rule_about_numbers_holds_for_numbers_only(test: str) -> None:
    rule = number(test, NUMBER_TESTS[test])
    assert passes(rule, [{"key": 5}])
    for value in VALUES:
        if isinstance(value, bool) or not isinstance(value, int | float):
            assert not passes(rule, [{"key": value}]), value


def test_true_is_not_one_and_false_is_not_zero() -> None:
    assert not passes(number("eq", 1), [{"key": True}])
    assert not passes(number("eq", 0), [{"key": False}])
    assert not passes(number("none_of", [5]), [{"key": True}])


@pytest.mark.parametrize("make", [text, number])
def test_whether_a_name_exists_does_not_depend_on_its_value(make: Any) -> None:
    for value in VALUES:
        assert passes(make("exists", True), [{"key": value}])
        assert not passes(make("exists", False), [{"key": value}])
    for headers in NOWHERE:
        assert not passes(make("exists", True), headers)
        assert passes(make("exists", False), headers)


@pytest.mark.parametrize(
    "rule",
    [
        *(text(test, value) for test, value in TEXT_TESTS.items()),
        *(number(test, value) for test, value in NUMBER_TESTS.items()),
    ],
)
def test_an_absent_name_passes_no_rule(rule: Rule) -> None:
    for headers in NOWHERE:
        assert not passes(rule, headers)


@pytest.mark.parametrize(
    ("rule", "first", "second", "holds"),
    [
        (text("eq", "a"), "a", "b", True),
        (text("eq", "a"), "b", "a", True),
        (text("eq", "a"), 5, "a", True),
        (text("eq", "a"), "b", "c", False),
        (text("none_of", ["a"]), "a", "b", True),
        (text("none_of", ["a"]), "a", "a", False),
        (text("none_of", ["a"]), "a", 5, False),
        (number("gt", 5), 1, 6, True),
        (number("gt", 5), "6", 6, True),
        (number("gt", 5), 1, "6", False),
    ],
)
def test_one_of_several_values_is_enough(rule: Rule, first: Any, second: Any, holds: bool) -> None:
    assert passes(rule, [{"key": first}, {"key": second}]) is holds


def test_without_a_rule_everything_passes() -> None:
    for headers in (*NOWHERE, [{"key": 1}]):
        assert passes(None, headers)


scalars = st.one_of(st.text(max_size=3), st.integers(-9, 9), st.floats(-9, 9), st.booleans())


@given(value=scalars, low=st.integers(-9, 9), width=st.integers(1, 9))
def test_a_range_is_what_its_ends_say(value: Any, low: int, width: int) -> None:
    headers = [{"key": value}]
    inside = passes(number("ge", low), headers) and passes(number("le", low + width), headers)
    assert passes(number("range", [low, low + width]), headers) is inside


@given(value=scalars, wanted=st.lists(st.text(max_size=3), min_size=1, max_size=3))
def test_any_of_and_none_of_divide_the_texts(value: Any, wanted: list[str]) -> None:
    headers = [{"key": value}]
    some, none = (passes(text(test, wanted), headers) for test in ("any_of", "none_of"))
    assert (some != none) is isinstance(value, str)
    assert some is any(passes(text("eq", each), headers) for each in wanted)
