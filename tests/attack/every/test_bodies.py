"""Bodies that are not JSON, or JSON that nobody sane would send, on every route that takes one.

What is refused is refused in the site's own shape, and has changed nothing.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import msgspec
import pytest

from tests.attack.every.aim import Aim, aims_of
from tests.attack.peer import Peer
from tests.conformance.reach.watch import Watch
from tests.conformance.reach.world import Side, World

AIMS = aims_of(body=True)
each_aim = pytest.mark.parametrize("aim", AIMS, ids=str)

# %s stands for a good body.
NOT_JSON = [
    b"\xff",
    b"\xff%s",
    b"%s\xff",
    b"\xef\xbb\xbf%s",
    b"%s}",
    b"%s x",
    b"%s%s",
    b"%s\x00",
    b"/* */%s",
    b'{"a":"\xff"}',
    b'{"a":"\xc0\xaf"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\xf4\x90\x80\x80"}',
    b'{"a":"\xe2\x82"}',
    b'{"\xff":1}',
    b'{"a":1',
    b'{"a":01}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":+1}',
    b'{"a":0x10}',
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":[NaN]}',
    b'{"a":1,}',
    b'{"a":[1,]}',
    b"{'a':1}",
    b"{a:1}",
    b'{"a":"\x00"}',
    b'{"a":"\n"}',
    b'{"a":"\\x41"}',
    b'{"a":"\\u12"}',
    b'{"a":"open',
    b'{"a":tru}',
    b"{",
    b"[]]",
    "{}".encode("utf-16"),
    "{}".encode("utf-32"),
    b"body=1",
    b"\x1f\x8b\x08\x00",
    b"<body>1</body>",
    b"\xff\xfe\x00\x01" * 100,
]
OTHER_SHAPES = [b"null", b'"text"', b"1", b"true", b"[[]]", b"[null]", b"[1]"]
VALUES: list[Any] = [None, "", [], {}, True, 1.5, -1, 10**30, "5", [[]], {"": 1}, "x" * 70_000]
HUGE = [b"1e400", b"-1e400", b"1" + b"0" * 400, b"9" * 5_000, b"18446744073709551616", b"1e19"]
HUGE += [b"-9223372036854775809", b"1" + b"0" * 30, b"-1" + b"0" * 30]
# For a schema this is one; elsewhere just an object.
DIRECTIVE = b'{"a":{"type":"number","min":%s}}'
LEVELS = 100_000
DEEP = [
    opening * LEVELS + b"1" + closing * LEVELS
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b"[", b""), (b'[{"a":', b"}]"))
]
LONE = b'"\\ud800"'
MARK = "~mark~"


@pytest.fixture
def nothing_done(world: World) -> Iterator[None]:
    """What the test sends changes nothing."""
    watch = Watch(world)
    yield
    assert watch.events(world.own) == []


def fields(wanted: Any, value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of a value of that type where a member is, or could be."""
    types = (wanted, *get_args(wanted))
    if isinstance(value, list):
        [items] = [each for each in types if get_origin(each) is list] or [list[Any]]
        for number, item in enumerate(value):
            yield (*at, number)
            yield from fields(get_args(items)[0], item, (*at, number))
    if isinstance(value, dict):
        for each in types:
            if isinstance(each, msgspec.StructMeta):
                struct: Any = each
                for field in msgspec.structs.fields(struct):
                    yield (*at, field.encode_name)
                    inner = value.get(field.encode_name)
                    yield from fields(field.type, inner, (*at, field.encode_name))


def with_value(body: Any, at: tuple[str | int, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    return changed


def spelled(body: Any, at: tuple[str | int, ...], value: bytes) -> bytes:
    """The body with this text in that place."""
    return json.dumps(with_value(body, at, MARK)).encode().replace(b'"%s"' % MARK.encode(), value)


def fits(aim: Aim, body: bytes) -> bool:
    """Whether the route's own type has room for it; more may be asked than a type can say."""
    try:
        msgspec.json.decode(body, type=aim.route.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


@each_aim
def test_what_is_not_json_is_refused(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    good = json.dumps(aim.sample(side)).encode()
    for broken in aim.share(NOT_JSON):
        body = broken.replace(b"%s", good)
        aim.refused(aim.ask(world, side, body), 400)


@each_aim
def test_a_body_of_another_shape_is_refused(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    listed = isinstance(aim.sample(side), list)
    for body in (*OTHER_SHAPES, b"{}" if listed else b"[]"):
        aim.refused(aim.ask(world, side, body), 400)
    if not aim.route.body_optional:
        for body in (b" ", b"\r\n"):
            aim.refused(aim.ask(world, side, body), 400)


@each_aim
def test_a_field_of_the_wrong_kind_is_refused_by_name(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    sample = aim.sample(side)
    for number, at in enumerate(dict.fromkeys(fields(aim.route.body, sample))):
        for value in aim.share(VALUES, number):
            body = json.dumps(with_value(sample, at, value)).encode()
            if fits(aim, body):
                continue
            said = aim.refused(aim.ask(world, side, body), 400, 413, 422)
            if isinstance(at[-1], str):
                assert at[-1] in said, (at, value, said)


@each_aim
def test_a_number_nobody_could_mean_is_refused(world: World, side: Side, aim: Aim) -> None:
    """Where a type leaves open what may be there, it breaks nothing."""
    sample = aim.sample(side)
    forms = [form % huge for huge in HUGE for form in (b"%s", b"[%s]", DIRECTIVE)]
    for number, at in enumerate(dict.fromkeys(fields(aim.route.body, sample))):
        for value in aim.share(forms, number):
            body = spelled(sample, at, value)
            if fits(aim, body):
                aim.ask(world, side, body)
            else:
                aim.refused(aim.ask(world, side, body), 400, 413, 422)


@each_aim
def test_deep_nesting_is_refused_where_it_means_nothing(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    for deep in DEEP:
        aim.refused(aim.ask(world, side, deep), 400, 413)
    sample = aim.sample(side)
    for at in dict.fromkeys(fields(aim.route.body, sample)):
        if not fits(aim, spelled(sample, at, b"[[[]]]")):
            body = spelled(sample, at, DEEP[0])
            aim.refused(aim.ask(world, side, body), 400, 413, 422)


@each_aim
def test_half_of_a_surrogate_pair_is_refused(world: World, side: Side, aim: Aim) -> None:
    """It is no text, and so no JSON; inside a message it may be the publisher's business."""
    sample = aim.sample(side)
    for at in dict.fromkeys(fields(aim.route.body, sample)):
        body = spelled(sample, at, LONE)
        if fits(aim, body):
            aim.ask(world, side, body)
        else:
            aim.refused(aim.ask(world, side, body), 400, 422)


@each_aim
def test_a_key_given_twice_is_refused_by_name(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    sample = aim.sample(side)
    for at in dict.fromkeys(fields(aim.route.body, sample)):
        if not isinstance(at[-1], str):
            continue
        body = json.dumps(with_value(sample, at, MARK)).encode()
        name = at[-1]
        escaped = f"\\u{ord(name[0]):04x}{name[1:]}"
        for other in (name, escaped):
            member = f'"{name}": "{MARK}"'.encode()
            twice = b'"%s": 1, "%s": 1' % (name.encode(), other.encode())
            said = aim.refused(aim.ask(world, side, body.replace(member, twice)), 400, 422)
            assert name in said, (at, said)


@pytest.mark.parametrize(
    "aim", [each for each in AIMS if each.site.name in ("cloudflare", "anypoint")], ids=str
)
def test_a_body_is_json_whatever_its_content_type_says(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    """Else it would be refused for its type, or read as something else."""
    for kind in ("text/plain", "multipart/form-data; boundary=x", "\xff", "", "a" * 500):
        answer = aim.ask(world, side, b"null", headers={"Content-Type": kind})
        aim.refused(answer, 400)


@each_aim
def test_a_coded_body_is_refused_not_guessed(
    world: World, side: Side, nothing_done: None, aim: Aim
) -> None:
    for coding in ("gzip", "br", "nonsense"):
        headers = {"Content-Encoding": coding}
        answer = aim.ask(world, side, b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", headers=headers)
        aim.refused(answer, 400, 415)


@each_aim
@pytest.mark.parametrize("length", [lambda limit: limit + 1, lambda _: 10**12], ids=["+1", "10^12"])
def test_a_body_over_the_cap_is_refused_before_it_is_sent(
    world: World, side: Side, nothing_done: None, aim: Aim, length: Callable[[int], int]
) -> None:
    lines = [f"{aim.route.method} {aim.target(side)} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in aim.headers(world).items()]
    lines += [f"Content-Length: {length(aim.bytes_max)}", "Expect: 100-continue"]
    with Peer(world.server) as client:
        client.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        assert str(aim.bytes_max) in aim.refused(client.answer(), 413)
        assert client.hung_up()
