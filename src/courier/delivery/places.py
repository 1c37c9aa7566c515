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
from courier.core.types import Tenant, Worker
from courier.core.workers import check_name, check_url
from courier.delivery.secrets import opened
from courier.masking import masked


class BadPlaces(Exception):
    """The setting cannot be used; the message is one sentence for the operator."""


class Place(Struct, frozen=True):
    """The newest secret comes first."""

    url: str
    secrets: tuple[str, ...]


Urls = Mapping[tuple[str, str], str]


class Places:
    """`urls` is what the setting says: the names of a tenant and of a script -> URL.

    `first` names the tenant whose workers may know the secret that all tenants once shared.
    """

    def __init__(
        self, store: Store, clock: Clock, sealer: Sealer, urls: Urls, *, first: str
    ) -> None:
        self._store = store
        self._records = store.records
        self._clock = clock
        self._sealer = sealer
        self._urls = urls
        self._first = first

    def set_urls(self, tenant: str) -> dict[str, str]:
        """The scripts of a tenant that the setting names -> URL."""
        name = self._name(tenant)
        return {script: url for (owner, script), url in self._urls.items() if owner == name}

    def _name(self, tenant: str) -> str:
        found = self._records.get(Tenant, tenant)
        return "" if found is None else found.name

    def find(self, tenant: str, script: str) -> Place | None:
        worker = self._records.named(Worker, tenant=tenant, name=script)
        if worker is not None:
            secrets = opened(worker, self._sealer, now_ms=self._clock.now_ms())
            return Place(worker.url, tuple(secrets))
        name = self._name(tenant)
        url = self._urls.get((name, script))
        if url is None:
            return None
        derived = [self._derived(f"worker {tenant} {script}")]
        if name == self._first:
            # What its older workers verify. Other tenants get nothing signed with it: they could
            # show that to a worker of the first.
            derived.append(self._derived(f"worker {script}"))
        return Place(url, tuple(derived))

    def _derived(self, purpose: str) -> str:
        """A secret that need not be kept: the same at every start, and another for each worker."""
        key = hmac.digest(self._store.secret, purpose.encode(), sha256)
        return "whsec_" + base64.b64encode(key).decode()


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
