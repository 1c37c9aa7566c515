"""Reading bodies: repeated keys are found however they are spelled, in time for the length."""

import json
import random
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.dialects import json as bodies
from courier.dialects.anypoint import wire as anypoint
from courier.dialects.cloudflare import wire as cloudflare
from courier.dialects.discue.listener_wire import ListenerBody
from courier.dialects.openapi import Documents
from courier.web import NotJson
from tests.routes import tables


class Left(Struct, tag_field="type", tag="left"):
    settings: cloudflare.PullSettingsBody | UnsetType | None = UNSET
    only: int | UnsetType = UNSET


class Right(Struct, tag_field="type", tag="right"):
    settings: cloudflare.WorkerSettingsBody | UnsetType | None = UNSET


class Item(Struct):
    body: Raw
    note: str | UnsetType = UNSET


class Whole(Struct):
    items: list[Item] | UnsetType = UNSET
    free: dict[str, Any] | UnsetType | None = UNSET
    side: Left | Right | UnsetType = UNSET
    either: list[Item] | Item | UnsetType = UNSET


class Writer:
    """Random JSON of a type: known keys, unknown ones, repeated ones, escapes, blanks."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _blank(self) -> str:
        return self._random.choice(["", "", "", " ", "\n "])

    def _key(self, name: str) -> str:
        if self._chance(0.1):
            place = self._random.randrange(len(name))
            name = f"{name[:place]}\\u{ord(name[place]):04x}{name[place + 1 :]}"
        return f'"{name}"{self._blank()}:{self._blank()}'

    def _object(self, members: list[tuple[str, str]]) -> str:
        if members and self._chance(0.15):
            members.append(self._random.choice(members))
        if self._chance(0.2):
            members += [("other", self._any(2))] * self._random.choice([1, 2])
        texts = [self._key(name) + value for name, value in members]
        return "{" + f"{self._blank()},".join(texts) + self._blank() + "}"

    def _any(self, depth: int) -> str:
        kinds = ["1", '"a:b"', '"body"', '"\\u00e9\\n"', "null", "2.5"]
        if depth and self._chance(0.4):
            return f'{{"body":{self._any(depth - 1)},"a:":{self._any(depth - 1)}}}'
        return self._random.choice(kinds)

    def _item(self) -> str:
        members = [("body", self._any(2))]
        if self._chance(0.5):
            members.append(("note", self._random.choice(['"x"', '"note"', '"\\"body\\":"'])))
        return self._object(members)

    def _items(self) -> str:
        return "[" + ",".join(self._item() for _ in range(self._random.randrange(4))) + "]"

    def items(self) -> bytes:
        return self._items().encode()

    def _side(self) -> str:
        setting = "max_wait_time_ms" if self._chance(0.5) else "visibility_timeout_ms"
        kind = "right" if setting == "max_wait_time_ms" else "left"
        settings = self._object([(setting, "5"), ("batch_size", "2")])
        return self._object([("type", f'"{kind}"'), ("settings", settings)])

    def whole(self) -> bytes:
        members = []
        if self._chance(0.7):
            members.append(("items", self._items()))
        if self._chance(0.5):
            names = self._random.sample(["a", "items", "b c", "é", "x/y", *"defghijklmnopqrs"], 9)
            many = names if self._chance(0.5) else names[:3]
            members.append(("free", self._object([(name, self._any(1)) for name in many])))
        if self._chance(0.4):
            members.append(("side", self._side()))
        if self._chance(0.4):
            members.append(("either", self._item() if self._chance(0.5) else self._items()))
        return self._object(members).encode()


class Pairs(list[tuple[str, Any]]):
    pass


def repeats(value: Any, wanted: Any) -> bool:
    """Whether a key that is read is there twice, by looking at every one of them."""
    types = (wanted, *get_args(wanted))
    if isinstance(value, Pairs):
        fields: dict[str, list[Any]] = {}
        for each in types:
            if isinstance(each, msgspec.StructMeta):
                known: Any = each
                for field in msgspec.structs.fields(known):
                    fields.setdefault(field.encode_name, []).append(field.type)
                if known.__struct_config__.tag_field:
                    fields["type"] = [str]
        names = [name for name, _ in value]
        free = any(get_origin(each) is dict for each in types)
        if any(names.count(name) > 1 for name in names if free or name in fields):
            return True
        inside = [(item, fields[name]) for name, item in value if name in fields]
        return any(repeats(item, each) for item, kinds in inside for each in kinds)
    for each in types:
        if get_origin(each) is list and isinstance(value, list):
            return any(repeats(item, get_args(each)[0]) for item in value)
    return False


@pytest.mark.parametrize(
    ("write", "wanted"), [(Writer.whole, Whole), (Writer.items, list[Item])], ids=["one", "many"]
)
def test_a_body_is_refused_for_a_repeated_key_just_when_there_is_one(
    write: Callable[[Writer], bytes], wanted: Any
) -> None:
    refused = 0
    for seed in range(4_000):
        raw = write(Writer(seed))
        expected = repeats(json.loads(raw, object_pairs_hook=Pairs), wanted)
        try:
            bodies.decode(raw, wanted)
            found = False
        except InvalidRequest as error:
            assert error.reason == "the key is given twice", (error, raw)
            found = True
        assert found == expected, raw
        refused += found
    assert 500 < refused < 3_000


KEYS = b",".join(b'"k%d":"a:b"' % number for number in range(60_000))
MANY = [
    (b'{"body":"a:b","properties":{%s}}' % KEYS, anypoint.MessageBody),
    (b'{"body":"a:b","properties":{%s,"\\u006b":1}}' % KEYS, anypoint.MessageBody),
    (b'{"body":"a:b","properties":{%s,"k1":1}}' % KEYS, anypoint.MessageBody),
    (b'{"properties":{%s},"body":5}' % KEYS, anypoint.MessageBody),
    (b'{"properties":{%s},"body":' % KEYS, anypoint.MessageBody),
    (b'{"headers":{%s}}' % KEYS, ListenerBody),
    (b'{"body":1,%s}' % KEYS, cloudflare.PushBody),
    (b'{"body":1,%s,"\\u0061":1}' % KEYS, cloudflare.PushBody),
    (b'{"body":{%s},"delay_seconds":"x"}' % KEYS, cloudflare.PushBody),
]


@pytest.mark.parametrize(("raw", "wanted"), MANY, ids=[raw[-30:].decode() for raw, _ in MANY])
def test_many_keys_cost_what_parsing_them_costs(raw: bytes, wanted: Any) -> None:
    began_s = time.thread_time()
    with_values = json.loads(b"{%s}" % KEYS, object_pairs_hook=Pairs)
    parsed_s = time.thread_time() - began_s
    began_s = time.thread_time()
    with suppress(InvalidRequest, NotJson):
        bodies.decode(raw, wanted)
    assert len(with_values) == 60_000
    assert time.thread_time() - began_s < 10 * parsed_s


def test_a_long_body_of_unknown_keys_is_read_unless_one_could_be_one_of_ours() -> None:
    long = b'{"body":1,%s}' % b",".join(b'"k%d":"a:b"' % number for number in range(150_000))
    assert bytes(bodies.decode(long, cloudflare.PushBody).body) == b"1"
    with pytest.raises(InvalidRequest, match="unknown or repeated keys"):
        bodies.decode(long[:-1] + b',"\\u0062ody":1}', cloudflare.PushBody)
    value = b"a:b" * (1 << 20)
    spelled = b'{"b\\u006fdy":"%s"}' % value
    with pytest.raises(InvalidRequest, match="spelled with escapes"):
        bodies.decode(spelled, cloudflare.PushBody)
    assert bodies.decode(b'{"body": "\\u00e9%s", "a": 1}' % value, cloudflare.PushBody)


def test_a_refusal_shows_a_long_value_shortened() -> None:
    for value in (b'"%s"' % (b"x" * 5_000_000), b"[%s1]" % (b"1," * 500)):
        with pytest.raises(InvalidRequest) as refused:
            bodies.decode(b'{"body":1,"delay_seconds":%s}' % value, cloudflare.PushBody)
        assert refused.value.field == "delay_seconds"
        assert refused.value.reason.endswith("...") and len(refused.value.reason) < 150


def test_no_refusal_shows_a_regular_expression(tmp_path: Path) -> None:
    """Every pattern in a request type of any route is described in words."""
    patterns = 0
    for _, route in tables(tmp_path):
        if route.body is None or route.body is bytes:
            continue
        words = bodies._words(route.body)
        patterns += len(words)
        assert all(text != "None" for text in words.values()), (route.path, words)
    assert patterns >= 3
    with pytest.raises(InvalidRequest, match="queue_name: must have 1 to 63 lower-case letters"):
        bodies.decode(b'{"queue_name":"A"}', cloudflare.CloudflareQueueBody)


def test_every_route_has_an_example_that_it_understands_and_a_line_of_curl(tmp_path: Path) -> None:
    seen = 0
    for site, route in tables(tmp_path):
        if not isinstance(documents := getattr(site, "_documents", None), Documents):
            continue
        shown = documents.example(route)
        words = shlex.split(documents.curl(route))
        assert "{" not in next(word for word in words if word.startswith("$"))
        if route.body not in (None, bytes):
            seen += 1
            msgspec.json.decode(msgspec.json.encode(shown), type=route.body)
            assert json.loads(words[words.index("-d") + 1]) == shown
        if (site.name, route.operation) == ("discue", "create_listener"):
            assert shown.keys() == {"name", "notify_url", "liveness_url"}
    assert seen > 40


class Bounded(Struct):
    age: Annotated[float, Meta(ge=1, le=5)] | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1, max_length=3)] | UnsetType = UNSET
    ids: Annotated[list[int], Meta(min_length=2, max_length=2)] | UnsetType = UNSET
    on: bool | UnsetType = UNSET
    map: dict[str, str] | UnsetType | None = UNSET


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"age": 9}', "age: must be at most 5, not 9"),
        ('{"age": 0}', "age: must be at least 1, not 0"),
        ('{"age": "x"}', 'age: must be a whole number, not "x"'),
        ('{"name": ""}', 'name: must have at least 1 character, not ""'),
        ('{"name": "abcd"}', 'name: must have at most 3 characters, not "abcd"'),
        ('{"ids": [1]}', "ids: must have at least 2 items, not [1]"),
        ('{"ids": [1, true]}', "ids[1]: must be a whole number, not true"),
        ('{"on": 1}', "on: must be true or false, not 1"),
        ('{"map": 1}', "map: must be an object or null, not 1"),
        ("[]", "must be an object"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_words(body: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bodies.decode(body.encode(), Bounded)
    assert str(refused.value) == said
