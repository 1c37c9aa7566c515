"""API keys. Some answers differ with how a key's maker writes its scopes; see `scopes.py`."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from courier.core import keys
from courier.core.slices import Slices
from courier.core.types import Grant, Key, KeyUse, Tenant
from courier.credentials import DialectAccess
from courier.dialects.discue import names, scopes
from courier.dialects.discue.scopes import Scopes, ScopesBody
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import PAGING, Named, page
from courier.web import Call, Route

PREFIX = "/v1"
_KEYS = "/api_keys"
_KEY = _KEYS + "/{api_key_id}"
Status = Literal["enabled", "disabled"]

_encode = msgspec.json.Encoder().encode


class DiscueAccess(DialectAccess):
    name = "discue"

    def __init__(self, url: str) -> None:
        self.base_url = url + PREFIX

    def first_keys(self, tenant: Tenant) -> tuple[list[Key], dict[str, Any]]:
        """A key that may do everything, other keys included."""
        key, secret = keys.new_key(
            tenant=tenant.id,
            name="first-discue",
            grants=keys.grants(["write", *keys.KEYS, "usage:read"]),
            now_ms=tenant.created_ms,
        )
        return [key], {"api_key": secret}

    def example(self, part: dict[str, Any]) -> tuple[str, str]:
        return (
            "Discue",
            f"curl {self.base_url}/queues -H 'X-API-KEY: {part.get('api_key', 'KEY')}' \\\n"
            "  -H 'Content-Type: application/json' -d '{\"name\":\"greetings\"}'",
        )

    def example_of(self, key: Key, secret: str) -> tuple[str, str] | None:
        if key.kind == "connected_app":
            return None
        return "Discue", f"curl {self.base_url}/queues -H 'X-API-KEY: {secret}'"


class ApiKeyBody(Named):
    status: Status | UnsetType = UNSET
    scopes: Scopes | UnsetType = UNSET

    @property
    def as_object(self) -> bool | None:
        """Which spelling the request is in, if that can be told."""
        if self.alias is not UNSET or isinstance(self.scopes, ScopesBody):
            return True
        return None if self.scopes is UNSET else False


class KeyMember(Struct):
    id: str
    name: str
    alias: str
    key: str
    status: Status
    scopes: Any
    created_at: int
    updated_at: int
    last_used_at: int | None


class KeyAnswer(Struct):
    api_key: KeyMember | str


class KeysAnswer(Struct):
    api_keys: list[KeyMember]


class KeyRoutes(DiscueFamily):
    family = "api_keys"

    def routes(self) -> list[Route]:
        return [
            Route("GET", _KEYS, self.list_keys, "keys:read", "whole", "List API keys",
                  result=KeysAnswer,
                  query=PAGING),
            Route("POST", _KEYS, self.create_key, "keys:write", "whole", "Create an API key",
                  body=ApiKeyBody, body_optional=True, result=KeyAnswer),
            Route("PUT", _KEYS, self.create_key, "keys:write", "whole", "Create an API key",
                  body=ApiKeyBody,
                  body_optional=True, described=False),
            Route("GET", _KEY, self.get_key, "keys:read", "whole", "Get an API key",
                  result=KeyAnswer),
            Route("PUT", _KEY, self.update_key, "keys:write", "whole", "Change an API key",
                  body=ApiKeyBody,
                  body_optional=True, result=KeyAnswer),
            Route("DELETE", _KEY, self.delete_key, "keys:write", "whole", "Delete an API key"),
        ]  # fmt: skip

    async def list_keys(self, call: Call) -> Success:
        found, links = page(self._admin.tokens(call.tenant), call.request, _KEYS)
        members = []
        slices = Slices()
        for key in found:
            await slices.turn()
            # Keys may have very many scopes, so each is written on its own.
            members.append(Raw(_encode(self._member(key))))
        links += [(key.name, names.shown(key.id), _path(key)) for key in found]
        return Success({"api_keys": members}, _KEYS, links)

    async def create_key(self, call: Call) -> Success:
        body: ApiKeyBody = call.body
        wanted = scopes.USUAL if body.scopes is UNSET else scopes.read(body.scopes)
        key, secret = keys.new_key(
            tenant=call.tenant,
            name=body.chosen() or "",
            grants=self._granted(call, wanted),
            now_ms=self._clock.now_ms(),
        )
        key = replace(
            key,
            name=key.name or f"key-{names.shown(key.id)[:7]}",
            enabled=body.status != "disabled",
            labels=scopes.labels(wanted, as_object=bool(body.as_object)),
        )
        await self._admin.add_token(key, actor=call.actor)
        if not scopes.as_object(key):
            return Success({"api_key": secret, "id": names.shown(key.id)}, _path(key))
        member = self._member(key)
        member.key = secret
        return Success({"api_key": member}, _path(key))

    def _granted(self, call: Call, wanted: list[scopes.KeyScope]) -> tuple[Grant, ...]:
        """Raises Forbidden for more than the caller's own key may do."""
        assert call.key is not None
        grants = scopes.grants(wanted)
        keys.check_held(call.key, grants)
        return grants

    async def get_key(self, call: Call) -> Success:
        key = self._admin.token(call.tenant, names.read(call.params["api_key_id"]))
        return Success({"api_key": self._member(key)}, _path(key))

    async def update_key(self, call: Call) -> Success:
        body: ApiKeyBody = call.body
        name = body.chosen()
        wanted = None if body.scopes is UNSET else scopes.read(body.scopes)
        grants = None if wanted is None else self._granted(call, wanted)

        def edit(key: Key) -> Key:
            as_object = scopes.as_object(key) if body.as_object is None else body.as_object
            known = scopes.of_key(key) if wanted is None else wanted
            return replace(
                key,
                name=name or key.name,
                enabled=key.enabled if body.status is UNSET else body.status == "enabled",
                grants=key.grants if grants is None else grants,
                labels=scopes.labels(known, as_object=as_object),
            )

        id = names.read(call.params["api_key_id"])
        key = await self._admin.update_token(call.tenant, id, edit, actor=call.actor)
        return Success({"api_key": self._member(key)}, _path(key))

    async def delete_key(self, call: Call) -> Success:
        key = self._admin.token(call.tenant, names.read(call.params["api_key_id"]))
        await self._admin.delete_key(call.tenant, key.id, actor=call.actor)
        return Success({}, _KEYS)

    def _member(self, key: Key) -> KeyMember:
        use = self._records.get(KeyUse, key.id)
        return KeyMember(
            id=names.shown(key.id),
            name=key.name,
            alias=key.name,
            key=key.hint,
            status="enabled" if key.enabled else "disabled",
            scopes=scopes.shown(key),
            created_at=key.created_ms,
            updated_at=key.modified_ms or key.created_ms,
            last_used_at=use.at_ms if use else None,
        )


def _path(key: Key) -> str:
    return f"{_KEYS}/{names.shown(key.id)}"
