"""Listeners by name, for the operator and the command line."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from courier.core import attempts
from courier.core.errors import InvalidRequest, NotFound
from courier.core.listeners import Retried, check_title
from courier.core.types import ANSWER_KEPT_BYTES, Listener, Liveness, PushStats, Report
from courier.delivery import liveness, secrets
from courier.delivery.pace import IN_FLIGHT_MAX, PER_SECOND_MAX
from courier.dialects.site import number
from courier.ops.services import OpsFamily
from courier.web import Call, Route

_LISTENERS = "/courier/v1/tenants/{tenant}/queues/{queue}/listeners"
_LISTENER = _LISTENERS + "/{listener}"
# Attempts that are shown with a listener.
ATTEMPTS_SHOWN = 10
_Ms = Annotated[int, Meta(ge=0, le=1 << 53)]


class OpsBackfillBody(Struct):
    """From `since_ms` (or so long ago) to `until_ms`; a page at a time, from `after` on."""

    since_ms: _Ms | UnsetType = UNSET
    since_ago_ms: _Ms | UnsetType = UNSET
    until_ms: _Ms | UnsetType = UNSET
    after: _Ms | UnsetType = UNSET


class EnabledBody(Struct):
    enabled: bool


class OpsListenerBody(Struct):
    """`liveness_url` is `url` if it is not given, and `secret` is made. 0 is no limit."""

    name: str
    url: str
    liveness_url: str | UnsetType = UNSET
    secret: str | UnsetType = UNSET
    ordered: bool = False
    envelope: bool = False
    timeout_ms: Annotated[int, Meta(ge=1_000, le=30_000)] = 10_000
    attempts_max: Annotated[int, Meta(ge=1, le=11)] = 11
    in_flight_max: Annotated[int, Meta(ge=0, le=IN_FLIGHT_MAX)] = 0
    per_second_max: Annotated[int, Meta(ge=0, le=PER_SECOND_MAX)] = 0


class OpsListenerRoutes(OpsFamily):
    family = "listeners"

    def routes(self) -> list[Route]:
        return [
            Route("GET", _LISTENERS, self.list_listeners, "listeners:read", "target",
                  "List listeners"),
            Route("POST", _LISTENERS, self.create_listener, "listeners:write", "target",
                  "Create a listener; its secret is shown this once", body=OpsListenerBody),
            Route("GET", _LISTENER, self.show_listener, "listeners:read", "target",
                  "Show a listener, its last attempts and when the next one is"),
            Route("GET", _LISTENER + "/attempts", self.list_attempts, "listeners:read", "target",
                  "List attempts to push to a listener, newest first"),
            Route("POST", _LISTENER + "/test", self.test_listener, "listeners:write", "target",
                  "Send a signed request now, and show the answer"),
            Route("POST", _LISTENER + "/retry-failed", self.retry_failed, "messages:consume",
                  "target", "Push again, now, all messages that failed"),
            Route("PUT", _LISTENER + "/enabled", self.enable_listener, "listeners:write", "target",
                  "Let a listener's pushes go on, or wait", body=EnabledBody),
            Route("POST", _LISTENER + "/backfill", self.backfill_listener, "listeners:write",
                  "target",
                  "Also push what the queue still holds", body=OpsBackfillBody, body_optional=True),
        ]  # fmt: skip

    def _listener(self, call: Call) -> Listener:
        queue = self._queue(call)
        for listener in self._records.scan(Listener, parent=queue.id):
            if listener.title == call.params["listener"]:
                return listener
        raise NotFound("listener", call.params["listener"])

    async def list_listeners(self, call: Call) -> dict[str, Any]:
        queue = self._queue(call)
        found = self._records.scan(Listener, parent=queue.id)
        return {"listeners": await self._shown(found), "retention_ms": queue.retention_ms}

    async def create_listener(self, call: Call) -> dict[str, Any]:
        body: OpsListenerBody = call.body
        queue = self._queue(call)
        check_title(body.name)
        liveness_url = body.url if body.liveness_url is UNSET else body.liveness_url
        self._services.listener_urls.check(body.url, queue.tenant, field="url")
        self._services.listener_urls.check(liveness_url, queue.tenant, field="liveness_url")
        given = secrets.new_secret() if body.secret is UNSET else secrets.checked(body.secret)
        listener = secrets.new_listener(
            queue,
            body.name,
            body.url,
            self._sealer,
            now_ms=self._clock.now_ms(),
            secret=given,
            liveness_url=liveness_url,
            ordered=body.ordered,
            envelope=body.envelope,
            timeout_ms=body.timeout_ms,
            attempts_max=body.attempts_max,
            in_flight_max=body.in_flight_max,
            per_second_max=body.per_second_max,
        )
        await self._admin.listeners.create(listener, actor=call.actor)
        return {"listener": self._row(listener, PushStats()), "secret": given}

    async def show_listener(self, call: Call) -> dict[str, Any]:
        listener = self._listener(call)
        known = self._records.get(Liveness, listener.id)
        found = await attempts.read(
            self._reads.journal, self._queue(call), listener=listener.id, limit=ATTEMPTS_SHOWN
        )
        for row in await self._shown([listener]):
            return {
                **row,
                "liveness_url": listener.liveness_url,
                "timeout_ms": listener.timeout_ms,
                "attempts_max": listener.attempts_max,
                "in_flight_max": listener.in_flight_max,
                "per_second_max": listener.per_second_max,
                "inactive_ms": listener.inactive_ms or None,
                "last_failure": known.last_failure if known else "",
                "next_attempt_ms": await self._admin.listeners.next_attempt_ms(listener),
                "attempts": found.attempts,
            }
        raise NotFound("listener", listener.title)

    async def list_attempts(self, call: Call) -> attempts.Attempts:
        limit = number(call.request, "limit", default=100, low=1, high=attempts.LIMIT_MAX)
        before = number(call.request, "before", default=0, high=1 << 62) or None
        listener = self._listener(call)
        return await attempts.read(
            self._reads.journal, self._queue(call), listener=listener.id, before=before, limit=limit
        )

    async def test_listener(self, call: Call) -> dict[str, Any]:
        result = await liveness.trial(
            self._services.pushes, self._listener(call), self._queue(call)
        )
        report = Report(
            result.status, result.error, result.duration_ms, result.body[:ANSWER_KEPT_BYTES]
        )
        return {
            "ok": result.ok,
            "status": result.status,
            "duration_ms": result.duration_ms,
            "error": result.error,
            "answer": report.text,
        }

    async def retry_failed(self, call: Call) -> Retried:
        return await self._admin.listeners.retry_failed(self._listener(call))

    async def _shown(self, listeners: Sequence[Listener]) -> list[dict[str, Any]]:
        """Without those that are gone by now."""
        named = [listener.id for listener in listeners]
        stats = await self._reads.pushes.stats(named, now_ms=self._clock.now_ms())
        return [self._row(each, stats[each.id]) for each in listeners if each.id in stats]

    def _row(self, listener: Listener, stats: PushStats) -> dict[str, Any]:
        known = self._records.get(Liveness, listener.id)
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
            "last_success_ms": stats.last_success_ms or None,
            "last_failure_ms": stats.last_failure_ms or None,
            "created_ms": listener.created_ms,
        }

    async def enable_listener(self, call: Call) -> dict[str, Any]:
        listener = self._listener(call)
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
        body: OpsBackfillBody = call.body
        now_ms = self._clock.now_ms()
        since_ms = 0 if body.since_ms is UNSET else body.since_ms
        if body.since_ago_ms is not UNSET:
            if body.since_ms is not UNSET:
                raise InvalidRequest("since_ago_ms", "cannot be given together with since_ms")
            since_ms = max(0, now_ms - body.since_ago_ms)
        done = await self._admin.listeners.backfill(
            self._listener(call),
            since_ms=since_ms,
            until_ms=now_ms + 1 if body.until_ms is UNSET else body.until_ms,
            after_seq=0 if body.after is UNSET else body.after,
        )
        return {"bound": done.bound, "next": done.next_seq}
