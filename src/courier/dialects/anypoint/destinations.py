"""Admin: queues and exchanges."""

from collections.abc import Mapping, Sequence

from courier.core import keys
from courier.core.errors import Forbidden, InvalidRequest, NotFound
from courier.core.slices import Slices
from courier.core.types import Exchange, Queue, Tenant
from courier.dialects.anypoint import settings
from courier.dialects.anypoint.names import checked_name, id_of
from courier.dialects.anypoint.paging import PARAMETERS, choice, page, starts_with
from courier.dialects.anypoint.settings import DestinationResult, Mode
from courier.dialects.anypoint.site import JSON, AnypointFamily
from courier.dialects.site import given
from courier.web import Call, Parameter, Response, Route

_ORGANIZATION = "/organizations/{organizationId}"
ENVIRONMENT = _ORGANIZATION + "/environments/{environmentId}"
REGION = ENVIRONMENT + "/regions/{regionId}"
_QUEUE = REGION + "/destinations/queues/{queueId}"
_EXCHANGE = REGION + "/destinations/exchanges/{exchangeId}"
IDS_MAX = 1_000

_LIST = (
    Parameter("destinationType", str, "`all`, `queue` or `exchange`."),
    Parameter("destinationIds", str, "Only these, separated by commas."),
    *PARAMETERS,
)


class DestinationRoutes(AnypointFamily):
    family = "queues"

    def routes(self) -> list[Route]:
        queue, exchange = settings.AnypointQueueResult, settings.ExchangeResult
        return [
            Route("GET", "/v1" + REGION + "/destinations", self.list_destinations, "queues:read",
                  "listed",
                  "List queues and exchanges", result=list[DestinationResult], query=_LIST,
                  family="destinations"),
            Route("PUT", "/v1" + _QUEUE, self.put_queue, "queues:write", "target",
                  "Create a queue, or replace its settings", body=settings.AnypointQueueBody,
                  result=queue),
            Route("GET", "/v1" + _QUEUE, self.get_queue, "queues:read", "target", "Get a queue",
                  result=queue),
            Route("PATCH", "/v1" + _QUEUE, self.patch_queue, "queues:write", "target",
                  "Change settings of a queue; unnamed dead letters end",
                  body=settings.AnypointQueueBody, result=queue),
            Route("PATCH", "/v2" + _QUEUE, self.patch_queue_v2, "queues:write", "target",
                  "Change only the given settings of a queue", body=settings.AnypointQueueBody,
                  result=queue),
            Route("DELETE", "/v1" + _QUEUE, self.delete_queue, "queues:write", "target",
                  "Delete a queue and its messages", status=204),
            Route("DELETE", "/v1" + _QUEUE + "/messages", self.purge_queue, "queues:write",
                  "target",
                  "Delete all messages of a queue", status=204),
            Route("PUT", "/v1" + _QUEUE + "/fallback", self.put_fallback, "queues:write", "target",
                  "Failover to another region; not offered", body=settings.FallbackBody,
                  status=501),
            Route("PUT", "/v1" + _EXCHANGE, self.put_exchange, "queues:write", "target",
                  "Create an exchange, or replace its settings", body=settings.ExchangeBody,
                  body_optional=True, result=exchange, family="exchanges"),
            Route("GET", "/v1" + _EXCHANGE, self.get_exchange, "queues:read", "target",
                  "Get an exchange",
                  result=exchange, family="exchanges"),
            Route("PATCH", "/v1" + _EXCHANGE, self.patch_exchange, "queues:write", "target",
                  "Change settings of an exchange", body=settings.ExchangeBody,
                  result=exchange, family="exchanges"),
            Route("DELETE", "/v1" + _EXCHANGE, self.delete_exchange, "queues:write", "target",
                  "Delete an exchange and its bindings", status=204, family="exchanges"),
            Route("DELETE", "/v1" + ENVIRONMENT, self.clear_environment, "queues:write", "whole",
                  "Delete everything in an environment", status=204, family="everything"),
            Route("DELETE", "/v1" + _ORGANIZATION, self.clear_organization, "queues:write", "whole",
                  "Delete everything in an organization", status=204, family="everything"),
        ]  # fmt: skip

    def _queue(self, call: Call) -> Queue:
        return self._admin.queue_named(call.tenant, self._name(call, "queueId"))

    def _result(self, call: Call, queue: Queue) -> settings.AnypointQueueResult:
        return self._row(call, queue, self._admin.buriers(queue))

    def _row(
        self, call: Call, queue: Queue, buriers: Sequence[Queue], *, minimal: bool = False
    ) -> settings.AnypointQueueResult:
        """Dead letters from and to queues beyond reach are not shown."""
        destination, reach = self._regions.destination, call.reach
        target = None
        if queue.dead_letter and queue.dead_letter in reach:
            target = self._records.get(Queue, queue.dead_letter)
        return settings.queue_result(
            queue,
            destination(queue.name)[0],
            destination(target.name)[0] if target else "",
            [destination(source.name)[0] for source in buriers if source.id in reach],
            minimal=minimal,
        )

    async def list_destinations(self, call: Call) -> list[DestinationResult]:
        reach, query = call.reach, call.request.query
        kind = choice(query, "destinationType", ("all", "queue", "exchange"))
        minimal = choice(query, "inclusion", ("all", "minimal")) == "minimal"
        queues = self._records.scan(Queue, tenant=call.tenant)
        found: list[Queue | Exchange] = []
        if kind != "exchange":
            found += [queue for queue in queues if queue.id in reach]
        if kind != "queue":
            exchanges = self._records.scan(Exchange, tenant=call.tenant)
            found += [each for each in exchanges if self._admin.reaches(reach, each)]
        rows = page(await self._chosen(found, call), query)
        buriers: dict[str, list[Queue]] = {}
        for queue in [] if minimal else queues:
            if queue.dead_letter:
                buriers.setdefault(queue.dead_letter, []).append(queue)
        results: list[DestinationResult] = []
        slices = Slices()
        for id, each in rows:
            await slices.turn()
            if isinstance(each, Queue):
                row = self._row(call, each, buriers.get(each.id, ()), minimal=minimal)
                results.append(row)
            else:
                results.append(settings.exchange_result(each, id, minimal=minimal))
        return results

    async def _chosen(
        self, found: Sequence[Queue | Exchange], call: Call
    ) -> list[tuple[str, Queue | Exchange]]:
        """Those that the query asks for, in the order of the ids they are shown by."""
        ids = named_ids(call.request.query)
        named, start = None if ids is None else set(ids), starts_with(call.request.query)
        rows: list[tuple[str, Queue | Exchange]] = []
        slices = Slices()
        for each in found:
            await slices.turn()
            id, region = self._regions.destination(each.name)
            wanted = named is None or id in named
            if wanted and region == call.params["regionId"] and id.startswith(start):
                rows.append((id, each))
        rows.sort(key=lambda row: row[0])
        return rows

    # --- queues ---

    async def put_queue(self, call: Call) -> settings.AnypointQueueResult:
        return await self._put(call, "replace")

    async def patch_queue(self, call: Call) -> settings.AnypointQueueResult:
        return await self._put(call, "merge")

    async def patch_queue_v2(self, call: Call) -> settings.AnypointQueueResult:
        return await self._put(call, "merge_all")

    async def _put(self, call: Call, mode: Mode) -> settings.AnypointQueueResult:
        name = self._name(call, "queueId")
        body: settings.AnypointQueueBody = call.body
        dead_letter = given(body.deadLetterQueueId, "")

        def edit(current: Queue | None, target: Queue | None) -> Queue:
            if current is None:
                if mode != "replace":
                    raise NotFound("queue", name)
                checked_name(call.params["queueId"], "queueId")
            return settings.edited(
                body,
                current,
                target,
                mode=mode,
                tenant=call.tenant,
                name=name,
                now_ms=self._clock.now_ms(),
            )

        queue = await self._admin.put_queue(
            call.tenant,
            name,
            edit,
            dead_letter=self._regions.name(dead_letter, call.params["regionId"])
            if dead_letter
            else "",
            reach=call.reach,
            actor=call.actor,
        )
        return self._result(call, queue)

    async def get_queue(self, call: Call) -> settings.AnypointQueueResult:
        return self._result(call, self._queue(call))

    async def delete_queue(self, call: Call) -> None:
        queue = self._queue(call)
        await self._admin.delete_queue(
            call.tenant, queue.id, reach=call.reach, actor=call.actor, though_used=True
        )

    async def purge_queue(self, call: Call) -> None:
        await self._purge(call, self._queue(call))

    async def put_fallback(self, call: Call) -> Response:
        queue = self._queue(call)
        if queue.fifo:
            raise InvalidRequest("queueId", "a FIFO queue has no fallback")
        body = b'{"status":501,"message":"failover between regions is not offered"}'
        return Response(body, 501, JSON)

    # --- exchanges ---

    async def put_exchange(self, call: Call) -> settings.ExchangeResult:
        checked_name(call.params["exchangeId"], "exchangeId")
        return await self._put_exchange(call, given(call.body.encrypted, False))

    async def patch_exchange(self, call: Call) -> settings.ExchangeResult:
        exchange = self._exchange(call)
        return await self._put_exchange(call, given(call.body.encrypted, exchange.encrypted))

    async def _put_exchange(self, call: Call, encrypted: bool) -> settings.ExchangeResult:
        exchange = await self._admin.put_exchange(
            call.tenant, self._name(call, "exchangeId"), encrypted=encrypted, actor=call.actor
        )
        return settings.exchange_result(exchange, call.params["exchangeId"])

    def _exchange(self, call: Call) -> Exchange:
        return self._admin.exchange_named(call.tenant, self._name(call, "exchangeId"))

    async def get_exchange(self, call: Call) -> settings.ExchangeResult:
        return settings.exchange_result(self._exchange(call), call.params["exchangeId"])

    async def delete_exchange(self, call: Call) -> None:
        name = self._name(call, "exchangeId")
        await self._admin.delete_exchange(call.tenant, name, actor=call.actor)

    # --- everything ---

    async def clear_environment(self, call: Call) -> None:
        assert call.key is not None
        keys.require(call.key, "keys:write")
        await self._admin.clear_tenant(call.tenant, actor=call.actor)

    async def clear_organization(self, call: Call) -> None:
        assert call.key is not None
        keys.require(call.key, "keys:write")
        if call.key.kind != "user":
            raise Forbidden("organization")
        organization = id_of(call.params["organizationId"])
        for tenant in self._records.scan(Tenant):
            if tenant.organization == organization:
                await self._admin.clear_tenant(tenant.id, actor=call.actor)


def named_ids(query: Mapping[str, list[str]]) -> list[str] | None:
    """The `destinationIds`, given once with commas or several times; None: not given."""
    if "destinationIds" not in query:
        return None
    ids = [id for value in query["destinationIds"] for id in value.split(",") if id]
    if len(ids) > IDS_MAX:
        raise InvalidRequest("destinationIds", f"at most {IDS_MAX}, not {len(ids)}")
    return ids
