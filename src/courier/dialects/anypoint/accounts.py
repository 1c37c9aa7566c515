"""The few account calls that clients need: tokens, and which ids they stand for."""

from msgspec import Struct

from courier.core.errors import Unauthenticated
from courier.core.types import Key, Tenant
from courier.dialects.anypoint import tokens
from courier.dialects.anypoint.names import environment_id, organization_id
from courier.dialects.anypoint.site import AnypointFamily, AnypointServices, AnypointSite
from courier.refusals import Refusal
from courier.web import Call, Request, Response, Route

_ORGANIZATION = "/api/organizations/{organizationId}"
_FAILURE = {"type": "string"}
TEXT = b"text/plain; charset=UTF-8"


class OrganizationResult(Struct):
    id: str
    name: str
    isRoot: bool = True


class AnypointUserResult(Struct):
    id: str
    username: str
    organization: OrganizationResult
    memberOfOrganizations: list[OrganizationResult]


class MeResult(Struct):
    user: AnypointUserResult


class EnvironmentResult(Struct):
    id: str
    organizationId: str
    name: str
    isProduction: bool
    type: str
    clientId: str


class EnvironmentsResult(Struct):
    data: list[EnvironmentResult]
    total: int


class AccountsSite(AnypointSite):
    """The site under /accounts."""

    prefix = "/accounts"
    title = "Courier: Anypoint accounts"
    failure = _FAILURE
    failure_media = "text/plain"
    counted = False

    def __init__(self, services: AnypointServices) -> None:
        super().__init__(services, AccountRoutes(services).table())

    def refused(self, refused: Refusal, request: Request) -> Response:
        return Response(refused.message.encode(), refused.status, TEXT)

    def broken(self, id: str) -> Response:
        return Response(b"internal error", 500, TEXT)


class AccountRoutes(AnypointFamily):
    family = "accounts"

    def routes(self) -> list[Route]:
        services = self._services
        return [
            tokens.app_token(services, "/oauth2/token", with_client=True),
            tokens.connected_app_token(services, "/api/v2/oauth2/token"),
            tokens.user_token(services, "/login"),
            tokens.user_token(services, "/api/login", contract="log_in_by_api"),
            Route("GET", "/api/me", self.me, "any", "own", "Who the token is of", result=MeResult),
            Route("GET", _ORGANIZATION, self.organization, "any", "own", "Get an organization",
                  result=OrganizationResult),
            Route("GET", _ORGANIZATION + "/environments", self.environments, "any", "own",
                  "List the environments that the token reaches", result=EnvironmentsResult),
        ]  # fmt: skip

    def _own(self, call: Call) -> Tenant:
        assert call.key is not None
        own = self._records.get(Tenant, call.key.tenant)
        if own is None:
            raise Unauthenticated("unknown")
        return own

    def _siblings(self, own: Tenant) -> list[Tenant]:
        """All environments of an organization, oldest first."""
        tenants = self._records.scan(Tenant)
        return [tenant for tenant in tenants if tenant.organization == own.organization]

    def _organization(self, call: Call) -> OrganizationResult:
        own = self._own(call)
        oldest = (self._siblings(own))[0]
        return OrganizationResult(organization_id(own), oldest.name)

    async def me(self, call: Call) -> MeResult:
        assert call.key is not None
        organization = self._organization(call)
        name = call.key.name if call.key.kind == "user" else call.key.id
        return MeResult(AnypointUserResult(call.key.id, name, organization, [organization]))

    async def organization(self, call: Call) -> OrganizationResult:
        return self._organization(call)

    async def environments(self, call: Call) -> EnvironmentsResult:
        assert call.key is not None
        own = self._own(call)
        tenants = self._siblings(own) if call.key.kind == "user" else [own]
        rows = []
        for tenant in tenants:
            keys = self._records.scan(Key, tenant=tenant.id)
            app = next((key.id for key in keys if key.kind == "app"), "")
            rows.append(
                EnvironmentResult(
                    environment_id(tenant),
                    organization_id(tenant),
                    tenant.name,
                    True,
                    "production",
                    app,
                )
            )
        return EnvironmentsResult(rows, len(rows))
