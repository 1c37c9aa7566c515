"""The first credentials of a tenant, and the file that carries them to their owner."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from courier import files
from courier.core import keys
from courier.core.admin import Admin
from courier.core.errors import BrokerError, OutcomeUnknown, StoreUnavailable
from courier.core.sealed import Sealer
from courier.core.types import BROKER, OPERATOR, Actor, Key, Tenant
from courier.dialects.anypoint.clients import APP_SCOPES, sealed
from courier.dialects.anypoint.names import environment_id, organization_id

log = logging.getLogger("courier.credentials")

FIRST_TENANT = "default"
CLOUDFLARE_PREFIX = "/client/v4"
DISCUE_PREFIX = "/v1"
# What the operator's own keys are listed under, as if it were a tenant.
OPERATOR_NAME = "operator"


def _renewed(made: Any, key: str, secret: str) -> Any:
    """The same with the secret in place of every other one of this key."""
    if isinstance(made, dict):
        return {name: _renewed(value, key, secret) for name, value in made.items()}
    same = isinstance(made, str) and len(made) == len(secret) and keys.id_of(made) == key
    return secret if same else made


class _Parts(Struct):
    """What is relied on in a file of credentials."""

    cloudflare: dict[str, Any]
    anypoint: dict[str, Any] = {}
    discue: dict[str, Any] = {}
    admin: dict[str, str] = {}


@contextmanager
def _warned(event: str, path: Path) -> Iterator[None]:
    """Go on with a warning where the disk refuses what has to follow a change that is made."""
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        log.warning(event, extra={"file": str(path), "reason": str(error)})


class Credentials:
    def __init__(self, admin: Admin, sealer: Sealer, *, data: Path, url: str, region: str) -> None:
        self._admin = admin
        self._sealer = sealer
        self._data = data
        self._url = url
        self._region = region
        self._turn = asyncio.Lock()

    def path(self, tenant: str) -> Path:
        if tenant == FIRST_TENANT:
            return self._data / "credentials.json"
        # Some dialects' names hold slashes.
        return self._data / f"credentials.{quote(tenant, safe='')}.json"

    async def create_tenant(
        self, name: str, *, beside: str = "", actor: Actor = BROKER
    ) -> tuple[Tenant, dict[str, Any]]:
        """A tenant with keys for each dialect. Its secrets are in the file and nowhere else.

        The file is there before the tenant is: a crash between the two leaves a file that the
        next attempt replaces, and never a tenant that nobody can use. `beside` names a tenant
        of the organization that the new one is to belong to.
        """
        async with self._turn:
            tenant = self._admin.new_tenant(name, beside=beside)
            made, made_keys = self._first_keys(tenant)
            async with self._written(name, made):
                await self._admin.add_tenant(tenant, made_keys, actor=actor)
            return tenant, made

    def _first_keys(self, tenant: Tenant) -> tuple[dict[str, Any], list[Key]]:
        name, now_ms = tenant.name, tenant.created_ms
        key, token = keys.new_key(
            tenant=tenant.id, name="first", grants=keys.grants(["write"]), now_ms=now_ms
        )
        made: dict[str, Any] = {
            "tenant": name,
            "cloudflare": {
                "base_url": self._url + CLOUDFLARE_PREFIX,
                "account_id": tenant.id,
                "api_token": token,
            },
        }
        made_keys = [key]
        for dialect, make in self._dialects.items():
            more_keys, made[dialect] = make(tenant, now_ms)
            made_keys += more_keys
        if name == FIRST_TENANT:
            scopes = keys.grants(["admin", "journal"])
            admin, token = keys.new_key(tenant=OPERATOR, name="first", grants=scopes, now_ms=now_ms)
            made["admin"] = {"token": token}
            made_keys.append(admin)
        return made, made_keys

    @property
    def _dialects(self) -> dict[str, Callable[[Tenant, int], tuple[list[Key], dict[str, Any]]]]:
        """Those that came after the first one, and what makes keys for each."""
        return {"anypoint": self._anypoint, "discue": self._discue}

    def _discue(self, tenant: Tenant, now_ms: int) -> tuple[list[Key], dict[str, Any]]:
        """A key that may do everything, other keys included."""
        key, secret = keys.new_key(
            tenant=tenant.id,
            name="first-discue",
            grants=keys.grants(["write", *keys.KEYS, "usage:read"]),
            now_ms=now_ms,
        )
        return [key], {"base_url": self._url + DISCUE_PREFIX, "api_key": secret}

    def _anypoint(self, tenant: Tenant, now_ms: int) -> tuple[list[Key], dict[str, Any]]:
        """A client app, a connected app and a user."""
        user = f"admin@{tenant.name}"
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
            "base_url": self._url,
            "organization_id": organization_id(tenant),
            "environment_id": environment_id(tenant),
            "region": self._region,
            "client_id": app.id,
            "client_secret": app_secret,
            "connected_app": {"client_id": connected.id, "client_secret": connected_secret},
            "user": {"username": user, "password": password},
        }

    async def rename_tenant(self, tenant: Tenant, name: str, *, actor: Actor) -> Tenant:
        """The file has the new name before the tenant has, and the old one until it has.

        So a crash may leave one file too many, and never a tenant without one.
        """
        async with self._turn:
            self._admin.check_tenant_name(name)
            old = self.path(tenant.name)
            if not old.exists():
                return await self._admin.rename_tenant(tenant.id, name, actor=actor)
            async with self._written(name, {**self.load(tenant.name), "tenant": name}):
                renamed = await self._admin.rename_tenant(tenant.id, name, actor=actor)
            await self._remove(tenant.name)
            return renamed

    async def refresh(self, tenant: Tenant) -> None:
        """Let the tenant's file name the address that the server has now.

        A file that was written before there was a dialect gets keys for it.
        """
        path = self.path(tenant.name)
        if not path.exists():
            return
        made = self.load(tenant.name)
        for dialect, make in self._dialects.items():
            if dialect not in made:
                new_keys, made[dialect] = make(tenant, tenant.created_ms)
                # Keys of an attempt that did not get as far as the file are of no use to anyone.
                await self._admin.replace_keys(tenant.id, new_keys, actor=BROKER)
                await self._write(tenant.name, made)
        urls = {
            "cloudflare": self._url + CLOUDFLARE_PREFIX,
            "anypoint": self._url,
            "discue": self._url + DISCUE_PREFIX,
        }
        if any(made[dialect].get("base_url") != url for dialect, url in urls.items()):
            for dialect, url in urls.items():
                made[dialect]["base_url"] = url
            await self._write(tenant.name, made)

    def finished(self, key: Key, secret: str) -> Key:
        """The key with its secret sealed, if its owner may look that up again."""
        return sealed(key, secret, self._sealer) if key.kind == "app" else key

    async def renew(self, tenant: str, key: str, secret: str) -> None:
        """Put another secret of this key in place of the one in the tenant's file, if any.

        The key has changed already, and its owner must get to know the secret: a file that cannot
        be written keeps the old one, and the log says so.
        """
        name = FIRST_TENANT if tenant == OPERATOR_NAME else tenant
        if not self.path(name).exists():
            return
        with _warned("credentials_outdated", self.path(name)):
            async with self._turn:
                made = self.load(name)
                renewed = _renewed(made, key, secret)
                if renewed != made:
                    await self._write(name, renewed)

    @asynccontextmanager
    async def _written(self, tenant: str, made: dict[str, Any]) -> AsyncIterator[None]:
        """A new file for what is about to be stored, removed again if that is refused."""
        await self._write(tenant, made)
        try:
            yield
        except OutcomeUnknown:
            raise
        except BrokerError:
            await self._remove(tenant)
            raise

    async def _write(self, tenant: str, made: dict[str, Any]) -> None:
        """Raises StoreUnavailable."""
        path, content = self.path(tenant), msgspec.json.format(msgspec.json.encode(made)) + b"\n"
        try:
            await asyncio.to_thread(files.write, path, content)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written: {error.strerror}") from error

    async def forget(self, tenant: str) -> None:
        """Remove the file of a tenant that is no more; its secrets are good for nothing."""
        async with self._turn:
            await self._remove(tenant)

    async def _remove(self, tenant: str) -> None:
        with _warned("credentials_left", self.path(tenant)):
            await asyncio.to_thread(files.remove, self.path(tenant))

    def examples(self, tenant: str = "") -> list[tuple[str, str]]:
        """A first request to each API, ready to paste: the API's name and the lines.

        With the secrets of the tenant's file, or without a tenant with words in their place.
        """
        made: dict[str, Any] = {}
        if tenant and self.path(tenant).exists():
            made = self.load(tenant)
        cloudflare, anypoint = made.get("cloudflare", {}), made.get("anypoint", {})
        account = f"{self._url}{CLOUDFLARE_PREFIX}/accounts/{cloudflare.get('account_id', 'ID')}"
        token = cloudflare.get("api_token", "TOKEN")
        key = made.get("discue", {}).get("api_key", "KEY")
        return [
            (
                "Cloudflare Queues",
                f"curl -X POST {account}/queues \\\n"
                f"  -H 'Authorization: Bearer {token}' \\\n"
                '  -d \'{"queue_name":"hello"}\'',
            ),
            (
                "Anypoint MQ",
                f"curl {self._url}/api/v1/authorize -d grant_type=client_credentials \\\n"
                f"  -d client_id={anypoint.get('client_id', 'ID')} \\\n"
                f"  -d client_secret={anypoint.get('client_secret', 'SECRET')}",
            ),
            (
                "Discue",
                f"curl {self._url}{DISCUE_PREFIX}/queues -H 'X-API-KEY: {key}' \\\n"
                "  -H 'Content-Type: application/json' -d '{\"name\":\"greetings\"}'",
            ),
        ]

    def examples_of(self, key: Key, secret: str) -> list[tuple[str, str]]:
        """A first request with a new key to each API that it opens."""
        if key.kind == "connected_app":
            return [
                (
                    "Anypoint MQ: a token for its Admin, Broker and Stats API",
                    f"curl {self._url}/accounts/api/v2/oauth2/token \\\n"
                    f"  -d grant_type=client_credentials -d client_id={key.id} \\\n"
                    f"  -d client_secret={secret}",
                )
            ]
        account = f"{self._url}{CLOUDFLARE_PREFIX}/accounts/{key.tenant}"
        return [
            (
                "Cloudflare Queues",
                f"curl {account}/queues \\\n  -H 'Authorization: Bearer {secret}'",
            ),
            ("Discue", f"curl {self._url}{DISCUE_PREFIX}/queues -H 'X-API-KEY: {secret}'"),
        ]

    def load(self, tenant: str = FIRST_TENANT) -> dict[str, Any]:
        """What the file of a tenant holds. Raises StoreUnavailable."""
        path = self.path(tenant)
        try:
            loaded = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            msgspec.convert(loaded, _Parts)
        except (msgspec.DecodeError, OSError, RecursionError) as error:
            raise StoreUnavailable(
                f"{path} is not a file of credentials ({error}): restore it, or move it away"
            ) from error
        return loaded
