"""The schema language: which schemas are good, which messages follow them, and at what price."""

import json
import time
from typing import Any

import pytest

from courier.core import patterns, schemas

STRING: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
# Far more than is ever needed, far less than going back would take.
SECONDS_MAX = 3.0


def refused(schema: Any) -> list[str]:
    """Where a schema is wrong."""
    return [problem.pointer for problem in schemas.problems_of_schema(schema)]


def broken(value: Any, schema: dict[str, Any]) -> list[str]:
    """Where a message is wrong; text stands for itself."""
    assert schemas.problems_of_schema(schema) == []
    body = value if isinstance(value, str) else json.dumps(value)
    return [problem.pointer for problem in schemas.problems_of_body(body.encode(), schema)]


def nested(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    """A schema whose innermost directive is this deep."""
    for _ in range(depth - 1):
        inner = {"type": "object", "props": {"a": inner}}
    return {"a": inner}


# --- schemas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "directive",
    [
        {"type": "string"},
        {"type": "string", "required": False},
        {"type": "string", "min": 0, "max": 0},
        {"type": "string", "min": 1, "max": 2.0, "enum": ["a", ""], "pattern": "."},
        {"type": "string", "pattern": ""},
        {"type": "string", "pattern": "/a/"},
        {"type": "string", "pattern": "/a/gimsu"},
        {"type": "string", "pattern": "/"},
        {"type": "string", "pattern": "x" * 256},
        {"type": "number"},
        {"type": "number", "min": -1.5, "max": 1e300},
        {"type": "number", "min": -1e300, "max": 10**18, "required": True},
        {"type": "boolean", "required": False},
        {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
        {"type": "object", "props": {"": STRING}, "strict": False, "required": False},
    ],
)
def test_a_directive_that_can_be_used(directive: dict[str, Any]) -> None:
    assert refused({"a": directive}) == []


@pytest.mark.parametrize("schema", [None, {}, [], [STRING], "string", 1, True])
def test_a_schema_is_an_object_with_at_least_one_property(schema: Any) -> None:
    assert refused(schema) == ["/schema"]


@pytest.mark.parametrize(
    ("directive", "pointer"),
    [
        (None, ""),
        ("string", ""),
        ([], ""),
        ({}, "/type"),
        ({"type": None}, "/type"),
        ({"type": ["string"]}, "/type"),
        ({"type": "text"}, "/type"),
        ({"type": "integer"}, "/type"),
        ({"type": "null"}, "/type"),
        ({"type": "string", "length": 1}, "/length"),
        ({"type": "string", "a/b~c": 1}, "/a~1b~0c"),
        ({"type": "string", "props": {"a": STRING}}, "/props"),
        ({"type": "string", "strict": True}, "/strict"),
        ({"type": "number", "pattern": "a"}, "/pattern"),
        ({"type": "number", "enum": [1]}, "/enum"),
        ({"type": "boolean", "min": 1}, "/min"),
        ({"type": "array"}, "/items"),
        ({"type": "array", "items": [STRING]}, "/items"),
        ({"type": "array", "items": {"type": "text"}}, "/items/type"),
        ({"type": "array", "items": STRING, "min": 1}, "/min"),
        ({"type": "object"}, "/props"),
        ({"type": "object", "props": {}}, "/props"),
        ({"type": "object", "props": []}, "/props"),
        ({"type": "object", "props": {"b": 1}}, "/props/b"),
        ({"type": "object", "props": {"b": STRING}, "strict": "yes"}, "/strict"),
        ({"type": "string", "required": 1}, "/required"),
        ({"type": "string", "required": None}, "/required"),
        ({"type": "string", "min": "1"}, "/min"),
        ({"type": "string", "min": True}, "/min"),
        ({"type": "string", "min": -1}, "/min"),
        ({"type": "string", "max": 1.5}, "/max"),
        ({"type": "number", "max": None}, "/max"),
        ({"type": "number", "max": [1]}, "/max"),
        ({"type": "number", "min": 2, "max": 1}, "/min"),
        ({"type": "number", "min": float("nan")}, "/min"),
        ({"type": "number", "max": float("inf")}, "/max"),
        ({"type": "number", "max": 2**63}, "/max"),
        ({"type": "number", "min": -(10**400)}, "/min"),
        ({"type": "string", "min": 10**400}, "/min"),
        ({"type": "string", "max": float("inf")}, "/max"),
        ({"type": "string", "enum": []}, "/enum"),
        ({"type": "string", "enum": "a"}, "/enum"),
        ({"type": "string", "enum": ["a", 1]}, "/enum"),
        ({"type": "string", "pattern": 1}, "/pattern"),
        ({"type": "string", "pattern": "x" * 257}, "/pattern"),
    ],
)
def test_a_directive_that_cannot_be_used_is_named(directive: Any, pointer: str) -> None:
    assert refused({"p": directive}) == [f"/schema/p{pointer}"]


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "a**", "(?=a)", "(?!a)", "(?<=a)b", "(a)\\1", "\\u0041", "a{1001}", "/a/x", "/a/y",
     "/a/ii i", "(?:(?:(?:a{50}){50}){50})", "(?:.?){1000}", "\\pL\\pL\\pL", "\\"],
)  # fmt: skip
def test_a_pattern_that_the_engine_does_not_take_is_refused(pattern: str) -> None:
    assert refused({"p": {"type": "string", "pattern": pattern}}) == ["/schema/p/pattern"]


def test_every_mistake_is_named_up_to_a_limit() -> None:
    assert refused({"a": 1, "b": STRING, "c": {"type": "number", "max": "x"}}) == [
        "/schema/a",
        "/schema/c/max",
    ]
    assert len(refused({f"p{n}": 1 for n in range(500)})) == schemas.SCHEMA_PROBLEMS_MAX


def test_a_schema_may_be_sixteen_deep() -> None:
    assert refused(nested(16, STRING)) == []
    [pointer] = refused(nested(17, STRING))
    assert pointer == "/schema/a" + "/props/a" * 16
    arrays = STRING
    for _ in range(15):
        arrays = {"type": "array", "items": arrays}
    assert refused({"a": arrays}) == []
    assert refused({"a": {"type": "array", "items": arrays}}) == ["/schema/a" + "/items" * 16]


def test_properties_are_counted_at_every_depth_and_below_arrays() -> None:
    def schema(count: int) -> dict[str, Any]:
        below = {"type": "object", "props": {f"b{n}": STRING for n in range(count // 2)}}
        return {
            "list": {"type": "array", "items": {"type": "array", "items": below}},
            **{f"a{n}": STRING for n in range(count - count // 2 - 1)},
        }

    assert refused(schema(512)) == []
    assert refused(schema(513)) == ["/schema"]


def test_a_schema_may_have_64_kib() -> None:
    def schema(bytes: int) -> dict[str, Any]:
        empty = {"a": {"type": "string", "enum": [""]}}
        empty["a"]["enum"] = ["x" * (bytes - len(schemas.canonical(empty)))]
        return empty

    assert refused(schema(64 << 10)) == []
    assert refused(schema((64 << 10) + 1)) == ["/schema"]


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    deep: dict[str, Any] = dict(STRING)
    for _ in range(100_000):
        deep = {"type": "array", "items": deep}
    assert refused({"a": deep}) == ["/schema"]


def test_patterns_together_are_limited_too() -> None:
    heavy = {f"p{n}": {"type": "string", "pattern": f"\\pL+{n}"} for n in range(50)}
    assert refused(heavy) == ["/schema"]
    light = {f"p{n}": {"type": "string", "pattern": f"^[0-9a-f]{{8}}-{n}$"} for n in range(500)}
    assert refused(light) == []
    again = {f"p{n}": {"type": "string", "pattern": "\\pL+"} for n in range(500)}
    assert refused(again) == []


def test_bad_patterns_do_not_cost_much() -> None:
    bad = {f"p{n}": {"type": "string", "pattern": "\\pL" * 75 + f"{n}"} for n in range(150)}
    started = time.process_time()
    assert len(refused(bad)) == schemas.SCHEMA_PROBLEMS_MAX
    assert time.process_time() - started < SECONDS_MAX


def test_the_fingerprint_is_that_of_the_sorted_schema_without_spaces() -> None:
    # printf '{"a":{"type":"string"},"b":{"max":1,"type":"number"}}' | sha256sum
    expected = "b621e40f9e1782ba3365bdf4952976481113c7916d7cdf65ce2185f5ecfa4a38"
    one = {"b": {"type": "number", "max": 1}, "a": {"type": "string"}}
    other = {"a": {"type": "string"}, "b": {"max": 1, "type": "number"}}
    assert schemas.fingerprint(one) == schemas.fingerprint(other) == expected
    assert schemas.canonical({"é": STRING}) == '{"é":{"type":"string"}}'.encode()


# --- messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["", " ", "null", "true", "1", '"a"', "[]", "[{}]", "{", "{} {}", "{'a': 1}", '{"a": 1,}',
     '{a: 1}', '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1e999}',
     '{"a": -1e999}', '{"a": 01}', '{"a": +1}', '{"a": .5}', '{"a": 0x1}', '{"a": "\\ud800"}',
     '{"\\udfff": 1}', '{"a": "\\x"}', '{"a": "\x01"}', "\ufeff{}", '{"a": ' + "9" * 5_000 + "}",
     "[" * 100_000, '{"a":' * 100_000],
)  # fmt: skip
def test_what_is_no_json_object_is_refused_as_a_whole(body: str) -> None:
    assert broken(body, {"a": {"type": "number", "required": False}}) == [""]


@pytest.mark.parametrize("body", [b"\xff", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b"\x00"])
def test_what_is_no_text_is_refused_as_a_whole(body: bytes) -> None:
    [problem] = schemas.problems_of_body(body, {"a": STRING})
    assert problem.pointer == ""


@pytest.mark.parametrize(
    "body",
    ['{"a":1,"a":1}', '{"a":"no","a":1}', '{"\\u0061":1,"a":1}', '{"a":1,"b":[{"c":{},"c":{}}]}'],
)
def test_a_key_given_twice_is_refused_because_readers_differ(body: str) -> None:
    loose = {"type": "object", "props": {"z": {**STRING, "required": False}}, "strict": False}
    schema = {"a": NUMBER, "b": {"type": "array", "items": loose, "required": False}}
    [problem] = schemas.problems_of_body(body.encode(), schema)
    assert problem.pointer == "" and "twice" in problem.message


@pytest.mark.parametrize("value", [0, -0.0, 1.5, 10**30, -(10**400), 1e-400, 5e-324])
def test_a_number_is_a_number_however_large(value: float) -> None:
    assert broken({"a": value}, {"a": NUMBER}) == []


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "a", "1"], [1, True, [], {}, ["a"]]),
        ("number", [1, 0, -1.5], ["1", True, False, [], {}]),
        ("boolean", [True, False], [0, 1, "true", [], {}]),
        ("array", [[], [1]], ["a", {}, 1, True]),
        ("object", [{"x": 1}], [[], "a", 1, True]),
    ],
)
def test_every_type_takes_its_own_values_and_no_others(
    kind: str, good: list[Any], bad: list[Any]
) -> None:
    more = {"array": {"items": NUMBER}, "object": {"props": {"x": NUMBER}}}
    directive = {"type": kind, **more.get(kind, {})}
    for value in good:
        assert broken({"a": value}, {"a": directive}) == []
    for value in bad:
        assert broken({"a": value}, {"a": directive}) == ["/a"]


@pytest.mark.parametrize("kind", ["string", "number", "boolean", "array", "object"])
def test_what_is_required_must_be_there_and_not_null(kind: str) -> None:
    more = {"array": {"items": NUMBER}, "object": {"props": {"x": NUMBER}}}
    directive = {"type": kind, **more.get(kind, {})}
    for required in ({}, {"required": True}):
        assert broken({}, {"a": {**directive, **required}}) == ["/a"]
        assert broken({"a": None}, {"a": {**directive, **required}}) == ["/a"]
    assert broken({}, {"a": {**directive, "required": False}}) == []
    assert broken({"a": None}, {"a": {**directive, "required": False}}) == []


def test_what_is_not_required_skips_all_else_only_when_missing() -> None:
    directive = {"type": "string", "min": 2, "pattern": "z", "enum": ["zz"], "required": False}
    assert broken({"a": None}, {"a": directive}) == []
    assert broken({"a": "b"}, {"a": directive}) == ["/a"] * 3


@pytest.mark.parametrize(
    ("value", "good"), [("a", False), ("ab", True), ("abc", True), ("abcd", False), ("é😀", True)]
)
def test_lengths_are_inclusive_and_count_characters(value: str, good: bool) -> None:
    schema = {"a": {"type": "string", "min": 2, "max": 3}}
    assert (broken({"a": value}, schema) == []) is good


@pytest.mark.parametrize(
    ("value", "good"), [(0.99, False), (1, True), (2.5, True), (2.51, False), (10**400, False)]
)
def test_bounds_are_inclusive(value: float, good: bool) -> None:
    assert (broken({"a": value}, {"a": {"type": "number", "min": 1, "max": 2.5}}) == []) is good


@pytest.mark.parametrize(
    ("pattern", "value", "good"),
    [
        ("abc", "xabcx", True),
        ("abc", "ABC", False),
        ("^abc$", "xabc", False),
        ("/abc/", "xabcx", True),
        ("/abc/i", "xABCx", True),
        ("/.*/i", "", True),
        ("/a\\/b/", "a/b", True),
        ("/a/b/", "a/b", True),
        ("/^b$/m", "a\nb", True),
        ("^b$", "a\nb", False),
        ("/a.b/s", "a\nb", True),
        ("a.b", "a\nb", False),
        ("/i|a/i", "A", True),
        ("^.$", "é", True),
        ("^.$", "😀", True),
        ("^\\p{L}+$", "éß", True),
        ("/", "a/b", True),
        ("", "anything", True),
        ("^$", "a", False),
    ],
)
def test_patterns_match_anywhere_bare_or_between_slashes(
    pattern: str, value: str, good: bool
) -> None:
    schema = {"a": {"type": "string", "pattern": pattern}}
    assert (broken({"a": value}, schema) == []) is good


def test_undeclared_properties_fail_unless_an_object_says_otherwise() -> None:
    strict = {"a": {"type": "object", "props": {"x": NUMBER}}}
    loose = {"a": {"type": "object", "props": {"x": NUMBER}, "strict": False}}
    value = {"a": {"x": 1, "y": {"deep": [1]}}}
    assert broken(value, strict) == ["/a/y"]
    assert broken(value, loose) == []
    assert broken({**value, "z": None}, loose) == ["/z"]
    assert broken({"a": {"x": "1", "y": 2}}, loose) == ["/a/x"]


def test_every_mistake_in_a_message_has_its_pointer() -> None:
    schema = {
        "a~b/c": {"type": "array", "items": {"type": "object", "props": {"x": NUMBER}}},
        "s": {"type": "string", "max": 1},
    }
    value = {"a~b/c": [{"x": 1}, {}, {"x": "1"}, 3, None], "s": "ab", "more": 1}
    assert sorted(broken(value, schema)) == [
        "/a~0b~1c/1/x",
        "/a~0b~1c/2/x",
        "/a~0b~1c/3",
        "/a~0b~1c/4",
        "/more",
        "/s",
    ]


def test_only_so_many_mistakes_are_named() -> None:
    schema = {"a": {"type": "array", "items": NUMBER}}
    assert len(broken({"a": ["x"] * 99}, schema)) == 99
    assert len(broken({"a": ["x"] * 1_000}, schema)) == schemas.PROBLEMS_MAX
    assert len(broken({f"u{n}": 1 for n in range(1_000)}, schema)) == schemas.PROBLEMS_MAX


def test_long_names_do_not_make_long_answers() -> None:
    name = "n" * 60_000
    found = broken({name: ["x"] * 200}, {name: {"type": "array", "items": NUMBER}})
    assert sum(map(len, found)) <= schemas.PROBLEMS_MAX * schemas.POINTER_CHARACTERS_MAX


def test_a_message_that_is_too_long_to_look_into_is_refused() -> None:
    schema = {"a": STRING}

    def body(bytes: int) -> bytes:
        return b'{"a":"%s"}' % (b"x" * (bytes - 8))

    assert schemas.problems_of_body(body(256 << 10), schema) == []
    [problem] = schemas.problems_of_body(body((256 << 10) + 1), schema)
    assert problem.pointer == ""


# --- time ------------------------------------------------------------------------------------


def full(unit: str, *, head: str = '{"a":[', tail: str = "]}") -> str:
    """A message of 256 KiB that repeats one thing."""
    room = schemas.BODY_BYTES_MAX - len(head) - len(tail) + 1
    return head + (f"{unit}," * (room // (len(unit) + 1)))[:-1] + tail


OPTIONAL = {f"p{n}": {**NUMBER, "required": False} for n in range(500)}


@pytest.mark.parametrize(
    ("unit", "items"),
    [
        ("1", NUMBER),
        ('""', {"type": "string", "enum": [str(n) for n in range(5_000)] + [""]}),
        ("{}", {"type": "object", "props": OPTIONAL}),
        ('{"u":1}', {"type": "object", "props": OPTIONAL, "strict": False}),
        ('""', {"type": "string", "pattern": "(?:a?){300}$"}),
        ("[]", {"type": "array", "items": NUMBER}),
    ],
)
def test_many_small_things_are_checked_in_time(unit: str, items: dict[str, Any]) -> None:
    schema = {"a": {"type": "array", "items": items}}
    started = time.process_time()
    broken(full(unit), schema)
    assert time.process_time() - started < SECONDS_MAX


def test_a_long_name_is_not_copied_for_every_item() -> None:
    name = "n" * 60_000
    message = full("1", head=f'{{"{name}":[')
    started = time.process_time()
    assert broken(message, {name: {"type": "array", "items": NUMBER}}) == []
    assert time.process_time() - started < SECONDS_MAX


@pytest.mark.parametrize(
    "pattern",
    ["(?:(?:a?){25}){25}b", "(?:[ab]*a[ab]{10}){20}c", "(a*)*c", "(a|aa)+$!", "a.{0,99}c"],
)
@pytest.mark.parametrize("letters", ["a", "ab", "aab"])
def test_no_pattern_takes_long_on_any_text(pattern: str, letters: str) -> None:
    schema = {"a": {"type": "string", "pattern": pattern}}
    message = json.dumps({"a": letters * (250_000 // len(letters))})
    started = time.process_time()
    assert broken(message, schema) == ["/a"]
    assert time.process_time() - started < SECONDS_MAX


def test_a_usual_pattern_is_matched_with_the_longest_text() -> None:
    schema = {"a": {"type": "string", "pattern": "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$"}}
    assert broken({"a": "x" * 250_000 + "@app.example"}, schema) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{0,9}){9}){9}%d",
        r"[\pL\pN]?%d",
        r"(?i)\pL%d",
        r"[^\p{Lo}]%d",
        r"[\pL\pN\pS]{8}%d",
        r"\pL{100}%d",
    ],
)
def test_no_more_patterns_are_compiled_than_a_schema_may_have(pattern: str) -> None:
    """All of these would take up to half a second, and others wait for that."""
    names = range(schemas.PROPERTIES_MAX)
    schema = {f"p{n}": {"type": "string", "pattern": pattern % n} for n in names}
    patterns.compiled.cache_clear()
    started = time.process_time()
    assert refused(schema)
    compiled = patterns.compiled.cache_info().misses
    assert compiled <= schemas.PROGRAM_STEPS_MAX // 500, compiled
    assert time.process_time() - started < SECONDS_MAX


def test_bad_patterns_are_told_before_there_are_too_many() -> None:
    good, bad = "[^\\p{Lo}]%d", "(%d"
    schema = {f"p{n}": {"type": "string", "pattern": (good if n else bad) % n} for n in range(500)}
    assert refused(schema) == ["/schema/p0/pattern"]
    del schema["p0"]
    assert refused(schema) == ["/schema"]


def test_the_limits_on_texts_and_patterns_leave_room_for_each_other() -> None:
    longest = schemas.MATCH_STEPS_MAX // patterns.PROGRAM_STEPS_MAX
    assert longest > schemas.QUICK_BYTES_MAX
