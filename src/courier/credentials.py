"""The first credentials of a tenant, and the file that carries them to their owner."""

from pathlib import Path
from typing import Any

import msgspec

from courier.core import keys
from courier.core.admin import OPERATOR, Admin
from courier.core.broker import Sealer
from courier.core.types import BROKER, Actor, Key, Tenant
from courier.dialects.anypoint.clients import APP_SCOPES, sealed
from courier.dialects.anypoint.names import environment_id, organization_id
from courier.files import write_private

FIRST_TENANT = "default"
CLOUDFLARE_PREFIX = "/client/v4"


class Credentials:
    def __init__(self, admin: Admin, sealer: Sealer, *, data: Path, url: str, region: str) -> None:
        self._admin = admin
        self._sealer = sealer
        self._data = data
        self._url = url
        self._region = region

    def path(self, tenant: str) -> Path:
        name = "credentials.json" if tenant == FIRST_TENANT else f"credentials.{tenant}.json"
        return self._data / name

    async def create_tenant(
        self, name: str, *, beside: str = "", actor: Actor = BROKER
    ) -> tuple[Tenant, dict[str, Any]]:
        """A tenant with keys for each dialect. Its secrets are in the file and nowhere else.

        The file is there before the tenant is: a crash between the two leaves a file that the
        next attempt replaces, and never a tenant that nobody can use. `beside` names a tenant
        of the organization that the new one is to belong to.
        """
        tenant = await self._admin.new_tenant(name, beside=beside)
        now_ms = tenant.created_ms
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
        anypoint_keys, made["anypoint"] = self._anypoint(tenant, now_ms)
        made_keys = [key, *anypoint_keys]
        if name == FIRST_TENANT:
            scopes = keys.grants(["admin", "journal"])
            admin, token = keys.new_key(tenant=OPERATOR, name="first", grants=scopes, now_ms=now_ms)
            made["admin"] = {"token": token}
            made_keys.append(admin)
        self._write(name, made)
        await self._admin.add_tenant(tenant, made_keys, actor=actor)
        return tenant, made

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

    async def refresh(self, tenant: Tenant) -> None:
        """Let the tenant's file name the address that the server has now.

        A file that was written before there was a dialect gets keys for it.
        """
        path = self.path(tenant.name)
        if not path.exists():
            return
        made = msgspec.json.decode(path.read_bytes())
        if "anypoint" not in made:
            new_keys, made["anypoint"] = self._anypoint(tenant, tenant.created_ms)
            # Keys of an attempt that did not get as far as the file are of no use to anyone.
            await self._admin.replace_keys(tenant.id, new_keys, actor=BROKER)
            self._write(made["tenant"], made)
        urls = {"cloudflare": self._url + CLOUDFLARE_PREFIX, "anypoint": self._url}
        if any(made[dialect]["base_url"] != url for dialect, url in urls.items()):
            for dialect, url in urls.items():
                made[dialect]["base_url"] = url
            self._write(made["tenant"], made)

    def _write(self, tenant: str, made: dict[str, Any]) -> None:
        write_private(self.path(tenant), msgspec.json.format(msgspec.json.encode(made)) + b"\n")

    def forget(self, tenant: str) -> None:
        self.path(tenant).unlink(missing_ok=True)

    def load(self, tenant: str = FIRST_TENANT) -> dict[str, Any]:
        loaded: dict[str, Any] = msgspec.json.decode(self.path(tenant).read_bytes())
        return loaded
