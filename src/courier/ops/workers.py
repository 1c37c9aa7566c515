"""Where the scripts of worker consumers run, as the operator says."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from courier.core.errors import InvalidRequest, NotFound
from courier.core.types import DAY_MS, Worker
from courier.delivery import secrets
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
        given = None if body.secret is UNSET else secrets.checked(body.secret)

        def edit(known: Worker | None) -> Worker:
            if known is None:
                first = given or secrets.new_secret()
                return secrets.new_worker(
                    tenant, name, body.url, self._sealer, now_ms=now_ms, secret=first
                )
            kept = secrets.resealed(known, self._sealer).secrets
            if given and given != secrets.opened(known, self._sealer, now_ms=now_ms)[0]:
                old = replace(kept[0], until_ms=now_ms + REPLACED_MS)
                new = secrets.sealed(given, self._sealer, Worker, tenant=tenant, id=known.id)
                kept = (new, old)
            return replace(known, url=body.url, secrets=kept)

        worker = await self._admin.workers.put(tenant, name, edit, actor=call.actor)
        secret = secrets.opened(worker, self._sealer, now_ms=now_ms)[0]
        return {"worker": _shown(name, worker.url, worker), "secret": secret}

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
