"""The first credentials of a tenant, and the file that carries them to their owner."""

import os
from pathlib import Path
from typing import Any

import msgspec

from courier.core import keys
from courier.core.admin import OPERATOR, Admin
from courier.core.types import BROKER, Actor, Tenant

FIRST_TENANT = "default"
CLOUDFLARE_PREFIX = "/client/v4"


class Credentials:
    def __init__(self, admin: Admin, *, data: Path, url: str) -> None:
        self._admin = admin
        self._data = data
        self._url = url

    def path(self, tenant: str) -> Path:
        name = "credentials.json" if tenant == FIRST_TENANT else f"credentials.{tenant}.json"
        return self._data / name

    async def create_tenant(
        self, name: str, *, actor: Actor = BROKER
    ) -> tuple[Tenant, dict[str, Any]]:
        """A tenant with a key for each dialect. Its secrets are in the file and nowhere else.

        The file is there before the tenant is: a crash between the two leaves a file that the
        next attempt replaces, and never a tenant that nobody can use.
        """
        tenant = await self._admin.new_tenant(name)
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
        made_keys = [key]
        if name == FIRST_TENANT:
            scopes = keys.grants(["admin", "journal"])
            admin, token = keys.new_key(tenant=OPERATOR, name="first", grants=scopes, now_ms=now_ms)
            made["admin"] = {"token": token}
            made_keys.append(admin)
        self._write(name, made)
        await self._admin.add_tenant(tenant, made_keys, actor=actor)
        return tenant, made

    def refresh(self) -> None:
        """Let the files name the address that the server has now."""
        for path in self._data.glob("credentials*.json"):
            made = msgspec.json.decode(path.read_bytes())
            if made["cloudflare"]["base_url"] != self._url + CLOUDFLARE_PREFIX:
                made["cloudflare"]["base_url"] = self._url + CLOUDFLARE_PREFIX
                self._write(made["tenant"], made)

    def _write(self, tenant: str, made: dict[str, Any]) -> None:
        """For the owner's eyes only, and either whole or not there."""
        path = self.path(tenant)
        fresh = path.with_suffix(".new")
        with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def forget(self, tenant: str) -> None:
        self.path(tenant).unlink(missing_ok=True)

    def load(self, tenant: str = FIRST_TENANT) -> dict[str, Any]:
        loaded: dict[str, Any] = msgspec.json.decode(self.path(tenant).read_bytes())
        return loaded
