"""Queues, their metrics and their purge."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from courier import ids
from courier.core.errors import BrokerError, InvalidRequest
from courier.core.slices import Slices
from courier.core.types import Queue
from courier.dialects.cloudflare import wire
from courier.dialects.cloudflare.paging import Paged, info, page
from courier.dialects.site import Family, SiteServices
from courier.web import Call, Parameter, Response, Route

PER_PAGE = 100
PER_PAGE_MAX = 1_000
METRICS_EVERY_S = 1.0
METRICS_EVENTS_MAX = 86_400

_QUEUE = "/accounts/{account_id}/queues/{queue_id}"


class CloudflareQueueRoutes(Family[SiteServices]):
    family = "queues"

    def routes(self) -> list[Route]:
        paging = (
            Parameter("page", int, "From 1; without it all queues are listed."),
            Parameter("per_page", int, "1 to 1000, 100 by default."),
            Parameter("name", str, "Only the queue of exactly this name; may be repeated."),
        )
        return [
            Route("POST", "/accounts/{account_id}/queues", self.create_queue, "queues:write",
                  "whole",
                  "Create a queue", body=wire.NewQueueBody, result=wire.CloudflareQueueResult),
            Route("GET", "/accounts/{account_id}/queues", self.list_queues, "queues:read", "listed",
                  "List queues", result=list[wire.CloudflareQueueResult], query=paging),
            Route("GET", _QUEUE, self.get_queue, "queues:read", "target", "Get a queue",
                  result=wire.CloudflareQueueResult),
            Route("PUT", _QUEUE, self.replace_queue, "queues:write", "target",
                  "Replace a queue's settings; those left out go back to their defaults",
                  body=wire.CloudflareQueueBody, result=wire.CloudflareQueueResult),
            Route("PATCH", _QUEUE, self.edit_queue, "queues:write", "target",
                  "Change some of a queue's settings", body=wire.CloudflareQueueBody,
                  result=wire.CloudflareQueueResult),
            Route("DELETE", _QUEUE, self.delete_queue, "queues:write", "target",
                  "Delete a queue with its messages, consumer and subscriptions"),
            Route("GET", _QUEUE + "/metrics", self.get_metrics, "queues:read", "target",
                  "Backlog of a queue; as a stream of events when asked for text/event-stream",
                  result=wire.Metrics),
            Route("POST", _QUEUE + "/purge", self.start_purge, "queues:write", "target",
                  "Delete all messages of a queue", body=wire.PurgeBody, body_optional=True,
                  result=wire.CloudflareQueueResult),
            Route("GET", _QUEUE + "/purge", self.purge_status, "queues:read", "target",
                  "State of the last purge", result=wire.PurgeStatusResult),
        ]  # fmt: skip

    def _result(self, call: Call, queue: Queue) -> wire.CloudflareQueueResult:
        consumer = self._admin.consumer_of(queue)
        target = None
        if queue.dead_letter and queue.dead_letter in call.reach:
            target = self._records.get(Queue, queue.dead_letter)
        return wire.queue_result(queue, consumer, target.name if target else "")

    async def create_queue(self, call: Call) -> wire.CloudflareQueueResult:
        body: wire.NewQueueBody = call.body
        now_ms = self._clock.now_ms()
        queue = Queue(
            id=ids.new_id(),
            tenant=call.tenant,
            name=body.queue_name,
            created_ms=now_ms,
            modified_ms=now_ms,
            labels={} if body.jurisdiction is UNSET else {"jurisdiction": body.jurisdiction},
            **wire.queue_settings(body.settings),
        )
        return self._result(call, await self._admin.create_queue(queue, actor=call.actor))

    async def list_queues(self, call: Call) -> Paged:
        reach = call.reach
        queues = self._records.scan(Queue, tenant=call.tenant)
        queues = [queue for queue in queues if queue.id in reach]
        query = call.request.query
        if "name" in query:
            names = set(query["name"])
            queues = [queue for queue in queues if queue.name in names]
        if "page" in query or "per_page" in query:
            paged = page(call.request, queues, per_page=PER_PAGE, per_page_max=PER_PAGE_MAX)
        else:
            count = len(queues)
            paged = Paged(queues, info(1, max(count, 1), count, count))
        rows = []
        slices = Slices()
        for queue in paged.rows:
            await slices.turn()
            rows.append(self._result(call, queue))
        return Paged(rows, paged.info)

    async def get_queue(self, call: Call) -> wire.CloudflareQueueResult:
        return self._result(call, call.queue)

    async def replace_queue(self, call: Call) -> wire.CloudflareQueueResult:
        default = Queue(id="", tenant="", created_ms=0, modified_ms=0)
        fields = {name: getattr(default, name) for name in ("delay_ms", "paused", "retention_ms")}
        return await self._edit(call, fields)

    async def edit_queue(self, call: Call) -> wire.CloudflareQueueResult:
        return await self._edit(call, {})

    async def _edit(self, call: Call, fields: dict[str, int | bool]) -> wire.CloudflareQueueResult:
        body: wire.CloudflareQueueBody = call.body
        changes = fields | wire.queue_settings(body.settings)

        def edit(queue: Queue) -> Queue:
            if body.jurisdiction is not UNSET and body.jurisdiction != queue.labels.get(
                "jurisdiction"
            ):
                raise InvalidRequest("jurisdiction", "it is set at creation and cannot change")
            name = queue.name if body.queue_name is UNSET else body.queue_name
            return replace(queue, name=name, **changes)

        queue = await self._admin.update_queue(
            call.tenant, call.queue.id, edit, reach=call.reach, actor=call.actor
        )
        return self._result(call, queue)

    async def delete_queue(self, call: Call) -> None:
        await self._admin.delete_queue(
            call.tenant, call.queue.id, reach=call.reach, actor=call.actor
        )

    async def get_metrics(self, call: Call) -> wire.Metrics | Response:
        if "text/event-stream" in call.request.header(b"accept"):
            return Response(
                b"", content_type=b"text/event-stream", stream=self._metrics_events(call.queue)
            )
        return wire.metrics(await self._broker.stats(call.queue))

    async def _metrics_events(self, queue: Queue) -> AsyncIterator[bytes]:
        for _ in range(METRICS_EVENTS_MAX):
            try:
                stats = wire.metrics(await self._broker.stats(queue))
            except BrokerError:
                return  # the queue is gone
            yield b"data: " + msgspec.json.encode(stats) + b"\n\n"
            await asyncio.sleep(METRICS_EVERY_S)

    async def start_purge(self, call: Call) -> wire.CloudflareQueueResult:
        body: wire.PurgeBody = call.body
        if body.delete_messages_permanently is False:
            raise InvalidRequest("delete_messages_permanently", "must be true to purge")
        return self._result(call, await self._purge(call, call.queue))

    async def purge_status(self, call: Call) -> wire.PurgeStatusResult:
        purge = call.queue.purge
        if purge is None:
            return wire.PurgeStatusResult("", "")
        return wire.PurgeStatusResult(
            "true" if purge.completed else "false", wire.time_text(purge.started_ms)
        )
