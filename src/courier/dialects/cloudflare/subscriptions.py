"""Event subscriptions: which events become messages on which queue."""

from contextlib import AbstractAsyncContextManager, nullcontext

from msgspec import UNSET
from msgspec.structs import replace

from courier import ids
from courier.core import news
from courier.core.follower import Follower
from courier.core.types import EventSubscription
from courier.dialects.cloudflare import sources, wire
from courier.dialects.cloudflare.paging import Paged, page
from courier.dialects.site import Family, SiteServices, choice, given
from courier.web import Call, Parameter, Route

_SUBSCRIPTIONS = "/accounts/{account_id}/event_subscriptions/subscriptions"
_SUBSCRIPTION = _SUBSCRIPTIONS + "/{subscription_id}"

PER_PAGE = 20
PER_PAGE_MAX = 100

_ORDERS = {
    "name": lambda each: each.title,
    "created_at": lambda each: each.created_ms,
    "enabled": lambda each: each.enabled,
    "source": lambda each: sorted(each.source.items(), key=lambda item: item[0] != "type"),
}


class SubscriptionRoutes(Family[SiteServices]):
    family = "subscriptions"

    def __init__(self, services: SiteServices, follower: Follower) -> None:
        super().__init__(services)
        self._follower = follower

    def routes(self) -> list[Route]:
        query = (
            Parameter("page", int, "From 1."),
            Parameter("per_page", int, "1 to 100, 20 by default."),
            Parameter("order", str, "name (default), created_at, enabled or source."),
            Parameter("direction", str, "asc (default) or desc."),
            Parameter("queue_id", str, "Only those that feed this queue."),
        )
        result = wire.SubscriptionResult
        return [
            Route("POST", _SUBSCRIPTIONS, self.create_subscription, "queues:write", "named",
                  "Create an event subscription", body=wire.SubscriptionBody, result=result),
            Route("GET", _SUBSCRIPTIONS, self.list_subscriptions, "queues:read", "listed",
                  "List event subscriptions", result=list[wire.SubscriptionResult], query=query),
            Route("GET", _SUBSCRIPTION, self.get_subscription, "queues:write", "target",
                  "Get an event subscription", result=result),
            Route("PATCH", _SUBSCRIPTION, self.edit_subscription, "queues:write", "target",
                  "Change an event subscription", body=wire.SubscriptionEdit, result=result),
            Route("DELETE", _SUBSCRIPTION, self.delete_subscription, "queues:write", "target",
                  "Delete an event subscription", result=result),
        ]  # fmt: skip

    async def create_subscription(self, call: Call) -> wire.SubscriptionResult:
        body: wire.SubscriptionBody = call.body
        call.require(body.destination.queue_id)
        source = sources.source(body.source)
        _check_source(call, source)
        events = sources.events(source["type"], body.events)
        queue = self._admin.queue(call.tenant, body.destination.queue_id)
        async with self._settled(source) as since:
            now_ms = self._clock.now_ms()
            subscription = EventSubscription(
                id=ids.new_id(),
                tenant=call.tenant,
                parent=queue.id,
                created_ms=now_ms,
                modified_ms=now_ms,
                title=given(body.name, f"{queue.name} {source['type']}"),
                enabled=given(body.enabled, True),
                source=source,
                events=events,
                since=since,
            )
            created = await self._admin.put_subscription(
                call.tenant, None, lambda _: subscription, reach=call.reach, actor=call.actor
            )
        return wire.subscription_result(created)

    def _settled(self, source: dict[str, str]) -> AbstractAsyncContextManager[int]:
        """Whatever happened at the source so far is for the subscriptions as they are now."""
        return self._follower.settled() if source["type"] in news.OURS else nullcontext(0)

    async def list_subscriptions(self, call: Call) -> Paged:
        reach, query = call.reach, call.request.query
        order = choice(call.request, "order", tuple(_ORDERS))
        direction = choice(call.request, "direction", ("asc", "desc"))
        found = self._records.scan(
            EventSubscription, tenant=call.tenant, parent=query.get("queue_id", [None])[-1]
        )
        found = [each for each in found if each.parent in reach]
        found.sort(key=lambda each: each.id)
        found.sort(key=_ORDERS[order], reverse=direction == "desc")
        paged = page(call.request, found, per_page=PER_PAGE, per_page_max=PER_PAGE_MAX)
        return Paged([wire.subscription_result(each) for each in paged.rows], paged.info)

    async def get_subscription(self, call: Call) -> wire.SubscriptionResult:
        id = call.params["subscription_id"]
        return wire.subscription_result(self._admin.subscription(call.tenant, id))

    async def edit_subscription(self, call: Call) -> wire.SubscriptionResult:
        body: wire.SubscriptionEdit = call.body
        id = call.params["subscription_id"]
        destination = None if body.destination is UNSET else body.destination.queue_id
        if destination is not None:
            call.require(destination)
            self._admin.queue(call.tenant, destination)
        source = self._admin.subscription(call.tenant, id).source
        _check_source(call, source)
        async with self._settled(source) as since:

            def edit(known: EventSubscription | None) -> EventSubscription:
                assert known is not None
                return replace(
                    known,
                    modified_ms=self._clock.now_ms(),
                    title=given(body.name, known.title),
                    enabled=given(body.enabled, known.enabled),
                    events=known.events
                    if body.events is UNSET
                    else sources.events(source["type"], body.events),
                    parent=destination or known.parent,
                    since=since,
                )

            changed = await self._admin.put_subscription(
                call.tenant, id, edit, reach=call.reach, actor=call.actor
            )
        return wire.subscription_result(changed)

    async def delete_subscription(self, call: Call) -> wire.SubscriptionResult:
        id = call.params["subscription_id"]
        source = self._admin.subscription(call.tenant, id).source
        async with self._settled(source):
            deleted = await self._admin.delete_subscription(call.tenant, id, actor=call.actor)
        return wire.subscription_result(deleted)


def _check_source(call: Call, source: dict[str, str]) -> None:
    """What Courier tells of itself is about all queues of the tenant. Raises Forbidden."""
    if source["type"] in news.OURS:
        call.require()
