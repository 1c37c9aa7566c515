"""The first credentials of a tenant, and the file that carries them to their owner."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from courier import files
from courier.core import keys
from courier.core.admin import Admin
from courier.core.errors import BrokerError, OutcomeUnknown, StoreUnavailable
from courier.core.types import BROKER, OPERATOR, Actor, Key, Tenant

log = logging.getLogger("courier.credentials")

FIRST_TENANT = "default"
# What the operator's own keys are listed under, as if it were a tenant.
OPERATOR_NAME = "operator"


def _renewed(made: Any, key: str, secret: str) -> Any:
    """The same with the secret in place of every other one of this key."""
    if isinstance(made, dict):
        return {name: _renewed(value, key, secret) for name, value in made.items()}
    same = isinstance(made, str) and len(made) == len(secret) and keys.id_of(made) == key
    return secret if same else made


class DialectAccess(ABC):
    """A dialect's part of a file of credentials, and how a client of it begins."""

    name: str
    base_url: str

    @abstractmethod
    def first_keys(self, tenant: Tenant) -> tuple[list[Key], dict[str, Any]]:
        """Keys for a new tenant, and what its file says of them."""

    @abstractmethod
    def example(self, part: dict[str, Any]) -> tuple[str, str]:
        """The API's name and a first request with what a file says, or words in its place."""

    @abstractmethod
    def example_of(self, key: Key, secret: str) -> tuple[str, str] | None:
        """The same with a new key; None: it does not open this API."""

    def finished(self, key: Key, secret: str) -> Key:
        """The key, with whatever is kept of its secret."""
        return key


@contextmanager
def _warned(event: str, path: Path) -> Iterator[None]:
    """Go on with a warning where the disk refuses what has to follow a change that is made."""
    try:
        yield
    except (OSError, StoreUnavailable) as error:
        log.warning(event, extra={"file": str(path), "reason": str(error)})


class Credentials:
    def __init__(self, admin: Admin, dialects: Sequence[DialectAccess], *, data: Path) -> None:
        """The first of the dialects is in every file; earlier servers knew no other."""
        self._admin = admin
        self._dialects = dialects
        self._data = data
        self._turn = asyncio.Lock()
        first, *others = [dialect.name for dialect in dialects]
        # What is relied on in a file.
        self._parts = msgspec.defstruct(
            "Parts",
            [
                (first, dict[str, Any]),
                *[(name, dict[str, Any], {}) for name in others],
                ("admin", dict[str, str], {}),
            ],
        )

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
        made: dict[str, Any] = {"tenant": tenant.name}
        made_keys: list[Key] = []
        for dialect in self._dialects:
            more_keys, made[dialect.name] = _first_keys(dialect, tenant)
            made_keys += more_keys
        if tenant.name == FIRST_TENANT:
            scopes = keys.grants(["admin", "journal"])
            admin, token = keys.new_key(
                tenant=OPERATOR, name="first", grants=scopes, now_ms=tenant.created_ms
            )
            made["admin"] = {"token": token}
            made_keys.append(admin)
        return made, made_keys

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
        for dialect in self._dialects:
            if dialect.name not in made:
                new_keys, made[dialect.name] = _first_keys(dialect, tenant)
                # Keys of an attempt that did not get as far as the file are of no use to anyone.
                await self._admin.replace_keys(tenant.id, new_keys, actor=BROKER)
                await self._write(tenant.name, made)
        if any(made[each.name].get("base_url") != each.base_url for each in self._dialects):
            for dialect in self._dialects:
                made[dialect.name]["base_url"] = dialect.base_url
            await self._write(tenant.name, made)

    def finished(self, key: Key, secret: str) -> Key:
        """The key, with whatever its dialect keeps of its secret."""
        for dialect in self._dialects:
            key = dialect.finished(key, secret)
        return key

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
        return [each.example(made.get(each.name, {})) for each in self._dialects]

    def examples_of(self, key: Key, secret: str) -> list[tuple[str, str]]:
        """A first request with a new key to each API that it opens."""
        found = [each.example_of(key, secret) for each in self._dialects]
        return [each for each in found if each is not None]

    def load(self, tenant: str = FIRST_TENANT) -> dict[str, Any]:
        """What the file of a tenant holds. Raises StoreUnavailable."""
        path = self.path(tenant)
        try:
            loaded = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            msgspec.convert(loaded, self._parts)
        except (msgspec.DecodeError, OSError, RecursionError) as error:
            raise StoreUnavailable(
                f"{path} is not a file of credentials ({error}): restore it, or move it away"
            ) from error
        return loaded


def _first_keys(dialect: DialectAccess, tenant: Tenant) -> tuple[list[Key], dict[str, Any]]:
    made_keys, part = dialect.first_keys(tenant)
    return made_keys, {"base_url": dialect.base_url, **part}
