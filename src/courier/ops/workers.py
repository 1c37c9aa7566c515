"""Where the scripts of worker consumers run, as the operator says."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier import ids
from courier.core.errors import InvalidRequest, NotFound
from courier.core.types import DAY_MS, Secret, Worker
from courier.delivery import signing
from courier.delivery.secrets import opened, resealed, sealed
from courier.ops.services import OpsFamily
from courier.web import Call, Route

_WORKERS = "/courier/v1/tenants/{tenant}/workers"
_WORKER = _WORKERS + "/{worker}"
# A secret that was replaced signs for this long beside the new one.
REPLACED_MS = DAY_MS


class WorkerBody(Struct):
    url: str
    secret: str | UnsetType = UNSET


class WorkerRoutes(OpsFamily):
    family = "workers"

    def routes(self) -> list[Route]:
        return [
            Route("GET", _WORKERS, self.list_workers, "admin", "whole", "List workers"),
            Route("PUT", _WORKER, self.put_worker, "admin", "whole", "Say where a script runs",
                  body=WorkerBody),
            Route("DELETE", _WORKER, self.remove_worker, "admin", "whole",
                  "Forget where a script runs"),
            Route("GET", _WORKER + "/secret", self.worker_secret, "admin", "whole",
                  "What calls to a worker are signed with"),
        ]  # fmt: skip

    async def list_workers(self, call: Call) -> dict[str, Any]:
        tenant = self._tenant(call)
        found = {
            name: _shown(name, url) for name, url in self._services.places.set_urls(tenant).items()
        }
        for worker in self._admin.workers.list(tenant):
            found[worker.name] = _shown(worker.name, worker.url, worker)
        return {"workers": [found[name] for name in sorted(found)]}

    async def put_worker(self, call: Call) -> dict[str, Any]:
        body: WorkerBody = call.body
        tenant, name = self._tenant(call), call.params["worker"]
        now_ms = self._clock.now_ms()
        given = None if body.secret is UNSET else signing.checked(body.secret)

        def edit(known: Worker | None) -> Worker:
            if known is None:
                id = ids.new_id()
                return Worker(
                    id=id,
                    tenant=tenant,
                    name=name,
                    created_ms=now_ms,
                    url=body.url,
                    secrets=(self._sealed(given or signing.new_secret(), tenant, id),),
                )
            secrets = resealed(known, self._sealer).secrets
            if given and given != opened(known, self._sealer, now_ms=now_ms)[0]:
                old = replace(secrets[0], until_ms=now_ms + REPLACED_MS)
                secrets = (self._sealed(given, tenant, known.id), old)
            return replace(known, url=body.url, secrets=secrets)

        worker = await self._admin.workers.put(tenant, name, edit, actor=call.actor)
        secret = opened(worker, self._sealer, now_ms=now_ms)[0]
        return {"worker": _shown(name, worker.url, worker), "secret": secret}

    def _sealed(self, secret: str, tenant: str, id: str) -> Secret:
        return sealed(secret, self._sealer, Worker, tenant=tenant, id=id)

    async def remove_worker(self, call: Call) -> dict[str, Any]:
        tenant, name = self._tenant(call), call.params["worker"]
        known = self._admin.workers.find(tenant, name)
        if known is None and name in self._services.places.set_urls(tenant):
            raise InvalidRequest("worker", f"'{name}' comes from the setting worker_urls")
        await self._admin.workers.remove(tenant, name, actor=call.actor)
        return {}

    async def worker_secret(self, call: Call) -> dict[str, str]:
        name = call.params["worker"]
        place = self._services.places.find(self._tenant(call), name)
        if place is None:
            raise NotFound("worker", name)
        return {"secret": place.secrets[0]}


def _shown(name: str, url: str, record: Worker | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "url": url,
        "source": "setting" if record is None else "record",
        "created_ms": None if record is None else record.created_ms,
    }
