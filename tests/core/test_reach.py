"""Which grants pass, and that a route cannot be without a decision."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from courier.core import keys
from courier.core.errors import Forbidden
from courier.core.types import Actor, Grant, Key
from courier.web import Call, Head, Request, Route, Undecided

ALPHA, BRAVO = "c0" + "a" * 30, "c0" + "b" * 30


def key(*grants: Grant) -> Key:
    return keys.new_key(tenant="t", name="k", grants=grants, now_ms=0)[0]


LIMITED = key(Grant("queues:read", (ALPHA,)), Grant("queues:write", (ALPHA,)))
WHOLE = key(Grant("queues:read"), Grant("queues:write"))


@pytest.mark.parametrize(
    ("targets", "passes"), [((), False), (("",), False), ((BRAVO,), False), ((ALPHA,), True),
                            ((BRAVO, ALPHA), True)]
)  # fmt: skip
def test_a_limited_grant_passes_only_for_a_target_that_was_named(
    targets: tuple[str, ...], passes: bool
) -> None:
    keys.require(WHOLE, "queues:read", *targets)
    if passes:
        keys.require(LIMITED, "queues:read", *targets)
        return
    with pytest.raises(Forbidden) as refused:
        keys.require(LIMITED, "queues:read", *targets)
    assert refused.value.limited and BRAVO not in str(refused.value)


def test_grants_of_one_scope_add_up() -> None:
    both = key(Grant("queues:read", (ALPHA,)), Grant("queues:read", (BRAVO,)))
    assert ALPHA in keys.reach(both, "queues:read") and BRAVO in keys.reach(both, "queues:read")
    assert "other" not in keys.reach(both, "queues:read")
    assert "other" in keys.reach(
        key(Grant("queues:read", (ALPHA,)), Grant("queues:read")), "queues:read"
    )
    either = key(Grant("queues:read", (ALPHA,)), Grant("queues:write"))
    assert BRAVO in keys.reach(either, "queues:read", "queues:write")


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (Grant("queues:read", (ALPHA,)), True),
        (Grant("queues:read", (ALPHA, BRAVO)), False),
        (Grant("queues:read"), False),
        (Grant("messages:read", (ALPHA,)), False),
    ],
)
def test_a_limited_key_hands_out_no_more_than_it_has(wanted: Grant, held: bool) -> None:
    # Even if it may make keys: those of the operator's making before they could not be both.
    maker = replace(LIMITED, grants=(*LIMITED.grants, Grant("keys:write")))
    assert keys.may_give(maker, [wanted]) is held
    assert keys.may_give(key(Grant("keys:write")), [wanted])
    if not held:
        with pytest.raises(Forbidden):
            keys.check_held(maker, [wanted])


async def handler(_: Call) -> None:
    raise AssertionError("not called")


def route(scope: Any, reach: Any, path: str = "/queues/{queue}") -> Route:
    return Route("GET", path, handler, scope, reach, "summary")


@pytest.mark.parametrize(
    ("scope", "reach"),
    [(None, "whole"), (None, "own"), ("any", "public"), ("any", "target"), ("queues:read", "own"),
     ("queues:read", "public"), ("queues:read", "something")],
)  # fmt: skip
def test_a_route_with_a_decision_that_does_not_fit_is_not_made(scope: Any, reach: Any) -> None:
    with pytest.raises(ValueError, match="reach"):
        route(scope, reach)


def test_a_route_without_a_decision_is_not_made() -> None:
    with pytest.raises(TypeError):
        Route("GET", "/queues", handler, "queues:read", summary="List")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="names no target"):
        route("queues:read", "target", "/queues")


class NobodyAsks:
    """The caller of a request that is not sent."""

    gone = False
    on_gone: Callable[[], None] | None = None


class Unsent(Request):
    async def read(self, limit: int) -> bytes:
        return b""


def call(by: Key) -> Call:
    return Call(Unsent(Head("GET", b"/queues", b"", {}), NobodyAsks(), ""), Actor("key"), by, "t")


UNDECIDED: list[Callable[[Call], object]] = [lambda call: call.actor, lambda call: call.reach]


@pytest.mark.parametrize("use", UNDECIDED, ids=["actor", "reach"])
def test_nobody_acts_before_the_scope_was_checked(use: Callable[[Call], object]) -> None:
    with pytest.raises(Undecided):
        use(call(WHOLE))


@pytest.mark.parametrize("reach", ["target", "listed", "named"])
def test_nobody_acts_before_the_target_was_named(reach: Any) -> None:
    asked = call(WHOLE)
    asked.hold(route("queues:read", reach))
    with pytest.raises(Undecided):
        _ = asked.actor
    asked.require(BRAVO)
    assert asked.actor == Actor("key")


def test_what_is_about_the_whole_tenant_takes_a_key_without_limits() -> None:
    whole = route("queues:write", "whole")
    asked = call(WHOLE)
    asked.hold(whole)
    assert asked.actor
    with pytest.raises(Forbidden):
        call(LIMITED).hold(whole)
    with pytest.raises(Forbidden):
        call(replace(WHOLE, grants=())).hold(whole)
