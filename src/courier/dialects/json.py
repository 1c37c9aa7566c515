"""Reading request bodies: strict about JSON, clear about what is wrong with it.

All of it takes time in proportion to the body. Whatever looks at single keys or builds Python
values only to word a refusal is limited to EXAMINED_BYTES_MAX of the body.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from typing import Any, cast, get_args, get_origin

import msgspec
import msgspec.inspect
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

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
# msgspec quotes a choice that it does not know, however long that is.
_REASON_CHARACTERS_MAX = 200
# A byte is looked for much faster as a number.
_BACKSLASH = ord("\\")
_COLON = ord(":")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_PATTERN = re.compile(r"Expected `str` matching regex (.*)")
_BOUND = re.compile(r"Expected `(\w+)` (of length )?(<=|>=) (\S+)")
_TYPE = re.compile(r"Expected `([\w| ]+)`, got `[\w| ]+`")
_BOUNDS = {"<=": "at most", ">=": "at least"}
_LENGTHS = {"str": "characters", "array": "items", "object": "members"}
_TYPES = {
    "int": "a whole number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
}
_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode


class _Plan(msgspec.Struct, frozen=True):
    """How to read a type: its decoder, and where its keys are if it has any that we read."""

    decode: Callable[[bytes], Any]
    shape: "_Shape | None"
    wanted: Any


# By the identity of the type, which the plan keeps alive: some take long to say their hash.
_plans: dict[int, _Plan] = {}
PLANS_MAX = 256


def _plan(wanted: Any) -> _Plan:
    made = _Plan(msgspec.json.Decoder(wanted).decode, _shape(wanted), wanted)
    if len(_plans) >= PLANS_MAX:
        _plans.clear()
    _plans[id(wanted)] = made
    return made


def decode(raw: bytes, wanted: Any) -> Any:
    """The body as a `wanted`. Raises NotJson, or InvalidRequest that names field and value.

    A key given twice in a part of the body that has a meaning to us is refused, because either
    value could be the intended one. What a publisher puts inside a message is its own affair.
    """
    plan = _plans.get(id(wanted)) or _plan(wanted)
    try:
        if not raw.isascii():
            raw.decode()
        value = plan.decode(raw)
    except msgspec.ValidationError as error:
        raise _mistake(raw, str(error), wanted) from error
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise NotJson("the body is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise NotJson(f"the body is not JSON: {error}") from error
    shape = plan.shape
    if shape is None:
        return value
    colons = raw.count(_COLON)
    fields: Sequence[Any] = ()
    if isinstance(value, msgspec.Struct):
        fields = astuple(value)
    elif shape.items is not None and shape.items.fields and isinstance(value, list):
        fields = [*chain.from_iterable(map(astuple, value))]
    keys = len(fields) - fields.count(UNSET) + shape.tags
    if shape.frees and colons != keys:
        keys += sum([len(each) for each in fields if type(each) is dict])
    if colons == keys:
        return value  # every colon follows one of its keys: there are no others, nor below it
    if _may_repeat_a_key(raw, value, shape, colons):
        try:
            _check(raw.strip(), shape, "")
        except RecursionError as error:
            raise NotJson("the body is nested too deeply") from error
    return value


# --- what is wrong with a value --------------------------------------------------------------


def _mistake(raw: bytes, text: str, wanted: Any) -> InvalidRequest | NotJson:
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
    if pattern := _PATTERN.fullmatch(reason):
        reason = f"must have {_words(wanted).get(pattern[1], 'another form')}"
    elif bound := _BOUND.fullmatch(reason):
        length = f" {_LENGTHS[bound[1]]}" if bound[2] else ""
        length = length.removesuffix("s") if bound[4] == "1" else length
        reason = f"must {'have' if length else 'be'} {_BOUNDS[bound[3]]} {bound[4]}{length}"
    elif kind := _TYPE.fullmatch(reason):
        reason = "must be " + " or ".join(_TYPES.get(one, one) for one in kind[1].split(" | "))
    elif len(reason) > _REASON_CHARACTERS_MAX:
        reason = reason[:_REASON_CHARACTERS_MAX] + "..."
    path = place.rstrip("`").removeprefix(".").replace("`key` in ", "")
    if missing := _MISSING.fullmatch(reason):
        return InvalidRequest(f"{path}.{missing[1]}".removeprefix("."), REQUIRED)
    shown = _shown(raw, path) if path else None
    return InvalidRequest(path, reason if shown is None else f"{reason}, not {shown}")


def _words(wanted: Any) -> Mapping[str, str]:
    """What each pattern in a type asks for, in words: the description of texts that have it."""
    found: dict[str, str] = {}
    left, seen = [msgspec.inspect.type_info(wanted)], set[Any]()
    while left:
        each = left.pop()
        if isinstance(each, msgspec.inspect.Metadata):
            pattern = getattr(each.type, "pattern", None)
            if pattern is not None:
                found[repr(pattern)] = str((each.extra_json_schema or {}).get("description"))
            left.append(each.type)
        elif isinstance(each, msgspec.inspect.StructType):
            if each.cls not in seen:
                seen.add(each.cls)
                left += [field.type for field in each.fields]
        elif isinstance(each, msgspec.inspect.UnionType):
            left += each.types
        elif isinstance(each, msgspec.inspect.CollectionType):
            left.append(each.item_type)
    return found


def _shown(raw: bytes, path: str) -> str | None:
    """The value at a path, shortened; None where the path leads to no single value."""
    try:
        for number, name in _STEP.findall(path):
            raw = bytes(_items(raw)[int(number)] if number else _members(raw)[name])
    except (LookupError, msgspec.DecodeError, RecursionError):
        return None
    if len(raw) <= _SHOWN_BYTES_MAX:
        raw = msgspec.json.format(raw, indent=0)
    shown = raw[:_SHOWN_BYTES_MAX].decode(errors="ignore")
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."


# --- repeated keys ---------------------------------------------------------------------------


class _Shape(msgspec.Struct, frozen=True):
    """Which objects of a type have keys that we read.

    Arrays have `items`, objects `fields` (name in JSON: how to get it unless it is required, its
    own shape), or it is `free` in its keys. Of it and all below: `frees`, whether one is free, and
    `quoted`, the names of fields as they stand in a body. `tags`: of an object, how many keys it
    has beside those of its fields.
    """

    items: "_Shape | None" = None
    fields: Mapping[str, "tuple[Callable[[Any], Any] | None, _Shape | None]"] = {}
    free: bool = False
    frees: bool = False
    quoted: tuple[bytes, ...] = ()
    tags: int = 0


@lru_cache(maxsize=1_024)
def _shape(wanted: Any, among_others: bool = False) -> _Shape | None:
    """None: we read no keys of such a value. A union of structs has the fields of all of them.

    `among_others`: values may be of another type of a union, which lacks some of the fields.
    """
    types = (wanted, *get_args(wanted))
    arrays = [each for each in types if get_origin(each) is list]
    items = _shape(get_args(arrays[0])[0], among_others) if arrays else None
    if any(get_origin(each) is dict for each in types):
        return _Shape(free=True, frees=True)
    structs = [each for each in types if isinstance(each, msgspec.StructMeta)]
    among_others, tags = among_others or len(structs) > 1, 0
    fields: dict[str, tuple[Callable[[Any], Any] | None, _Shape | None]] = {}
    for struct in cast(list[type[msgspec.Struct]], structs):
        if tag := struct.__struct_config__.tag_field:
            fields[tag] = (None, None)
            tags = 1
        for field in msgspec.structs.fields(struct):
            inner = _shape(field.type, among_others)
            get: Callable[[Any], Any] | None = attrgetter(field.name)
            if among_others:
                get = partial(_field, field.name)
                inner = _merged(inner, fields.get(field.encode_name, (None, None))[1])
            elif field.required and inner is None:
                get = None
            fields[field.encode_name] = (get, inner)
    return _joined(items, fields, tags) if items or fields else None


def _joined(
    items: _Shape | None,
    fields: "Mapping[str, tuple[Callable[[Any], Any] | None, _Shape | None]]",
    tags: int = 0,
) -> _Shape:
    below = [inner for _, inner in fields.values() if inner] + ([items] if items else [])
    quoted = {b'"%s"' % name.encode() for name in fields}.union(*(i.quoted for i in below))
    frees = any(inner.frees for inner in below)
    return _Shape(items, fields, False, frees, tuple(quoted), tags)


def _merged(one: _Shape | None, other: _Shape | None) -> _Shape | None:
    """Where two structs of a union have objects under the same name."""
    if one is None or other is None or not (one.fields and other.fields):
        return one or other
    return _joined(one.items or other.items, {**one.fields, **other.fields})


def _field(name: str, value: Any) -> Any:
    return getattr(value, name, UNSET)  # not every struct of a union has it


def _may_repeat_a_key(raw: bytes, value: Any, shape: _Shape, colons: int) -> bool:
    """False only when no key of ours can be there twice; costs a few searches of the text.

    A key can only be repeated if its text occurs more often than the key was understood, which
    is why the optional fields of request types default to UNSET.
    """
    # A key may be spelled with escapes. The first search is much the faster of the two.
    escapes = _BACKSLASH in raw and b"\\u" in raw
    count = raw.count
    small = not shape.frees and len(raw) <= _SEARCHED_BYTES_MAX and not escapes
    if small and not any([count(quoted) > 1 for quoted in shape.quoted]):
        return False
    understood: dict[str, int] = {}
    free: dict[str, int] = {}
    _count_keys([value], shape, understood, free)
    if colons == sum(understood.values()) + sum(free.values()):
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
        arrays = [value for value in values if isinstance(value, list)]
        values = [value for value in values if not isinstance(value, list)]
        items = [item for array in arrays for item in array]
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
    """Raise InvalidRequest when a key of ours is repeated in a value."""
    if text.startswith(b"["):
        for number, item in enumerate(_items(text) if shape.items else ()):
            _check(bytes(item), shape.items or shape, f"{path}[{number}]")
    elif text.startswith(b"{"):
        if len(text) > EXAMINED_BYTES_MAX and shape.fields:
            _check_envelope(text, shape, path)
        members = _members(text)
        if not _is_all(text, members):
            text = msgspec.json.format(text, indent=-1)
            if not _is_all(text, _members(text)):
                _refuse_repeated(text, shape, path)
        for name, (_, inner) in shape.fields.items():
            if inner is not None and name in members:
                _check(bytes(members[name]), inner, f"{path}.{name}".removeprefix("."))


def _is_all(text: bytes, members: Mapping[str, Raw]) -> bool:
    """Whether an object is just these members, without blanks between them.

    msgspec keeps the last of equal keys, so what it kept is then shorter than the object. So it
    is when a key is spelled with escapes.
    """
    if not members:
        return True
    names = len("".join(members).encode(errors="surrogatepass"))
    size = 1 + 4 * len(members) + names + sum(map(len, members.values()))
    return len(text) == size


def _check_envelope(text: bytes, shape: _Shape, path: str) -> None:
    """Raise InvalidRequest for a long object that has little of what we read in it.

    There could be more other keys, or repeated ones, than can be looked at.
    """
    read = astuple(_outline(tuple(shape.fields)).decode(text))
    if len(text) - sum(len(part) for part in read if part is not UNSET) > EXAMINED_BYTES_MAX:
        limit = f"has more than {EXAMINED_BYTES_MAX} bytes of unknown or repeated keys"
        raise InvalidRequest(path, limit)


@lru_cache(maxsize=256)
def _outline(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Reads an object with these fields, none of them any further."""
    attributes = {f"field_{number}": name for number, name in enumerate(names)}
    fields = [(attribute, Raw | UnsetType, UNSET) for attribute in attributes]
    return msgspec.json.Decoder(msgspec.defstruct("Outline", fields, rename=attributes))


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
