"""What an API key may do, in Discue's two spellings and in the core's grants.

The documentation writes scopes as a list of {resource, access, targets}; newer clients write an
object whose keys are the resources. A key remembers its scopes as they were given.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from courier.core.errors import InvalidRequest
from courier.core.types import Grant, Key, Scope
from courier.dialects.discue import names

TARGETS_MAX = 1_000
EVERYTHING = "*"
Access = Literal["read", "write"]
Resource = Literal[
    "api_clients",
    "api_keys",
    "channels",
    "domains",
    "events",
    "listeners",
    "messages",
    "queues",
    "schemas",
    "stats",
    "subscriptions",
    "topics",
]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
Targets = Literal["*"] | Annotated[list[str], Meta(max_length=TARGETS_MAX)]

PROTECTED: tuple[Resource, ...] = ("api_clients", "api_keys", "subscriptions")
# The core's scopes for each: those that reading takes, and those that writing adds.
_SCOPES: dict[Resource, tuple[tuple[Scope, ...], tuple[Scope, ...]]] = {
    "api_clients": ((), ("admin",)),
    "api_keys": (("keys:read",), ("keys:write",)),
    "channels": ((), ()),
    "domains": (("domains:read",), ("domains:write",)),
    "events": (("events:read",), ()),
    "listeners": (("listeners:read",), ("listeners:write",)),
    "messages": (("messages:read",), ("messages:publish", "messages:consume")),
    "queues": (("queues:read",), ("queues:write",)),
    "schemas": (("schemas:read",), ()),
    "stats": (("usage:read",), ()),
    "subscriptions": ((), ()),
    "topics": ((), ()),
}
_TARGET = re.compile(r"[A-Za-z0-9_-]{21}", re.ASCII)


class AccessBody(Struct):
    access: Access | UnsetType = UNSET
    targets: Targets | UnsetType | None = UNSET


class ScopeBody(AccessBody, kw_only=True):
    resource: Resource


class ScopesBody(Struct, forbid_unknown_fields=True):
    api_clients: AccessBody | UnsetType = UNSET
    api_keys: AccessBody | UnsetType = UNSET
    channels: AccessBody | UnsetType = UNSET
    domains: AccessBody | UnsetType = UNSET
    events: AccessBody | UnsetType = UNSET
    listeners: AccessBody | UnsetType = UNSET
    messages: AccessBody | UnsetType = UNSET
    queues: AccessBody | UnsetType = UNSET
    schemas: AccessBody | UnsetType = UNSET
    stats: AccessBody | UnsetType = UNSET
    subscriptions: AccessBody | UnsetType = UNSET
    topics: AccessBody | UnsetType = UNSET


Scopes = list[ScopeBody] | ScopesBody


class KeyScope(Struct, frozen=True):
    """One scope as it was given, with whatever was left out filled in."""

    resource: Resource
    access: Access
    targets: str | list[str]


# What a key gets whose maker asks for nothing in particular.
USUAL = [
    KeyScope(resource, "write", [EVERYTHING]) for resource in RESOURCES if resource not in PROTECTED
]


def read(given: Scopes) -> list[KeyScope]:
    """Raises InvalidRequest for what no key can be given."""
    if isinstance(given, ScopesBody):
        return [
            _filled(resource, body, f"scopes.{resource}")
            for resource in RESOURCES
            if (body := getattr(given, resource)) is not UNSET
        ]
    found: dict[str, KeyScope] = {}
    for number, body in enumerate(given):
        if body.resource in found:
            raise InvalidRequest(f"scopes[{number}].resource", f"'{body.resource}' is given twice")
        found[body.resource] = _filled(body.resource, body, f"scopes[{number}]")
    return list(found.values())


def _filled(resource: Resource, body: AccessBody, place: str) -> KeyScope:
    if resource in PROTECTED:
        raise InvalidRequest(place, f"'{resource}' is protected, no key can be given it here")
    access = "write" if body.access is UNSET else body.access
    targets = body.targets or [EVERYTHING]
    if isinstance(targets, list) and targets != [EVERYTHING]:
        for target in targets:
            if not _TARGET.fullmatch(target):
                raise InvalidRequest(f"{place}.targets", f"'{target[:40]}' is neither * nor an id")
    return KeyScope(resource, access, targets)


def grants(scopes: Sequence[KeyScope]) -> tuple[Grant, ...]:
    """The same in the core's words. Channels and topics are words only."""
    found = []
    for scope in scopes:
        targets: tuple[str, ...] = ()
        if isinstance(scope.targets, list) and scope.targets != [EVERYTHING]:
            # One that reads as no id of ours stays what it is: the target of nothing.
            targets = tuple(names.read(target) or target for target in scope.targets)
        reading, writing = _SCOPES[scope.resource]
        held = (*reading, *writing) if scope.access == "write" else reading
        found += [Grant(each, targets) for each in held]
    return tuple(found)


def labels(scopes: Sequence[KeyScope], *, as_object: bool) -> dict[str, Any]:
    """What a key remembers."""
    return {"scopes": msgspec.to_builtins(scopes), "as_object": as_object}


def of_key(key: Key) -> list[KeyScope]:
    """As they were given, or what comes closest to a key that was made elsewhere."""
    if "scopes" in key.labels:
        return msgspec.convert(key.labels["scopes"], list[KeyScope])
    found = []
    for resource, (reading, writing) in _SCOPES.items():
        held = [grant for grant in key.grants if grant.scope in (*reading, *writing)]
        if held:
            writes = any(grant.scope in writing for grant in held)
            targets = [EVERYTHING]
            if all(grant.targets for grant in held):
                ids = dict.fromkeys(target for grant in held for target in grant.targets)
                targets = [names.shown(id) for id in ids]
            found.append(KeyScope(resource, "write" if writes else "read", targets))
    return found


def as_object(key: Key) -> bool:
    """Whether the key's maker writes scopes as an object."""
    return bool(key.labels.get("as_object"))


def shown(key: Key) -> list[dict[str, Any]] | dict[str, dict[str, Any]]:
    scopes = of_key(key)
    if not as_object(key):
        return [msgspec.to_builtins(scope) for scope in scopes]
    return {
        scope.resource: {
            "access": scope.access,
            "targets": [EVERYTHING] if scope.targets == EVERYTHING else scope.targets,
        }
        for scope in scopes
    }
