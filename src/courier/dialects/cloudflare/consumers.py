"""Consumers: how a queue's messages leave it, by pull or to a worker."""

import re
from typing import Any

from msgspec.structs import replace

from courier import ids
from courier.core.admin import Policy
from courier.core.errors import Conflict, InvalidRequest, NotFound
from courier.core.types import SECOND_MS, Consumer, Queue
from courier.dialects.cloudflare import wire
from courier.dialects.site import Family, SiteServices, given
from courier.web import Call, Route

_CONSUMERS = "/accounts/{account_id}/queues/{queue_id}/consumers"
_CONSUMER = _CONSUMERS + "/{consumer_id}"
_ID = re.compile("[0-9a-f]{32}")


class ConsumerRoutes(Family[SiteServices]):
    family = "consumers"

    def routes(self) -> list[Route]:
        return [
            Route("POST", _CONSUMERS, self.create_consumer, "queues:write", "target",
                  "Create a consumer",
                  body=wire.ConsumerBody, result=wire.ConsumerResult),
            Route("GET", _CONSUMERS, self.list_consumers, "queues:read", "target", "List consumers",
                  result=list[wire.ConsumerResult]),
            Route("GET", _CONSUMER, self.get_consumer, "queues:read", "target", "Get a consumer",
                  result=wire.ConsumerResult),
            Route("PUT", _CONSUMER, self.put_consumer, "queues:write", "target",
                  "Replace a consumer, or create it", body=wire.ConsumerBody,
                  result=wire.ConsumerResult),
            Route("DELETE", _CONSUMER, self.delete_consumer, "queues:write", "target",
                  "Delete a consumer"),
        ]  # fmt: skip

    def _result(self, call: Call, queue: Queue, consumer: Consumer) -> wire.ConsumerResult:
        target = None
        if queue.dead_letter and queue.dead_letter in call.reach:
            target = self._records.get(Queue, queue.dead_letter)
        return wire.consumer_result(queue, consumer, target.name if target else "")

    async def create_consumer(self, call: Call) -> wire.ConsumerResult:
        return await self._put(call, None)

    async def put_consumer(self, call: Call) -> wire.ConsumerResult:
        return await self._put(call, call.params["consumer_id"])

    async def _put(self, call: Call, id: str | None) -> wire.ConsumerResult:
        """Create a consumer (no id), or replace the one with this id."""
        body: wire.ConsumerBody = call.body
        numbers = wire.consumer_numbers(body)
        batch_size, retries = numbers["batch_size"], numbers["max_retries"]
        assert batch_size is not None and retries is not None
        settings: dict[str, Any] = {"batch_size": batch_size}
        if isinstance(body, wire.WorkerConsumerBody):
            settings |= {
                "mode": "push",
                "script": body.script_name,
                "wait_ms_max": numbers["max_wait_time_ms"],
                "concurrency_max": numbers["max_concurrency"],
            }
        else:
            settings |= {"mode": "pull", "script": ""}

        def make(queue: Queue, present: Consumer | None) -> Consumer:
            if present is not None and id is None:
                raise Conflict("consumer", queue.name)
            if present is not None and present.id == id:
                return replace(present, **settings)
            if present is not None or (id is not None and not _ID.fullmatch(id)):
                raise NotFound("consumer", str(id))
            return Consumer(
                id=id or ids.new_id(),
                tenant=queue.tenant,
                parent=queue.id,
                created_ms=self._clock.now_ms(),
                **settings,
            )

        dead_letter = given(body.dead_letter_queue, "")
        if dead_letter and not re.search(wire.NAME, dead_letter):
            # Another dialect may allow more; only what would be created must fit here.
            known = self._records.named(Queue, tenant=call.tenant, name=dead_letter)
            call.require(known.id if known else "")
            if known is None:
                raise InvalidRequest("dead_letter_queue", "this is not a queue's name")
        policy = Policy(
            attempts_max=retries + 1,
            retry_delay_ms=(numbers["retry_delay"] or 0) * SECOND_MS,
            lease_ms=numbers.get("visibility_timeout_ms", call.queue.lease_ms) or 0,
            dead_letter=dead_letter,
        )
        queue, consumer = await self._admin.put_consumer(
            call.tenant, call.queue.id, make, policy, reach=call.reach, actor=call.actor
        )
        return self._result(call, queue, consumer)

    async def list_consumers(self, call: Call) -> list[wire.ConsumerResult]:
        consumer = self._admin.consumer_of(call.queue)
        return [] if consumer is None else [self._result(call, call.queue, consumer)]

    async def get_consumer(self, call: Call) -> wire.ConsumerResult:
        consumer = self._admin.consumer(call.queue, call.params["consumer_id"])
        return self._result(call, call.queue, consumer)

    async def delete_consumer(self, call: Call) -> None:
        await self._admin.delete_consumer(
            call.tenant, call.queue.id, call.params["consumer_id"], actor=call.actor
        )
