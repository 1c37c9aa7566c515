"""Listeners by name, for the operator and the command line."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from courier.clock import Clock
from courier.core.admin import Admin
from courier.core.errors import InvalidRequest, NotFound
from courier.core.store import Store
from courier.core.types import Listener, Liveness, PushStats, Queue
from courier.web import Call, Route

_LISTENERS = "/courier/v1/tenants/{tenant}/queues/{queue}/listeners"
_LISTENER = _LISTENERS + "/{listener}"
_Ms = Annotated[int, Meta(ge=0, le=1 << 53)]


class BackfillBody(Struct):
    """From `since_ms` (or so long ago) to `until_ms`; a page at a time, from `after` on."""

    since_ms: _Ms | UnsetType = UNSET
    since_ago_ms: _Ms | UnsetType = UNSET
    until_ms: _Ms | UnsetType = UNSET
    after: _Ms | UnsetType = UNSET


class EnabledBody(Struct):
    enabled: bool


class ListenerRoutes:
    def __init__(self, store: Store, admin: Admin, clock: Clock) -> None:
        self._store = store
        self._admin = admin
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route("GET", _LISTENERS, self.list_listeners, "listeners:read", "target",
                  "List listeners"),
            Route("PUT", _LISTENER + "/enabled", self.enable_listener, "listeners:write", "target",
                  "Let a listener's pushes go on, or wait", body=EnabledBody),
            Route("POST", _LISTENER + "/backfill", self.backfill_listener, "listeners:write",
                  "target",
                  "Also push what the queue still holds", body=BackfillBody, body_optional=True),
        ]  # fmt: skip

    async def _queue(self, call: Call) -> Queue:
        tenant = await self._admin.tenant(call.params["tenant"])
        return await self._admin.queue_named(tenant.id, call.params["queue"])

    async def _listener(self, call: Call) -> Listener:
        queue = await self._queue(call)
        for listener in await self._store.scan(Listener, parent=queue.id):
            if listener.title == call.params["listener"]:
                return listener
        raise NotFound("listener", call.params["listener"])

    async def list_listeners(self, call: Call) -> dict[str, Any]:
        queue = await self._queue(call)
        found = await self._store.scan(Listener, parent=queue.id)
        return {"listeners": await self._shown(found), "retention_ms": queue.retention_ms}

    async def _shown(self, listeners: Sequence[Listener]) -> list[dict[str, Any]]:
        """Without those that are gone by now."""
        ids = [listener.id for listener in listeners]
        stats = await self._store.push_stats(ids, now_ms=self._clock.now_ms())
        return [await self._row(each, stats[each.id]) for each in listeners if each.id in stats]

    async def _row(self, listener: Listener, stats: PushStats) -> dict[str, Any]:
        known = await self._store.get(Liveness, listener.id)
        return {
            "id": listener.id,
            "name": listener.title,
            "url": listener.url,
            "enabled": not listener.disabled_by,
            "disabled_by": listener.disabled_by,
            "ordered": listener.ordered,
            "liveness": known.state if known else "pending",
            "open": stats.open,
            "in_flight": stats.in_flight,
            "missed": stats.missed,
            "expired": stats.expired,
            "acknowledged": stats.acknowledged,
            "created_ms": listener.created_ms,
        }

    async def enable_listener(self, call: Call) -> dict[str, Any]:
        listener = await self._listener(call)
        enabled: bool = call.body.enabled

        def edit(known: Listener) -> Listener:
            return replace(known, disabled_by="" if enabled else "user")

        changed = await self._admin.listeners.update(
            listener.parent, listener.id, edit, actor=call.actor
        )
        for row in await self._shown([changed]):
            return row
        raise NotFound("listener", changed.title)

    async def backfill_listener(self, call: Call) -> dict[str, Any]:
        body: BackfillBody = call.body
        now_ms = self._clock.now_ms()
        since_ms = 0 if body.since_ms is UNSET else body.since_ms
        if body.since_ago_ms is not UNSET:
            if body.since_ms is not UNSET:
                raise InvalidRequest("since_ago_ms", "cannot be given together with since_ms")
            since_ms = max(0, now_ms - body.since_ago_ms)
        done = await self._admin.listeners.backfill(
            await self._listener(call),
            since_ms=since_ms,
            until_ms=now_ms + 1 if body.until_ms is UNSET else body.until_ms,
            after_seq=0 if body.after is UNSET else body.after,
        )
        return {"bound": done.bound, "next": done.next_seq}
