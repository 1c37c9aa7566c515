"""API clients: Discue's word for organizations. Only the operator makes and renames them."""

from msgspec import Struct

from courier import ids
from courier.core.errors import Conflict, Forbidden, InvalidRequest, NotFound
from courier.core.types import OPERATOR, Tenant
from courier.dialects.discue import names
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import Named
from courier.web import Call, Route

_CLIENTS = "/api_clients"
_CLIENT = _CLIENTS + "/{api_client_id}"
# Names that mean something else where the operator speaks of tenants.
_FIRST, _RESERVED = "default", "operator"


class ApiClientBody(Named):
    """An `id` is ignored: the path has it."""


class ClientMember(Struct):
    id: str
    name: str
    alias: str


class ClientAnswer(Struct):
    """`api_key`, when it is new: a key that may do everything there. It is not shown again."""

    api_client: ClientMember
    api_key: str = ""


class ApiClientRoutes(DiscueFamily):
    family = "api_clients"

    def routes(self) -> list[Route]:
        return [
            Route("POST", _CLIENTS, self.create_client, "admin", "whole", "Create an API client",
                  body=ApiClientBody, body_optional=True, result=ClientAnswer),
            Route("PUT", _CLIENTS, self.create_client, "admin", "whole", "Create an API client",
                  body=ApiClientBody, body_optional=True, described=False),
            Route("PUT", _CLIENT, self.rename_client, "admin", "whole", "Rename an API client",
                  body=ApiClientBody, body_optional=True, result=ClientAnswer),
        ]  # fmt: skip

    async def create_client(self, call: Call) -> Success:
        _operator(call)
        name = _free(call.body.chosen() or f"client-{ids.new_id()[-12:]}")
        tenant, made = await self._services.tenants.create_tenant(name, actor=call.actor)
        members = {"api_client": _member(tenant), "api_key": made["discue"]["api_key"]}
        return Success(members, _path(tenant))

    async def rename_client(self, call: Call) -> Success:
        _operator(call)
        id = call.params["api_client_id"]
        tenant = self._records.get(Tenant, names.read(id))
        if tenant is None:
            raise NotFound("API client", id)
        name = call.body.chosen()
        if name is not None and name != tenant.name:
            if tenant.name == _FIRST:
                raise InvalidRequest("name", f"the client '{_FIRST}' cannot be renamed")
            tenant = await self._services.tenants.rename_tenant(
                tenant, _free(name), actor=call.actor
            )
        return Success({"api_client": _member(tenant)}, _path(tenant))


def _operator(call: Call) -> None:
    if call.tenant != OPERATOR:
        raise Forbidden("admin")


def _free(name: str) -> str:
    if name == _RESERVED:
        raise Conflict("tenant", name)
    return name


def _member(tenant: Tenant) -> ClientMember:
    return ClientMember(names.shown(tenant.id), tenant.name, tenant.name)


def _path(tenant: Tenant) -> str:
    return f"{_CLIENTS}/{names.shown(tenant.id)}"
