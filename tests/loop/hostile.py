"""Requests that are as hard on a server as a route lets them be, made from its request type.

Many keys, keys that are repeated or spelled with escapes, many items, long texts, deep nesting;
each as large as the route takes, some of them wrong in their very last bytes.
"""

import io
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from courier.web import Route, Site

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
FORM = "application/x-www-form-urlencoded"
# The default of `request_bytes_max`: what the routes take is less, or as much.
SERVER_BYTES_MAX = 64 << 20
# Enough to stall a server whose work grows faster than the body.
USUAL_BYTES = 1 << 20

Body = tuple[str, str, bytes]  # what it is, its content type, itself


def bodies(site: Site, route: Route, seen: set[Any]) -> Iterator[Body]:
    """Nothing for a route that reads no body.

    Parts of a type that are in `seen` are not filled again: what reads them does not know the
    route. They are added to it.
    """
    limit = min(route.body_bytes_max or site.body_bytes_max, SERVER_BYTES_MAX)
    if route.body is None:
        return
    if route.body is bytes:
        yield "rows", ARROW, _rows(100_000)
        yield "few rows", ARROW, _rows(2_000)
        yield "noise", ARROW, b"\xff\xff\xff\xff" * (limit // 4)
        for what, body in _long_rows(limit - 4_096):
            yield what, ARROW, _cut(body, limit)
        return
    info = _plain(inspect.type_info(route.body))
    yield "minimal", JSON, _least(info)
    yield "unknown keys", JSON, _cut(_object(info, _keys(limit)), limit)
    for name, text in _fillings(info, limit - 1_000, seen):
        yield name, JSON, _cut(text, limit)
    if (site.name, limit) in seen:
        return
    seen.add((site.name, limit))
    usual = min(limit, USUAL_BYTES)
    yield "not closed", JSON, _object(info, _keys(usual))[:-1]
    yield "not UTF-8 at the end", JSON, _object(info, _keys(usual)) + b"\xff"
    yield "blanks", JSON, _least(info).ljust(limit)
    yield "deep objects", JSON, b'{"a":' * (usual // 5)
    yield "deep arrays", JSON, b"[" * usual
    yield "a form", FORM, b"&".join(b"a%d=%%41" % n for n in range(usual // 16))


def asking_for_most(route: Route) -> bytes:
    """A body that asks for as much as the route gives."""
    info = _plain(inspect.type_info(route.body))
    most = {"batch_size": 100, "visibility_timeout_ms": 1, "count": 20_000, "lease_ms": 1}
    names = {field.encode_name for field in getattr(info, "fields", ())}
    asked = {name: value for name, value in most.items() if name in names}
    return msgspec.json.encode(asked) if asked else _least(info)


def _rows(count: int) -> bytes:
    """Small messages; bulk takes 100,000."""
    return _stream({"body": pa.array(["x"] * count), "headers": ['{"a":1}'] * count})


def _long_rows(size: int) -> Iterator[tuple[str, bytes]]:
    """Few rows, of which each is as long as it may be, or longer."""
    body = b"{%s}" % _keys(10 << 20)
    count = size // len(body)
    yield "long JSON rows", _stream({"body": [body] * count, "content_type": ["json"] * count})
    yield "long text rows", _stream({"body": [b"x" * (10 << 20)] * count})
    yield "a body too long", _stream({"body": [b"x" * size]})
    yield "long headers", _stream({"body": ["x"], "headers": [(b"{%s}" % _keys(size)).decode()]})
    pairs = [("a", "b")] * (size // 10)
    mapped = pa.array([pairs], pa.map_(pa.string(), pa.string()))
    yield "long headers as a map", _stream({"body": ["x"], "headers": mapped})
    squeezed = pa.ipc.IpcWriteOptions(compression="zstd")
    twice = {"body": [b"x" * (10 << 20)] * 6}
    yield "long rows, compressed", _stream(twice, squeezed)
    names = {"body": ["x"] * 2_000, "headers": [f'{{"a":"{"x" * 30_000}"}}'] * 2_000}
    yield "many headers, compressed", _stream(names, squeezed)


def _stream(columns: dict[str, Any], options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _cut(text: bytes, size: int) -> bytes:
    assert len(text) <= size, f"{len(text)} bytes, not {size}: {text[:80]!r}"
    return text


def _keys(size: int) -> bytes:
    """Members of an object."""
    count = (size - 1_000) // 13
    return b",".join(b'"k%07d":0' % number for number in range(count))


def _plain(info: Any) -> Any:
    """Without what is only for the description, and of a union what can hold most."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        sized = (inspect.StructType, inspect.ListType, inspect.DictType, inspect.StrType)
        types = [_plain(each) for each in info.types]
        for kind in sized:
            for each in types:
                if isinstance(each, kind):
                    return each
        return types[0]
    return info


def _least(info: Any) -> bytes:
    """The shortest good value of a type, or nearly so."""
    match _plain(info):
        case inspect.StructType() as struct:
            members = [
                b'"%s":%s' % (field.encode_name.encode(), _least(field.type))
                for field in struct.fields
                if field.required
            ]
            if struct.tag is not None:
                members.append(b'"%s":"%s"' % (_text(struct.tag_field), _text(struct.tag)))
            return b"{%s}" % b",".join(members)
        case inspect.ListType() as array:
            return b"[%s]" % _least(array.item_type) if array.min_length else b"[]"
        case inspect.DictType():
            return b"{}"
        case inspect.LiteralType() as literal:
            return msgspec.json.encode(literal.values[0])
        case inspect.IntType() | inspect.FloatType() as number:
            return b"%d" % (number.ge or 0)
        case inspect.BoolType():
            return b"true"
        case _:
            return b'"a"'


def _text(value: Any) -> bytes:
    return str(value).encode()


def _object(info: Any, members: bytes) -> bytes:
    """A value of a type, if that is an object, with these members besides."""
    least = _least(info)
    if not least.startswith(b"{"):
        return b"[{%s}]" % members
    return b"{%s%s%s}" % (least[1:-1], b"," if len(least) > 2 else b"", members)


def _fillings(info: Any, size: int, seen: set[Any], path: str = "") -> Iterator[tuple[str, bytes]]:
    """Values of the type that are about `size` long, each because of another part of it."""
    match _plain(info):
        case inspect.StructType() as struct:
            if (struct.cls, size) in seen:
                return
            seen.add((struct.cls, size))
            for field in struct.fields:
                least = _least(struct)
                name = field.encode_name
                at = f"{path}.{name}".removeprefix(".")
                for what, filling in _fillings(field.type, size, seen, at):
                    member = b'"%s":%s' % (name.encode(), filling)
                    yield what, _object(_without(struct, name), member)
                yield f"{at} repeated", _repeated(least, name, size)
        case inspect.ListType() as array:
            item = _least(array.item_type)
            many = b",".join([item] * (size // (len(item) + 1)))
            yield f"{path}[] many", b"[%s]" % many
            yield f"{path}[] many, the last wrong", b"[%s,[]]" % many[: -len(item) - 1]
            for what, filling in _fillings(array.item_type, size, seen, f"{path}[]"):
                yield what, b"[%s]" % filling
            for what, filling in _fillings(array.item_type, size // 7, set(), f"{path}[]"):
                if what.endswith(" long"):
                    yield f"{what}, six of them", b"[%s]" % b",".join([filling] * 6)
        case inspect.DictType() | inspect.RawType() | inspect.AnyType():
            keys = _keys(size)
            yield f"{path} keys", b"{%s}" % keys
            yield f"{path} keys, one twice", b'{%s,"k0000000":0}' % keys
            yield f"{path} keys, one with escapes", b'{%s,"\\u006b":0}' % keys
            nested = b'{"a":' * 90 + b"0" + b"}" * 90
            yield (
                f"{path} nested",
                b"{%s}"
                % b",".join(b'"%06d":%s' % (n, nested) for n in range(size // (len(nested) + 10))),
            )
        case inspect.StrType():
            yield f"{path} long", b'"%s"' % (b"a" * size)
            yield f"{path} escapes", b'"%s"' % (b"\\n" * (size // 2))
            yield f"{path} escapes by number", b'"%s"' % (b"\\u0001" * (size // 6))
        case inspect.IntType() | inspect.FloatType():
            yield f"{path} digits", b"9" * min(size, USUAL_BYTES)


def _repeated(least: bytes, name: str, size: int) -> bytes:
    member = b'"%s":0' % name.encode()
    many = b",".join([member] * (size // (len(member) + 1)))
    return b"{%s%s%s}" % (least[1:-1], b"," if len(least) > 2 else b"", many)


def _without(struct: inspect.StructType, name: str) -> inspect.StructType:
    fields = tuple(field for field in struct.fields if field.encode_name != name)
    return msgspec.structs.replace(struct, fields=fields)
