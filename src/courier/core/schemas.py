"""The schema language of queues: what their messages must look like.

A schema maps each top-level property of a message to a directive. Both schemas and messages come
from outside, so all work on them is bounded.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import msgspec

from courier.core import patterns
from courier.core.patterns import compiled

DEPTH_MAX = 16
PROPERTIES_MAX = 512
SCHEMA_BYTES_MAX = 64 << 10
# Of a bound that is a whole number: what stores and the journal can hold.
WHOLE_MAX = 2**63 - 1
# Of all patterns of a schema together; no more than these are compiled for it.
PROGRAM_STEPS_MAX = 30_000
# Messages longer than this are not looked into, and so cannot be on a queue with a schema.
BODY_BYTES_MAX = 256 << 10
# Up to here a message is checked within moments, whatever it is.
QUICK_BYTES_MAX = 2 << 10
# Bytes of text times steps of a program: tenths of a second at worst, in practice far less.
MATCH_STEPS_MAX = 20_000_000
# More than a person would read, and than is worth compiling bad patterns for.
PROBLEMS_MAX = 100
SCHEMA_PROBLEMS_MAX = 20
POINTER_CHARACTERS_MAX = 500

# Type -> what its directive must and may say, besides `type` and `required`.
_MUST = {
    "object": {"props"},
    "array": {"items"},
    "string": set(),
    "number": set(),
    "boolean": set(),
}
_MAY = {
    "object": {"strict"},
    "array": set[str](),
    "string": {"pattern", "enum", "min", "max"},
    "number": {"min", "max"},
    "boolean": set[str](),
}

_decode = msgspec.json.Decoder().decode


class SchemaProblem(NamedTuple):
    """Where something is wrong, as a JSON pointer, and what."""

    pointer: str
    message: str


def fingerprint(schema: dict[str, Any]) -> str:
    return sha256(canonical(schema)).hexdigest()


def canonical(schema: dict[str, Any]) -> bytes:
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# --- schemas ---------------------------------------------------------------------------------


def problems_of_schema(schema: Any) -> list[SchemaProblem]:
    """What is wrong with a schema; nothing, if it can be used."""
    if not isinstance(schema, dict) or not schema:
        return [SchemaProblem("/schema", "must be an object with at least one property")]
    try:
        size = len(canonical(schema))
    except (ValueError, RecursionError):
        return [SchemaProblem("/schema", "cannot be written as JSON")]
    if size > SCHEMA_BYTES_MAX:
        return [SchemaProblem("/schema", f"must have at most {SCHEMA_BYTES_MAX} bytes, not {size}")]
    count = sum(1 for _, is_item in _directives(schema, depth=1) if not is_item)
    if count > PROPERTIES_MAX:
        limit = f"must have at most {PROPERTIES_MAX} properties, not {count}"
        return [SchemaProblem("/schema", limit)]
    look = _Look()
    problems: list[SchemaProblem] = []
    with suppress(_Enough):
        for problem in islice(look.of_props(schema, "/schema", depth=1), SCHEMA_PROBLEMS_MAX):
            problems.append(problem)
    if look.steps > PROGRAM_STEPS_MAX and not problems:
        limit = f"its patterns have {look.steps} steps or more, of {PROGRAM_STEPS_MAX} allowed"
        problems.append(SchemaProblem("/schema", limit))
    return problems


class _Enough(Exception):
    pass


def _directives(props: Any, *, depth: int) -> Iterator[tuple[Any, bool]]:
    """Every directive, and whether it is that of an array's items."""
    if not isinstance(props, dict) or depth > DEPTH_MAX:
        return
    for directive in props.values():
        is_item = False
        while True:
            yield directive, is_item
            if not isinstance(directive, dict) or directive.get("type") != "array":
                break
            directive, is_item = directive.get("items"), True
        if isinstance(directive, dict) and directive.get("type") == "object":
            yield from _directives(directive.get("props"), depth=depth + 1)


class _Look:
    """Finds what is wrong with a schema. `steps`: of the patterns that it has compiled."""

    def __init__(self) -> None:
        self.steps = 0
        self._compiled: set[str] = set()

    def of_props(
        self, props: dict[str, Any], pointer: str, *, depth: int
    ) -> Iterator[SchemaProblem]:
        for name, directive in props.items():
            place = f"{pointer}/{_escaped(name)}"[:POINTER_CHARACTERS_MAX]
            yield from self._of_directive(directive, place, depth=depth)

    def _of_directive(self, directive: Any, pointer: str, *, depth: int) -> Iterator[SchemaProblem]:
        if depth > DEPTH_MAX:
            yield SchemaProblem(pointer, f"is nested deeper than {DEPTH_MAX}")
            return
        if not isinstance(directive, dict):
            yield SchemaProblem(pointer, "must be an object with a type")
            return
        kind = directive.get("type")
        if not isinstance(kind, str) or kind not in _MUST:
            yield SchemaProblem(f"{pointer}/type", f"must be one of {', '.join(_MUST)}")
            return
        known = {"type", "required"} | _MUST[kind] | _MAY[kind]
        for name in directive:
            if name not in known:
                place = f"{pointer}/{_escaped(name)}"[:POINTER_CHARACTERS_MAX]
                yield SchemaProblem(place, f"is not known for type {kind}")
        for name in _MUST[kind] - directive.keys():
            yield SchemaProblem(f"{pointer}/{name}", f"is required for type {kind}")
        for name in ("required", "strict"):
            if name in directive and not isinstance(directive[name], bool):
                yield SchemaProblem(f"{pointer}/{name}", "must be true or false")
        if kind in ("string", "number"):
            yield from _of_bounds(directive, pointer, kind)
        if kind == "string":
            yield from self._of_text(directive, pointer)
        if kind == "object" and "props" in directive:
            props = directive["props"]
            if not isinstance(props, dict) or not props:
                yield SchemaProblem(
                    f"{pointer}/props", "must be an object with at least one property"
                )
            else:
                yield from self.of_props(props, f"{pointer}/props", depth=depth + 1)
        if kind == "array" and "items" in directive:
            yield from self._of_directive(directive["items"], f"{pointer}/items", depth=depth + 1)

    def _of_text(self, directive: dict[str, Any], pointer: str) -> Iterator[SchemaProblem]:
        if "enum" in directive:
            enum = directive["enum"]
            if not isinstance(enum, list) or not enum or not all(isinstance(e, str) for e in enum):
                yield SchemaProblem(f"{pointer}/enum", "must be an array of strings")
        if "pattern" in directive:
            pattern = directive["pattern"]
            try:
                if not isinstance(pattern, str):
                    raise ValueError("it is not text")
                self._compile(pattern)
            except ValueError as error:
                yield SchemaProblem(f"{pointer}/pattern", f"cannot be used: {error}")

    def _compile(self, pattern: str) -> None:
        """Raises ValueError, and _Enough when all patterns together take too many steps."""
        if pattern in self._compiled:
            return
        try:
            self.steps += compiled(pattern).programsize
        except ValueError:
            self.steps += patterns.PROGRAM_STEPS_MAX  # finding out has taken as long
            raise
        if self.steps > PROGRAM_STEPS_MAX:
            raise _Enough
        self._compiled.add(pattern)


def _of_bounds(directive: dict[str, Any], pointer: str, kind: str) -> Iterator[SchemaProblem]:
    bounds = {name: directive[name] for name in ("min", "max") if name in directive}
    for name, value in bounds.items():
        if not _is_number(value) or value in (inf, -inf) or value != value:
            yield SchemaProblem(f"{pointer}/{name}", "must be a number")
            return
        if isinstance(value, int) and not -WHOLE_MAX <= value <= WHOLE_MAX:
            limit = f"must be from -{WHOLE_MAX} to {WHOLE_MAX} if it is written as a whole number"
            yield SchemaProblem(f"{pointer}/{name}", limit)
            return
        if kind == "string" and (value < 0 or value != int(value)):
            yield SchemaProblem(f"{pointer}/{name}", "must be a whole number of characters")
            return
    if len(bounds) == 2 and bounds["min"] > bounds["max"]:
        yield SchemaProblem(f"{pointer}/min", "must not be greater than max")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- messages --------------------------------------------------------------------------------


def problems_of_body(body: bytes, schema: dict[str, Any]) -> list[SchemaProblem]:
    """Where a message breaks a schema that is known to be good."""
    if len(body) > BODY_BYTES_MAX:
        limit = f"must have at most {BODY_BYTES_MAX} bytes on a queue with a schema"
        return [SchemaProblem("", limit)]
    try:
        value = _decode(body)
        if not isinstance(value, dict):
            return [SchemaProblem("", "must be a JSON object")]
        # Readers differ on which of two values counts, so nobody can say that both are good.
        json.loads(body, object_pairs_hook=_unrepeated, parse_int=len, parse_float=len)
    except _Repeated as error:
        return [SchemaProblem("", f"must not have the key '{error}' twice in one object")]
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return [SchemaProblem("", f"must be a JSON object: {error}")]
    check = _Check()
    with suppress(_Enough):
        check.object(value, schema, strict=True)
    return check.problems


class _Repeated(Exception):
    pass


def _unrepeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _Repeated(name[:80])
        seen.add(name)


class _Check:
    """Walks a message and its schema together. Takes time for what the message holds only."""

    def __init__(self) -> None:
        self.problems: list[SchemaProblem] = []
        self._path: list[str | int] = []
        self._steps = 0
        # By the id of the part of the schema that they belong to.
        self._required: dict[int, list[str]] = {}
        self._enums: dict[int, frozenset[str]] = {}

    def _fail(self, what: str) -> None:
        pointer = "".join(f"/{_escaped(str(step))}" for step in self._path)
        self.problems.append(SchemaProblem(pointer[:POINTER_CHARACTERS_MAX], what))
        if len(self.problems) == PROBLEMS_MAX:
            raise _Enough

    def object(self, value: dict[str, Any], props: dict[str, Any], *, strict: bool) -> None:
        self._path.append("")
        for name, item in value.items():
            self._path[-1] = name
            if name in props:
                self._value(item, props[name])
            elif strict:
                self._fail("is not declared")
        required = self._required.get(id(props))
        if required is None:
            required = [name for name, each in props.items() if each.get("required", True)]
            self._required[id(props)] = required
        for name in required:
            if name not in value:
                self._path[-1] = name
                self._fail("is required")
        self._path.pop()

    def _value(self, value: Any, directive: dict[str, Any]) -> None:
        if value is None:
            if directive.get("required", True):
                self._fail("is required")
            return
        match directive["type"]:
            case "object" if isinstance(value, dict):
                self.object(value, directive["props"], strict=directive.get("strict", True))
            case "array" if isinstance(value, list):
                self._path.append(0)
                for number, item in enumerate(value):
                    self._path[-1] = number
                    self._value(item, directive["items"])
                self._path.pop()
            case "string" if isinstance(value, str):
                self._string(value, directive)
            case "number" if _is_number(value):
                self._between(value, directive, "must be")
            case "boolean" if isinstance(value, bool):
                pass
            case kind:
                self._fail(f"must be of type {kind}")

    def _string(self, value: str, directive: dict[str, Any]) -> None:
        self._between(len(value), directive, "must have a length of")
        if "enum" in directive:
            enum = self._enums.get(id(directive))
            if enum is None:
                enum = self._enums[id(directive)] = frozenset(directive["enum"])
            if value not in enum:
                self._fail("must be one of the listed values")
        if "pattern" in directive:
            pattern, text = compiled(directive["pattern"]), value.encode()
            self._steps += pattern.programsize * (len(text) + 1)
            if self._steps > MATCH_STEPS_MAX:
                self._fail("is too long to be matched with its pattern")
                raise _Enough
            if not pattern.search(text):
                self._fail("must match the pattern")

    def _between(self, value: float, directive: dict[str, Any], words: str) -> None:
        if "min" in directive and value < directive["min"]:
            self._fail(f"{words} at least {directive['min']}")
        if "max" in directive and value > directive["max"]:
            self._fail(f"{words} at most {directive['max']}")
