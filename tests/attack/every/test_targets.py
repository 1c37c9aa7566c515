"""Paths, queries and credentials that are odd, on every route of every site."""

import re
from typing import Literal, get_origin

import pytest

from courier.core import keys
from tests.attack.every.aim import CHOSEN, Aim, aims_of
from tests.conformance.reach.watch import Watch
from tests.conformance.reach.world import Credential, Side, World

KEYED = aims_of(key=True)
each_aim = pytest.mark.parametrize("aim", KEYED, ids=str)
_PARAM = re.compile(r"{(\w+)}")
ODD = [
    *("%2F", "%2f..%2f..", "%00", "%2e%2e", "%2e%2e%2f", "%20", "%0A", "%0d%0a"),
    *("%0d%0aX-Injected:%20yes", "%ff", "%ed%a0%80", "%E2%82%AC", "%F0%9F%98%80", "%zz", "%", "'"),
    *("%22", "%3Cscript%3E", "'%20or%201=1--", "{queue_id}", "$id", "*", "null", "undefined", "0"),
    *("-1", "c0" + "0" * 30, "c0" + "f" * 31, "f" * 32, "C0" + "A" * 30, "A" * 21, "-" * 21),
    *("9" * 21, "a" * 10_000, ";jsessionid=1", "a;b", "a:b", "a@us-east-2", "a@", "@us-east-2"),
    *("_fb", "..", "."),
]
TAILS = ["%0A", "%00", "%20", "%2F", ".json", "%3F", "%23", ";x", "0"]
NO_NUMBER = [
    *("abc", "-1", "1.5", "1e3", "1e400", "9" * 5_000, "NaN", "%D9%A1", "%2B1", "%201", "1_0"),
    *("0x10", "true", "null", "[]", "%00", "1%00", "1%0A", "%ff"),
]
NONSENSE = [
    *("%", "%zz", "%f", "a=%ff", "a=%ed%a0%80", "a=%00", "a", "=", "&&&", "a=b;c", "a[]=b", "?a=1"),
    *("%25%32%35", "x" * 1_000, "%0d%0aX-Injected:%20yes", "a=b&" * 900),
]
CREDENTIALS = [
    *("", "Bearer", "Bearer ", "Bearer    ", "bearer=", "Basic dXNlcjpwYXNz", "Token abc"),
    *("Bearer a b", "Bearer \xff\xfe", "bearer\xff\xfe", "Bearer \xe2\x82\xac"),
    *("Bearer " + "a" * 50_000, "Bearer null", "Bearer ..", "Bearer ' or 1=1--", "Bearer %00"),
    *("Digest username=x", "\xff"),
]
# Alone it means nothing, and is passed over.
UNREAD = {("list_events", "startAfter")}


@each_aim
def test_an_odd_name_or_id_is_refused(world: World, side: Side, aim: Aim) -> None:
    """What looks like a path may lead to another route, never to an object."""
    watch = Watch(world)
    for param in _PARAM.findall(aim.route.path):
        free = (aim.route.operation, param) in CHOSEN or param in aim.site.loose
        for odd in aim.share(ODD):
            answer = aim.ask(world, side, target=aim.target(side, **{param: odd}))
            if free and aim.route.method == "PUT" and answer.status < 300:
                aim.ask(world, side, b"", target=aim.target(side, **{param: odd}), method="DELETE")
            elif not free and odd not in (".", ".."):
                aim.refused(answer, 400, 401, 403, 404, 405)
        if free:
            continue
        for tail in aim.share(TAILS):
            longer = side.params[aim.site.name][param] + tail
            answer = aim.ask(world, side, target=aim.target(side, **{param: longer}))
            aim.refused(answer, 400, 403, 404)
    if not any(operation == aim.route.operation for operation, _ in CHOSEN):
        assert watch.events(world.own) == []


@pytest.mark.parametrize("aim", [each for each in KEYED if each.route.query], ids=str)
def test_a_parameter_of_the_wrong_kind_is_refused_by_name(
    world: World, side: Side, aim: Aim
) -> None:
    watch = Watch(world)
    for number, parameter in enumerate(aim.route.query):
        if (aim.route.operation, parameter.name) in UNREAD:
            continue
        values = []
        if parameter.type is int:
            values = NO_NUMBER
        elif parameter.type is bool or get_origin(parameter.type) is Literal:
            values = ["nonsense", "%00", "%ff", "x" * 5_000]
        for value in aim.share(values, number):
            query = f"{parameter.name}={value}"
            answer = aim.ask(world, side, target=only(aim, side, parameter.name, query))
            assert parameter.name in aim.refused(answer, 400), query[:80]
    assert watch.events(world.own) == []


def only(aim: Aim, side: Side, name: str, query: str) -> str:
    """The target with this parameter as it says, and the others that are needed."""
    whole = aim.target(side, query)
    return re.sub(rf"(?<=[?&]){name}=[^&]*&(?=.*{name}=)", "", whole)


@each_aim
def test_a_query_that_makes_no_sense_does_no_harm(world: World, side: Side, aim: Aim) -> None:
    """`ask` sees to it: no bug of ours, no header of the caller's."""
    if aim.route.method == "GET":
        for query in aim.share(NONSENSE):
            aim.ask(world, side, target=aim.target(side, query))
        many = "a=b&" * 5_000
        answer = aim.ask(world, side, target=aim.target(side, many))
        if aim.route.query:
            aim.refused(answer, 400)


@each_aim
def test_an_odd_credential_opens_nothing(world: World, side: Side, aim: Aim) -> None:
    good = aim.headers(world)
    header = next(iter(good))
    secret = good[header].removeprefix("Bearer ")
    almost = [secret[:-1], secret + "a", secret.upper(), secret.lower(), secret + "%00"]
    spelled = [good[header].replace(secret, each) for each in almost if each != secret]
    watch = Watch(world)
    for credential in (*aim.share(CREDENTIALS), *spelled):
        if header == "X-API-KEY" and credential == "":
            continue
        answer = aim.ask(world, side, headers={header: credential})
        said = aim.refused(answer, 400, 401, 403)
        assert secret not in said
    stray = aim.ask(
        world, side, headers={header: ""}, target=aim.target(side, f"access_token={secret}")
    )
    aim.refused(stray, 400, 401, 403)
    assert watch.events(world.own) == []


@pytest.fixture(scope="module")
def without(world: World) -> dict[str, Credential]:
    """For each scope a key that holds every other."""
    scopes = [scope for scope in keys.SCOPES if scope not in ("admin", "metrics")]
    return {scope: world.credential([each for each in scopes if each != scope]) for scope in scopes}


@pytest.mark.parametrize(
    "aim", [each for each in KEYED if each.route.scope not in ("any", "admin", "metrics")], ids=str
)
def test_a_route_needs_its_scope_and_no_other_does(
    world: World, side: Side, without: dict[str, Credential], aim: Aim
) -> None:
    key = without[str(aim.route.scope)]
    watch = Watch(world)
    if aim.route.family == "locks":  # the vendor takes another right as well
        return
    aim.refused(aim.ask(world, side, headers=key.headers(aim.site.name)), 403)
    assert watch.events(key) == []
    if aim.route.method == "GET":
        alone = world.credential([str(aim.route.scope)])
        answer = aim.ask(world, side, headers=alone.headers(aim.site.name))
        assert answer.status in (aim.route.status, *aim.route.others), answer


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BY_PATH: dict[str, list[Aim]] = {}
for _aim in aims_of():
    BY_PATH.setdefault(f"{_aim.site.name} {_aim.site.prefix}{_aim.route.path}", []).append(_aim)


@pytest.mark.parametrize("path", BY_PATH)
def test_another_method_is_told_which_there_are(world: World, side: Side, path: str) -> None:
    aims = BY_PATH[path]
    known = {aim.route.method for aim in aims}
    target = aims[0].target(side)
    for method in METHODS:
        if method not in known:
            answer = aims[0].ask(world, side, b"", target=target, method=method)
            assert method in aims[0].refused(answer, 405)
            assert answer.headers["allow"] == ", ".join(sorted(known))
    if not target.endswith("/"):
        farther = target.partition("?")[0] + "/nowhere/at/all"
        aims[0].refused(aims[0].ask(world, side, b"", target=farther, method="GET"), 404)
