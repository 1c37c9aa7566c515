"""Where scripts run and what calls to them are signed with: records, else the setting."""

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

from courier.clock import Clock
from courier.core.errors import InvalidRequest
from courier.core.records import Records
from courier.core.sealed import Sealer
from courier.core.types import Tenant, Worker
from courier.core.workers import check_name, check_url
from courier.delivery.secrets import opened
from courier.masking import masked


class BadPlaces(Exception):
    """The setting cannot be used; the message is one sentence for the operator."""


class WorkerPlace(Struct, frozen=True):
    """The newest secret comes first."""

    url: str
    secrets: tuple[str, ...]


Urls = Mapping[tuple[str, str], str]


class Places:
    """`urls` is what the setting says: the names of a tenant and of a script -> URL."""

    def __init__(
        self, records: Records, secret: bytes, clock: Clock, sealer: Sealer, urls: Urls
    ) -> None:
        """`secret` is the store's."""
        self._records = records
        self._secret = secret
        self._clock = clock
        self._sealer = sealer
        self._urls = urls

    def set_urls(self, tenant: str) -> dict[str, str]:
        """The scripts of a tenant that the setting names -> URL."""
        name = self._name(tenant)
        return {script: url for (owner, script), url in self._urls.items() if owner == name}

    def _name(self, tenant: str) -> str:
        found = self._records.get(Tenant, tenant)
        return "" if found is None else found.name

    def find(self, tenant: str, script: str) -> WorkerPlace | None:
        worker = self._records.named(Worker, tenant=tenant, name=script)
        if worker is not None:
            secrets = opened(worker, self._sealer, now_ms=self._clock.now_ms())
            return WorkerPlace(worker.url, tuple(secrets))
        url = self._urls.get((self._name(tenant), script))
        if url is None:
            return None
        # A secret that need not be kept: the same at every start, and another for each worker.
        key = hmac.digest(self._secret, f"worker {tenant} {script}".encode(), sha256)
        return WorkerPlace(url, ("whsec_" + base64.b64encode(key).decode(),))


def urls(setting: str, *, tenant: str) -> dict[tuple[str, str], str]:
    """The setting `worker_urls`, read; `tenant` owns scripts that name none. Raises BadPlaces."""
    found: dict[tuple[str, str], str] = {}
    for part in filter(None, map(str.strip, setting.split(","))):
        names, equals, url = (text.strip() for text in part.partition("="))
        owner, slash, name = names.rpartition("/")
        try:
            if slash:
                check_name(owner)
            check_name(name)
            check_url(url)
        except InvalidRequest as error:
            wrong = str(error) if equals else "expected name=URL or tenant/name=URL, commas as %2C"
            raise BadPlaces(f"worker_urls: {masked(part)!r} cannot be used: {wrong}") from None
        worker = owner or tenant, name
        if worker in found:
            raise BadPlaces(f"worker_urls: {names!r} is there twice")
        found[worker] = url
    return found
