"""What the operator does: tenants, keys, and a firm hand on queues."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from courier.core import keys
from courier.core.broker import Redriven
from courier.core.errors import Conflict, InvalidRequest
from courier.core.keys import OVERLAP_MS, OVERLAP_MS_MAX
from courier.core.slices import Slices
from courier.core.types import OPERATOR, SECOND_MS, Exchange, Key, Queue, Tenant
from courier.credentials import FIRST_TENANT, OPERATOR_NAME
from courier.ops.services import OpsFamily
from courier.web import Call, Route

_NAME = Annotated[
    str,
    Meta(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="1 to 63 letters, digits, dots, underscores and hyphens, "
        "and begin with a letter or digit",
    ),
]
_TENANT = "/courier/v1/tenants/{tenant}"
_QUEUE = _TENANT + "/queues/{queue}"


class TenantBody(Struct):
    """`beside` names a tenant of the organization that the new one is to belong to."""

    name: _NAME
    beside: _NAME | UnsetType = UNSET


class KeyBody(Struct):
    """A `token` is shown with every request; a `connected_app` trades id and secret for one."""

    name: _NAME
    scopes: Annotated[list[str], Meta(min_length=1, max_length=20)]
    targets: Annotated[list[str], Meta(max_length=1_000)] | UnsetType = UNSET
    expires_in_seconds: Annotated[int, Meta(ge=1, le=3_155_760_000)] | UnsetType = UNSET
    kind: Literal["token", "connected_app"] | UnsetType = UNSET


class RotateBody(Struct):
    """The old secret works for `overlap_ms` more, a day unless given; 0 ends it at once."""

    overlap_ms: Annotated[int, Meta(ge=0, le=OVERLAP_MS_MAX)] | UnsetType = UNSET


class RedriveBody(Struct):
    messages: Annotated[list[str], Meta(max_length=10_000)] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET


class FrozenBody(Struct):
    frozen: bool


class OperatorRoutes(OpsFamily):
    family = "tenants"

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/courier/v1/tenants", self.list_tenants, "admin", "whole",
                  "List tenants"),
            Route("POST", "/courier/v1/tenants", self.create_tenant, "admin", "whole",
                  "Create a tenant",
                  body=TenantBody),
            Route("DELETE", _TENANT, self.delete_tenant, "admin", "whole", "Delete a tenant"),
            Route("GET", _TENANT + "/keys", self.list_keys, "admin", "whole", "List keys"),
            Route("POST", _TENANT + "/keys", self.create_key, "admin", "whole", "Create a key",
                  body=KeyBody),
            Route("DELETE", _TENANT + "/keys/{key}", self.delete_key, "admin", "whole",
                  "Delete a key"),
            Route("POST", _TENANT + "/keys/{key}/rotate", self.rotate_key, "admin", "whole",
                  "Give a key another secret; the old one works for a while",
                  body=RotateBody, body_optional=True),
            Route("POST", _QUEUE + "/redrive", self.redrive, "queues:write", "target",
                  "Send dead letters back", body=RedriveBody, body_optional=True),
            Route("PUT", _QUEUE + "/frozen", self.freeze, "queues:write", "target",
                  "Refuse or accept new messages", body=FrozenBody),
        ]  # fmt: skip

    async def list_tenants(self, _: Call) -> dict[str, Any]:
        return {"tenants": [_tenant(each) for each in self._records.scan(Tenant)]}

    async def create_tenant(self, call: Call) -> dict[str, Any]:
        body: TenantBody = call.body
        if body.name == OPERATOR_NAME:
            raise Conflict("tenant", body.name)
        beside = "" if body.beside is UNSET else body.beside
        tenant, made = await self._services.credentials.create_tenant(
            body.name, beside=beside, actor=call.actor
        )
        return {"tenant": _tenant(tenant), "credentials": made}

    async def delete_tenant(self, call: Call) -> dict[str, Any]:
        name = call.params["tenant"]
        if name == FIRST_TENANT:
            raise InvalidRequest("tenant", f"the tenant '{name}' cannot be deleted")
        await self._admin.delete_tenant(name, actor=call.actor)
        await self._services.credentials.forget(name)
        return {}

    def _tenant_id(self, call: Call) -> str:
        name = call.params["tenant"]
        return OPERATOR if name == OPERATOR_NAME else self._tenant(call)

    async def list_keys(self, call: Call) -> dict[str, Any]:
        rows = []
        slices = Slices()
        for key in self._records.scan(Key, tenant=self._tenant_id(call)):
            await slices.turn()
            rows.append(self._key(key))
        return {"keys": rows}

    async def create_key(self, call: Call) -> dict[str, Any]:
        body: KeyBody = call.body
        tenant = self._tenant_id(call)
        kind = "token" if body.kind is UNSET else body.kind
        if tenant == OPERATOR and kind != "token":
            raise InvalidRequest("kind", "the operator has tokens only")
        targets = [] if body.targets is UNSET else body.targets
        reached = [self._target(tenant, name) for name in targets]
        expires_s = None if body.expires_in_seconds is UNSET else body.expires_in_seconds
        key, secret = await self._admin.create_key(
            tenant=tenant,
            name=body.name,
            grants=keys.grants(body.scopes, tuple(reached)),
            expires_in_ms=None if expires_s is None else expires_s * SECOND_MS,
            kind=kind,
            actor=call.actor,
        )
        return {"key": self._key(key), "token": secret}

    def _target(self, tenant: str, name: str) -> str:
        """The id of the queue or exchange of that name."""
        exchange = self._records.named(Exchange, tenant=tenant, name=name)
        return exchange.id if exchange else self._admin.queue_named(tenant, name).id

    async def delete_key(self, call: Call) -> dict[str, Any]:
        tenant = self._tenant_id(call)
        await self._admin.delete_key(tenant, call.params["key"], actor=call.actor)
        return {}

    async def rotate_key(self, call: Call) -> dict[str, Any]:
        """The tenant's file of credentials gets the new secret, if it has the old one."""
        body: RotateBody = call.body
        key, secret = await self._admin.rotation.rotate(
            self._tenant_id(call),
            call.params["key"],
            overlap_ms=OVERLAP_MS if body.overlap_ms is UNSET else body.overlap_ms,
            finish=self._services.credentials.finished,
            actor=call.actor,
        )
        await self._services.credentials.renew(call.params["tenant"], key.id, secret)
        return {"key": self._key(key), "token": secret}

    def _key(self, key: Key) -> dict[str, Any]:
        targets = [target for grant in key.grants for target in grant.targets]
        named = [
            self._records.get(Queue, id) or self._records.get(Exchange, id)
            for id in dict.fromkeys(targets)
        ]
        return {
            "id": key.id,
            "name": key.name,
            "kind": key.kind,
            "hint": key.hint,
            "scopes": [grant.scope for grant in key.grants],
            "targets": [each.name for each in named if each],
            "enabled": key.enabled,
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
            "old_secrets_until_ms": [each.until_ms for each in key.retired],
        }

    async def redrive(self, call: Call) -> Redriven:
        body: RedriveBody = call.body
        return await self._broker.redrive(
            self._queue(call),
            None if body.messages is UNSET else body.messages,
            reach=call.reach,
            actor=call.actor,
            dry_run=body.dry_run is True,
        )

    async def freeze(self, call: Call) -> dict[str, bool]:
        queue = self._queue(call)
        frozen: bool = call.body.frozen
        await self._admin.update_queue(
            queue.tenant,
            queue.id,
            lambda current: replace(current, frozen=frozen),
            reach=call.reach,
            actor=call.actor,
        )
        return {"frozen": frozen}


def _tenant(tenant: Tenant) -> dict[str, Any]:
    return {"id": tenant.id, "name": tenant.name, "created_ms": tenant.created_ms}
