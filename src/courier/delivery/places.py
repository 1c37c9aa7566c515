"""Where scripts run and what calls to them are signed with: records, else the setting."""

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

from courier.clock import Clock
from courier.core.errors import InvalidRequest
from courier.core.sealed import Sealer
from courier.core.store import Store
from courier.core.types import Worker
from courier.core.workers import check_name, check_url
from courier.delivery.secrets import opened


class BadPlaces(Exception):
    """The setting cannot be used; the message is one sentence for the operator."""


class Place(Struct, frozen=True):
    """The newest secret comes first."""

    url: str
    secrets: tuple[str, ...]


class Places:
    """`urls` is what the setting says: script -> URL, the same for every tenant."""

    def __init__(self, store: Store, clock: Clock, sealer: Sealer, urls: Mapping[str, str]) -> None:
        self._store = store
        self._clock = clock
        self._sealer = sealer
        self.urls = urls

    async def find(self, tenant: str, script: str) -> Place | None:
        worker = await self._store.named(Worker, tenant=tenant, name=script)
        if worker is not None:
            secrets = opened(worker, self._sealer, now_ms=self._clock.now_ms())
            return Place(worker.url, tuple(secrets))
        url = self.urls.get(script)
        return None if url is None else Place(url, (self._derived(script),))

    def _derived(self, script: str) -> str:
        """A secret that need not be kept: the same at every start, and told to nobody else."""
        key = hmac.digest(self._store.secret, b"worker " + script.encode(), sha256)
        return "whsec_" + base64.b64encode(key).decode()


def urls(setting: str) -> dict[str, str]:
    """The setting `worker_urls`, read. Raises BadPlaces."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, setting.split(","))):
        name, equals, url = (text.strip() for text in part.partition("="))
        try:
            check_name(name)
            check_url(url)
        except InvalidRequest as error:
            wrong = str(error) if equals else "expected name=URL; a comma in a URL is %2C"
            raise BadPlaces(f"worker_urls: {part!r} cannot be used: {wrong}") from error
        if name in found:
            raise BadPlaces(f"worker_urls: {name!r} is there twice")
        found[name] = url
    return found
