"""Listeners: URLs that a queue's messages are pushed to."""

from msgspec import UNSET
from msgspec.structs import replace

from courier.core import attempts
from courier.core.errors import InvalidRequest, NotFound
from courier.core.types import Listener, Liveness
from courier.delivery import secrets
from courier.delivery.secrets import Private
from courier.dialects.discue import attempt_wire, names
from courier.dialects.discue import listener_wire as wire
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import PAGING, Link, page
from courier.web import Call, Route

MISSED_SHOWN_MAX = 100
_LISTENERS = "/queues/{queue_id}/listeners"
_LISTENER = _LISTENERS + "/{listener_id}"


class ListenerRoutes(DiscueFamily):
    family = "listeners"

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/listeners", self.list_all_listeners, "listeners:read", "listed",
                  "List listeners of all queues", result=wire.ListenersAnswer, query=PAGING),
            Route("GET", _LISTENERS, self.list_listeners, "listeners:read", "target",
                  "List listeners",
                  result=wire.ListenersAnswer, query=PAGING),
            Route("POST", _LISTENERS, self.create_listener, "listeners:write", "target",
                  "Create a listener", body=wire.ListenerBody, result=wire.ListenerAnswer),
            Route("PUT", _LISTENERS, self.create_listener, "listeners:write", "target",
                  "Create a listener", body=wire.ListenerBody, described=False),
            Route("GET", _LISTENER, self.get_listener, "listeners:read", "target", "Get a listener",
                  result=wire.ListenerAnswer),
            Route("PUT", _LISTENER, self.update_listener, "listeners:write", "target",
                  "Change a listener", body=wire.ListenerBody, body_optional=True,
                  result=wire.ListenerAnswer),
            Route("DELETE", _LISTENER, self.delete_listener, "listeners:write", "target",
                  "Delete a listener"),
            Route("POST", _LISTENER + "/rotate_secret", self.rotate_secret, "listeners:write",
                  "target",
                  "Sign with another secret, and for a day with the old one too",
                  body=wire.SecretBody, body_optional=True,
                  result=wire.ListenerAnswer),
            Route("POST", _LISTENER + "/backfill", self.backfill, "listeners:write", "target",
                  "Also push messages from before the listener was created",
                  body=wire.BackfillBody, body_optional=True, result=wire.BackfillAnswer),
            Route("POST", _LISTENER + "/retry_failed", self.retry_failed, "messages:consume",
                  "target", "Push again, now, all messages that failed",
                  result=wire.RetriedAnswer),
            Route("GET", _LISTENER + "/attempts", self.list_attempts, "listeners:read", "target",
                  "List attempts to push to a listener, newest first",
                  result=attempt_wire.AttemptsAnswer, query=attempt_wire.QUERY),
        ]  # fmt: skip

    async def list_all_listeners(self, call: Call) -> Success:
        within = call.reach
        found = [
            each
            for each in self._records.scan(Listener, tenant=call.tenant)
            if each.id in within or each.parent in within
        ]
        return self._list(call, found, "/listeners")

    async def list_listeners(self, call: Call) -> Success:
        found = self._records.scan(Listener, parent=call.queue.id)
        return self._list(call, found, f"/queues/{names.shown(call.queue.id)}/listeners")

    def _list(self, call: Call, found: list[Listener], path: str) -> Success:
        shown, links = page(found, call.request, path)
        links += [_link(each) for each in shown]
        return Success({"listeners": [self._member(each) for each in shown]}, path, links)

    async def create_listener(self, call: Call) -> Success:
        body: wire.ListenerBody = call.body
        title = body.required()
        if body.notify_url is UNSET:
            raise InvalidRequest("notify_url", "is required")
        if body.liveness_url is UNSET:
            raise InvalidRequest("liveness_url", "is required")
        self._check_urls(call)
        secret = wire.secret(body)
        hidden = wire.private(Private(), body)
        listener = secrets.new_listener(
            call.queue,
            title,
            body.notify_url,
            self._sealer,
            now_ms=self._clock.now_ms(),
            secret=secret,
            liveness_url=body.liveness_url,
        )
        private = secrets.seal_private(hidden, self._sealer, tenant=listener.tenant, id=listener.id)
        listener = replace(wire.changed(listener, body), private=private)
        await self._admin.listeners.create(listener, actor=call.actor)
        return self._answer(listener, secret)

    def _check_urls(self, call: Call) -> None:
        """Raises InvalidRequest for a URL that will not be called."""
        body: wire.ListenerBody = call.body
        for field, url in (("notify_url", body.notify_url), ("liveness_url", body.liveness_url)):
            if url is not UNSET:
                self._services.listener_urls.check(url, call.tenant, field=field)

    async def get_listener(self, call: Call) -> Success:
        listener = self._listener(call)
        now_ms = self._clock.now_ms()
        missed = await self._reads.pushes.missed(listener.id, limit=MISSED_SHOWN_MAX, now_ms=now_ms)
        stats = await self._reads.pushes.stats([listener.id], now_ms=now_ms)
        if listener.id not in stats:
            raise NotFound("listener", listener.id)
        member = self._member(listener)
        member.liveness = wire.liveness_member(self._records.get(Liveness, listener.id))
        member.messages = wire.messages_member(stats[listener.id], missed)
        return Success({"listener": member}, _path(listener))

    async def update_listener(self, call: Call) -> Success:
        body: wire.ListenerBody = call.body
        self._check_urls(call)
        if body.signing_secret is not UNSET:
            raise InvalidRequest("signing_secret", "is changed with rotate_secret")

        def edit(known: Listener) -> Listener:
            listener = secrets.resealed(wire.changed(known, body), self._sealer)
            if body.headers is UNSET and body.auth is UNSET:
                return listener
            hidden = wire.private(secrets.open_private(known, self._sealer), body)
            private = secrets.seal_private(hidden, self._sealer, tenant=known.tenant, id=known.id)
            return replace(listener, private=private)

        id = names.read(call.params["listener_id"])
        listener = await self._admin.listeners.update(call.queue.id, id, edit, actor=call.actor)
        return self._answer(listener)

    async def delete_listener(self, call: Call) -> Success:
        id = names.read(call.params["listener_id"])
        await self._admin.listeners.delete(call.queue.id, id, actor=call.actor)
        return Success({}, f"/queues/{names.shown(call.queue.id)}/listeners")

    async def rotate_secret(self, call: Call) -> Success:
        secret, id = wire.secret(call.body), names.read(call.params["listener_id"])
        sealed = secrets.sealed(secret, self._sealer, Listener, tenant=call.tenant, id=id)
        listener = await self._admin.listeners.rotate(call.queue.id, id, sealed, actor=call.actor)
        return self._answer(listener, secret)

    async def backfill(self, call: Call) -> Success:
        body: wire.BackfillBody = call.body
        listener = self._listener(call)
        done = await self._admin.listeners.backfill(
            listener,
            since_ms=0 if body.since is UNSET else body.since,
            until_ms=self._clock.now_ms() + 1 if body.until is UNSET else body.until,
            after_seq=0 if body.after is UNSET else body.after,
        )
        found = wire.Backfill(done.bound, UNSET if done.next_seq is None else done.next_seq)
        return Success({"backfill": found}, _path(listener))

    async def retry_failed(self, call: Call) -> Success:
        listener = self._listener(call)
        done = await self._admin.listeners.retry_failed(listener)
        return Success({"retried": done}, _path(listener))

    async def list_attempts(self, call: Call) -> Success:
        listener = self._listener(call)
        limit, before = attempt_wire.asked(call.request)
        found = await attempts.read(
            self._reads.journal, call.queue, listener=listener.id, before=before, limit=limit
        )
        return attempt_wire.answer(found, self._records, f"{_path(listener)}/attempts")

    def _listener(self, call: Call) -> Listener:
        id = names.read(call.params["listener_id"])
        return self._admin.listeners.of_queue(call.queue.id, id)

    def _member(self, listener: Listener) -> wire.ListenerMember:
        return wire.member(listener, secrets.open_private(listener, self._sealer))

    def _answer(self, listener: Listener, secret: str = "") -> Success:
        member = self._member(listener)
        if secret:
            member.signing_secret = secret
        return Success({"listener": member}, _path(listener))


def _path(listener: Listener) -> str:
    return f"/queues/{names.shown(listener.parent)}/listeners/{names.shown(listener.id)}"


def _link(listener: Listener) -> Link:
    return listener.title, names.shown(listener.id), _path(listener)
