"""Reading request bodies: strict about JSON, clear about what is wrong with it."""

import json
import re
from functools import lru_cache
from typing import Any, cast, get_args, get_origin

import msgspec

from courier.core.errors import InvalidRequest
from courier.web import NotJson

REQUIRED = "required"
_SHOWN_CHARACTERS = 80
_MISSING = re.compile(r"Object missing required field `(\w+)`")


@lru_cache(maxsize=256)
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)


def decode(raw: bytes, wanted: Any) -> Any:
    """The body as a `wanted`. Raises NotJson, or InvalidRequest that names field and value.

    A key given twice in a part of the body that has a meaning to us is refused: which of the
    two was meant is anybody's guess. What a publisher puts inside a message is its own affair.
    """
    try:
        raw.decode()
        value = _decoder(wanted).decode(raw)
    except msgspec.ValidationError as error:
        raise _mistake(raw, str(error)) from error
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise NotJson("the body is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise NotJson(f"the body is not JSON: {error}") from error
    if _may_repeat_a_key(raw, value):
        _refuse_repeated_keys(raw, wanted)
    return value


def _mistake(raw: bytes, text: str) -> InvalidRequest | NotJson:
    """msgspec's complaint, as a field, a reason and the value that was given.

    msgspec stops at the first value that does not fit, so what follows may not be JSON at all.
    """
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return NotJson(f"the body is not JSON: {error}")
    reason, _, place = text.partition(" - at `$")
    # Numbers are read as floats only to let clients write 2.0; nobody should send 2.5 for that.
    reason = re.sub(r"\.0\b", "", reason.replace("`float`", "`int`"))
    path = place.rstrip("`").removeprefix(".").replace("`key` in ", "")
    if missing := _MISSING.fullmatch(reason):
        return InvalidRequest(f"{path}.{missing[1]}".removeprefix("."), REQUIRED)
    try:
        value = json.loads(raw)
        for step in path.replace("[", ".[").split(".") if path else ():
            if step:
                value = value[int(step[1:-1]) if step.startswith("[") else step]
        shown = json.dumps(value)
    except (LookupError, ValueError, TypeError, RecursionError):
        return InvalidRequest(path, reason)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return InvalidRequest(path, f"{reason}, not {shown}" if path else reason)


def _may_repeat_a_key(raw: bytes, value: Any) -> bool:
    """False only when no key of ours can be there twice; costs a few searches of the text.

    It counts how often each key was understood and how often its text occurs, which is why the
    optional fields of request types default to UNSET.
    """
    if b"\\u" in raw:
        return True  # a key may be spelled with escapes
    structs = value if isinstance(value, list) else [value]
    if not structs or not isinstance(structs[0], msgspec.Struct):
        return False  # read further by whoever asked for it like this
    counts: dict[str, int] = {}
    _count_keys(structs, counts)
    if raw.count(b":") == sum(counts.values()):
        return False  # every colon follows a key that was understood
    return any([raw.count(b'"%s"' % name.encode()) > count for name, count in counts.items()])


def _count_keys(values: list[Any], counts: dict[str, int]) -> None:
    """Add how many of `values`, structs of one type, have each of their fields set."""
    for name, attribute, nested in _fields(values[0].__class__):
        given = [
            found for value in values if (found := getattr(value, attribute)) is not msgspec.UNSET
        ]
        if not given:
            counts.setdefault(name, 0)
            continue
        counts[name] = counts.get(name, 0) + len(given)
        if nested:
            if isinstance(given[0], list):
                given = [item for items in given for item in items]
            if given and isinstance(given[0], msgspec.Struct):
                _count_keys(given, counts)
        elif isinstance(given[0], dict):
            for key in [key for item in given if item for key in item]:
                counts[key] = counts.get(key, 0) + 1


@lru_cache(maxsize=256)
def _fields(struct: Any) -> list[tuple[str, str, bool]]:
    """Each field's name in JSON, its attribute, and whether structs may be inside it."""
    return [
        (field.encode_name, field.name, "Struct" in str(msgspec.inspect.type_info(field.type)))
        for field in msgspec.structs.fields(struct)
    ]


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, repeated keys and all."""


def _refuse_repeated_keys(raw: bytes, wanted: Any) -> None:
    try:
        # Numbers do not matter here, and a very long one would cost more than all the rest.
        read = json.loads(raw, object_pairs_hook=_Pairs, parse_int=len, parse_float=len)
    except RecursionError as error:
        raise NotJson("the body is nested too deeply") from error
    _check(read, wanted, "")


def _check(value: Any, wanted: Any, path: str) -> None:
    for each in (wanted, *get_args(wanted)):
        if get_origin(each) is list and isinstance(value, list):
            for number, item in enumerate(value):
                _check(item, get_args(each)[0], f"{path}[{number}]")
        elif isinstance(each, msgspec.StructMeta) and isinstance(value, _Pairs):
            struct = cast(type[msgspec.Struct], each)
            fields = msgspec.structs.fields(struct)
            _check_pairs(value, {field.encode_name: field.type for field in fields}, path)
        elif get_origin(each) is dict and isinstance(value, _Pairs):
            _check_pairs(value, {}, path)


def _check_pairs(pairs: _Pairs, types: dict[str, Any], path: str) -> None:
    seen: set[str] = set()
    for name, item in pairs:
        where = f"{path}.{name}".removeprefix(".")
        if name in seen:
            raise InvalidRequest(where, "the key is given twice")
        seen.add(name)
        if name in types:
            _check(item, types[name], where)
