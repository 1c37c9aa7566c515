"""Admin: client apps and regions. And the first credentials of an organization."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

from courier.core import keys
from courier.core.errors import Forbidden
from courier.core.sealed import Sealer, field_place, open_text, seal_text
from courier.core.types import Key, Tenant
from courier.credentials import DialectAccess
from courier.dialects.anypoint.destinations import ENVIRONMENT
from courier.dialects.anypoint.names import REGIONS, environment_id, organization_id
from courier.dialects.anypoint.site import AnypointFamily
from courier.web import Call, Route

# An app may publish to and consume from everything in its environment.
APP_SCOPES = ["messages:publish", "messages:consume"]
_CLIENT = "/v1" + ENVIRONMENT + "/clients/{clientId}"


class ClientBody(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=255)]


class ClientResult(Struct):
    name: str
    clientId: str
    clientSecret: str


class RegionResult(Struct):
    id: str
    regionId: str
    name: str
    type: str
    serviceUrl: str
    fallbackRegion: str | None


def sealed(key: Key, secret: str, sealer: Sealer) -> Key:
    """The app with its secret in a form that its owner can be shown again."""
    return replace(key, sealed=seal_text(secret.encode(), sealer, _place(key)))


def _secret(key: Key, sealer: Sealer) -> str:
    return open_text(key.sealed, sealer, _place(key)).decode()


def _place(key: Key) -> bytes:
    return field_place(Key, "sealed", tenant=key.tenant, id=key.id)


class AnypointAccess(DialectAccess):
    name = "anypoint"

    def __init__(self, url: str, *, region: str, sealer: Sealer) -> None:
        self.base_url = url
        self._region = region
        self._sealer = sealer

    def first_keys(self, tenant: Tenant) -> tuple[list[Key], dict[str, Any]]:
        """A client app, a connected app and a user."""
        now_ms, user = tenant.created_ms, f"admin@{tenant.name}"
        everything = keys.grants(["write", *keys.KEYS, "usage:read"])
        app, app_secret = keys.new_key(
            tenant=tenant.id,
            name="first-app",
            grants=keys.grants(APP_SCOPES),
            now_ms=now_ms,
            kind="app",
        )
        connected, connected_secret = keys.new_key(
            tenant=tenant.id,
            name="first-connected-app",
            grants=everything,
            now_ms=now_ms,
            kind="connected_app",
        )
        person, password = keys.new_key(
            tenant=tenant.id, name=user, grants=everything, now_ms=now_ms, kind="user"
        )
        return [sealed(app, app_secret, self._sealer), connected, person], {
            "organization_id": organization_id(tenant),
            "environment_id": environment_id(tenant),
            "region": self._region,
            "client_id": app.id,
            "client_secret": app_secret,
            "connected_app": {"client_id": connected.id, "client_secret": connected_secret},
            "user": {"username": user, "password": password},
        }

    def example(self, part: dict[str, Any]) -> tuple[str, str]:
        return (
            "Anypoint MQ",
            f"curl {self.base_url}/api/v1/authorize -d grant_type=client_credentials \\\n"
            f"  -d client_id={part.get('client_id', 'ID')} \\\n"
            f"  -d client_secret={part.get('client_secret', 'SECRET')}",
        )

    def example_of(self, key: Key, secret: str) -> tuple[str, str] | None:
        if key.kind != "connected_app":
            return None
        return (
            "Anypoint MQ: a token for its Admin, Broker and Stats API",
            f"curl {self.base_url}/accounts/api/v2/oauth2/token \\\n"
            f"  -d grant_type=client_credentials -d client_id={key.id} \\\n"
            f"  -d client_secret={secret}",
        )

    def finished(self, key: Key, secret: str) -> Key:
        """The owner of an app may look its secret up again."""
        return sealed(key, secret, self._sealer) if key.kind == "app" else key


class ClientRoutes(AnypointFamily):
    family = "clients"

    def routes(self) -> list[Route]:
        clients = "/v1" + ENVIRONMENT + "/clients"
        regions = "/v1" + ENVIRONMENT + "/regions"
        return [
            Route("GET", clients, self.list_clients, "keys:read", "whole", "List client apps",
                  result=list[ClientResult]),
            Route("PUT", clients, self.create_client, "keys:write", "whole", "Create a client app",
                  body=ClientBody, result=ClientResult),
            Route("POST", _CLIENT, self.renew_client, "keys:write", "whole",
                  "Give a client app another secret", result=ClientResult),
            Route("DELETE", _CLIENT, self.delete_client, "keys:write", "whole",
                  "Delete a client app",
                  result=dict[str, str]),
            Route("GET", regions, self.list_regions, "any", "own", "List regions",
                  result=list[RegionResult], family="regions"),
            Route("GET", regions + "/{regionId}", self.get_region, "any", "own", "Get a region",
                  result=RegionResult, family="regions"),
        ]  # fmt: skip

    async def list_clients(self, call: Call) -> list[ClientResult]:
        """With their secrets, and so only those that a limited caller may have."""
        assert call.key is not None
        found = self._records.scan(Key, tenant=call.tenant)
        return [
            ClientResult(key.name, key.id, _secret(key, self._sealer))
            for key in found
            if key.kind == "app" and keys.may_give(call.key, key.grants)
        ]

    async def create_client(self, call: Call) -> ClientResult:
        key, secret = keys.new_key(
            tenant=call.tenant,
            name=call.body.name,
            grants=keys.grants(APP_SCOPES),
            now_ms=self._clock.now_ms(),
            kind="app",
        )
        self._check(call, key)
        await self._admin.add_app(sealed(key, secret, self._sealer), actor=call.actor)
        return ClientResult(key.name, key.id, secret)

    async def renew_client(self, call: Call) -> ClientResult:
        """As the vendor has it, the old secret and all sessions end at once."""
        app = self._admin.app(call.tenant, call.params["clientId"])
        self._check(call, app)
        key, secret = await self._admin.rotation.rotate(
            call.tenant,
            app.id,
            overlap_ms=0,
            finish=lambda key, secret: sealed(key, secret, self._sealer),
            actor=call.actor,
        )
        return ClientResult(key.name, key.id, secret)

    def _check(self, call: Call, app: Key) -> None:
        """Raises Forbidden unless the caller may have the secret of this app."""
        assert call.key is not None
        if not keys.may_give(call.key, app.grants):
            raise Forbidden("keys:write", limited=True)

    async def delete_client(self, call: Call) -> dict[str, str]:
        app = self._admin.app(call.tenant, call.params["clientId"])
        await self._admin.delete_key(call.tenant, app.id, actor=call.actor)
        return {}

    def _region(self, region: str) -> RegionResult:
        url = f"{self._services.url}/api/v1"
        if region != self._regions.own:
            # The broker's paths name no region, so the host name does.
            parts = urlsplit(self._services.url)
            host = parts.netloc.replace("127.0.0.1", "localhost").replace("[::1]", "localhost")
            url = f"{parts.scheme}://mq-{region}.{host}{parts.path}/api/v1"
        return RegionResult(region, region, region, "region", url, REGIONS[region])

    async def list_regions(self, call: Call) -> list[RegionResult]:
        others = [region for region in REGIONS if region != self._regions.own]
        return [self._region(region) for region in (self._regions.own, *others)]

    async def get_region(self, call: Call) -> RegionResult:
        return self._region(call.params["regionId"])
