"""Reading request bodies: strict about JSON, clear about what is wrong with it.

All of it takes time in proportion to the body. Whatever looks at single keys or builds Python
values only to word a refusal is limited to EXAMINED_BYTES_MAX of the body.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw

from courier.core.errors import InvalidRequest
from courier.web import NotJson

REQUIRED = "required"
# An object longer than this must spell its keys without escapes, each of them once.
EXAMINED_BYTES_MAX = 1 << 20
# Above these, counting what was understood is cheaper than searching the text for each key.
_SEARCHED_BYTES_MAX = 1_024
_SEARCHED_KEYS_MAX = 16
_SHOWN_BYTES_MAX = 4_096
_SHOWN_CHARACTERS = 80
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode


class _Plan(msgspec.Struct, frozen=True):
    """How to read a type: its decoder, and where its keys are if it has any that we read."""

    decode: Callable[[bytes], Any]
    shape: "_Shape | None"


@lru_cache(maxsize=256)
def _plan(wanted: Any) -> _Plan:
    return _Plan(msgspec.json.Decoder(wanted).decode, _shape(wanted))


def decode(raw: bytes, wanted: Any) -> Any:
    """The body as a `wanted`. Raises NotJson, or InvalidRequest that names field and value.

    A key given twice in a part of the body that has a meaning to us is refused, because either
    value could be the intended one. What a publisher puts inside a message is its own affair.
    """
    plan = _plan(wanted)
    try:
        if not raw.isascii():
            raw.decode()
        value = plan.decode(raw)
    except msgspec.ValidationError as error:
        raise _mistake(raw, str(error)) from error
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise NotJson("the body is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise NotJson(f"the body is not JSON: {error}") from error
    if plan.shape is not None and _may_repeat_a_key(raw, value, plan.shape):
        try:
            _check(msgspec.json.format(raw, indent=-1), plan.shape, "")
        except RecursionError as error:
            raise NotJson("the body is nested too deeply") from error
    return value


# --- what is wrong with a value --------------------------------------------------------------


def _mistake(raw: bytes, text: str) -> InvalidRequest | NotJson:
    """msgspec's complaint, as a field, a reason and the value that was given.

    msgspec stops at the first value that does not fit, so what follows may not be JSON at all.
    """
    try:
        msgspec.json.decode(raw, type=Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return NotJson(f"the body is not JSON: {error}")
    reason, _, place = text.partition(" - at `$")
    # Numbers are read as floats only to let clients write 2.0; nobody should send 2.5 for that.
    reason = re.sub(r"\.0\b", "", reason.replace("`float`", "`int`"))
    path = place.rstrip("`").removeprefix(".").replace("`key` in ", "")
    if missing := _MISSING.fullmatch(reason):
        return InvalidRequest(f"{path}.{missing[1]}".removeprefix("."), REQUIRED)
    shown = _shown(raw, path) if path else None
    return InvalidRequest(path, reason if shown is None else f"{reason}, not {shown}")


def _shown(raw: bytes, path: str) -> str | None:
    """The value at a path, shortened; None where the path leads to no single value."""
    try:
        for number, name in _STEP.findall(path):
            raw = bytes(_items(raw)[int(number)] if number else _members(raw)[name])
    except (LookupError, msgspec.DecodeError):
        return None
    if len(raw) <= _SHOWN_BYTES_MAX:
        raw = msgspec.json.format(raw, indent=0)
    shown = raw[:_SHOWN_BYTES_MAX].decode(errors="ignore")
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."


# --- repeated keys ---------------------------------------------------------------------------


class _Shape(msgspec.Struct, frozen=True):
    """Which objects of a type have keys that we read.

    An array has `items`, an object `fields` (name in JSON: how to get it unless it is required, its
    own shape), or it is `free` in its keys. Of it and all below: `frees`, whether one is free, and
    `quoted`, the names of fields as they stand in a body.
    """

    items: "_Shape | None" = None
    fields: Mapping[str, "tuple[Callable[[Any], Any] | None, _Shape | None]"] = {}
    free: bool = False
    frees: bool = False
    quoted: tuple[bytes, ...] = ()


@lru_cache(maxsize=1_024)
def _shape(wanted: Any) -> _Shape | None:
    """None: we read no keys of such a value. A union of structs has the fields of all of them."""
    types = (wanted, *get_args(wanted))
    for each in types:
        if get_origin(each) is list:
            inner = _shape(get_args(each)[0])
            return inner and _Shape(items=inner, frees=inner.frees, quoted=inner.quoted)
        if get_origin(each) is dict:
            return _Shape(free=True, frees=True)
    structs = [each for each in types if isinstance(each, msgspec.StructMeta)]
    fields: dict[str, tuple[Callable[[Any], Any] | None, _Shape | None]] = {}
    for struct in cast(list[type[msgspec.Struct]], structs):
        if tag := struct.__struct_config__.tag_field:
            fields[tag] = (None, None)
        for field in msgspec.structs.fields(struct):
            get: Callable[[Any], Any] | None = attrgetter(field.name)
            if len(structs) > 1:
                get = partial(_field, field.name)
            inner = _shape(field.type)
            if field.required and inner is None and len(structs) == 1:
                get = None
            fields[field.encode_name] = (get, inner)
    below = [inner for _, inner in fields.values() if inner]
    quoted = {b'"%s"' % name.encode() for name in fields}.union(*(i.quoted for i in below))
    frees = any(inner.frees for inner in below)
    return _Shape(fields=fields, frees=frees, quoted=tuple(quoted)) if fields else None


def _field(name: str, value: Any) -> Any:
    return getattr(value, name, UNSET)  # not every struct of a union has it


def _may_repeat_a_key(raw: bytes, value: Any, shape: _Shape) -> bool:
    """False only when no key of ours can be there twice; costs a few searches of the text.

    A key can only be repeated if its text occurs more often than the key was understood, which
    is why the optional fields of request types default to UNSET.
    """
    # A key may be spelled with escapes. The first search is much the faster of the two.
    escapes = b"\\" in raw and b"\\u" in raw
    count = raw.count
    small = not shape.frees and len(raw) <= _SEARCHED_BYTES_MAX and not escapes
    if small and not any([count(quoted) > 1 for quoted in shape.quoted]):
        return False
    understood: dict[str, int] = {}
    free: dict[str, int] = {}
    _count_keys([value], shape, understood, free)
    if count(b":") == sum(understood.values()) + sum(free.values()):
        return False  # every colon follows a key that was understood
    if escapes or len(free) > _SEARCHED_KEYS_MAX or (free and b"\\" in raw):
        return True
    for name, times in free.items():
        understood[name] = understood.get(name, 0) + times
    return any([count(b'"%s"' % name.encode()) > times for name, times in understood.items()])


def _count_keys(
    values: list[Any],
    shape: _Shape,
    understood: dict[str, int],
    free: dict[str, int],
) -> None:
    """Add how many of `values` have each field, and the keys of free objects."""
    if shape.items is not None:
        items = [item for items in values for item in items]
        _count_keys(items, shape.items, understood, free)
    if shape.free:
        for name in [name for value in values for name in value]:
            free[name] = free.get(name, 0) + 1
    for name, (get, inner) in shape.fields.items():
        given = values if get is None else [v for v in map(get, values) if v is not UNSET]
        understood[name] = understood.get(name, 0) + len(given)
        if inner is not None and given:
            inside = [value for value in given if value is not None]
            _count_keys(inside, inner, understood, free)


def _check(text: bytes, shape: _Shape, path: str) -> None:
    """Raise InvalidRequest when a key of ours is repeated in a value, given without blanks.

    msgspec keeps the last of equal keys, so the parts of the object that it kept are then shorter
    than the object.
    """
    if shape.items is not None:
        if text.startswith(b"["):
            for number, item in enumerate(_items(text)):
                _check(bytes(item), shape.items, f"{path}[{number}]")
    elif text.startswith(b"{"):
        members = _members(text)
        if members:
            names = len("".join(members).encode(errors="surrogatepass"))
            if 1 + 4 * len(members) + names + sum(map(len, members.values())) != len(text):
                _refuse_repeated(text, shape, path)
        for name, (_, inner) in shape.fields.items():
            if inner is not None and name in members:
                _check(bytes(members[name]), inner, f"{path}.{name}".removeprefix("."))


def _refuse_repeated(text: bytes, shape: _Shape, path: str) -> None:
    """Of an object that repeats a key, or spells one with escapes."""
    if len(text) > EXAMINED_BYTES_MAX:
        limit = f"an object of more than {EXAMINED_BYTES_MAX} bytes"
        raise InvalidRequest(path, f"{limit} has a key twice, or one spelled with escapes")
    # Numbers do not matter here, and a very long one would cost more than all the rest.
    pairs = json.loads(text, object_pairs_hook=list, parse_int=len, parse_float=len)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen and (shape.free or name in shape.fields):
            where = f"{path}.{name}".removeprefix(".")
            raise InvalidRequest(where, "the key is given twice")
        seen.add(name)
