"""Announcing: what happens at a source becomes messages on the queues that subscribe to it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from courier.clock import Clock
from courier.core.admission import Admission
from courier.core.errors import Frozen, NotFound, OverLimit, StoreUnavailable
from courier.core.store import Store
from courier.core.types import BROKER, DAY_MS, Actor, Draft, EventSubscription, Queue

# How often a queue may be deleted under our hands before we give up.
TRIES_MAX = 5

log = logging.getLogger("courier.announcer")


class Announcement(Struct, frozen=True, kw_only=True):
    """Something that happened at a source.

    `source` is what subscriptions name, `extra` what the source is known by besides. `payload`
    is a JSON object. Of announcements with the same `id`, if it has one, a subscription is told
    one within `once_ms`. `queue` is the id of the queue it is about, if there is one, and
    `offset` that of the journal's event it was made from.
    """

    tenant: str
    source: dict[str, str]
    event: str
    payload: bytes
    at_ms: int
    extra: Mapping[str, str] = {}
    id: str = ""
    once_ms: int = DAY_MS
    queue: str = ""
    offset: int = 0


class Catalogue(Protocol):
    """What a dialect knows of sources: their fields and events, and how a message tells one."""

    def read(self, source: Mapping[str, Any], event: str) -> tuple[dict[str, str], dict[str, str]]:
        """What subscriptions name of the source, and what else it has. Raises InvalidRequest."""
        ...

    def render(self, announcement: Announcement, subscription: EventSubscription) -> bytes: ...


class Told(Struct, frozen=True):
    """How many subscriptions got it, had got it before, and have a queue that refused it."""

    delivered: int = 0
    repeated: int = 0
    refused: int = 0


Pair = tuple[EventSubscription, Announcement]


def hears(subscription: EventSubscription, announcement: Announcement) -> bool:
    """It is about what the subscription is to."""
    events, event = subscription.events, announcement.event
    return (
        subscription.enabled
        and subscription.tenant == announcement.tenant
        and (event in events or f"{event.partition('.')[0]}.*" in events)
        and announcement.source.items() <= subscription.source.items()
    )


class Announcer:
    def __init__(
        self, store: Store, clock: Clock, admission: Admission, catalogue: Catalogue
    ) -> None:
        self._store = store
        self._records = store.records
        self._clock = clock
        self._admission = admission
        self._catalogue = catalogue

    async def announce(
        self,
        tenant: str,
        source: Mapping[str, Any],
        event: str,
        payload: bytes,
        *,
        id: str,
        actor: Actor,
    ) -> Told:
        """Tell everyone who subscribes to it now. Raises InvalidRequest."""
        named, extra = self._catalogue.read(source, event)
        announcement = Announcement(
            tenant=tenant,
            source=named,
            event=event,
            payload=payload,
            at_ms=self._clock.now_ms(),
            extra=extra,
            id=id,
        )
        subscriptions = self._records.scan(EventSubscription, tenant=tenant)
        pairs = [(each, announcement) for each in subscriptions if hears(each, announcement)]
        return await self.tell(pairs, actor=actor)

    async def tell(self, pairs: Sequence[Pair], *, actor: Actor = BROKER) -> Told:
        """Publish what each subscription is to be told, all in one transaction.

        A queue that takes no more is left out: it must not keep news from the others.
        """
        for _ in range(TRIES_MAX):
            now_ms = self._clock.now_ms()
            batches = await self._batches(pairs, now_ms)
            if not batches:
                return Told(refused=len(pairs))
            try:
                receipts = await self._store.publish(batches, actor=actor, now_ms=now_ms)
            except NotFound:  # a queue was deleted meanwhile, and its subscriptions with it
                continue
            repeated = [each for receipt in receipts for each in receipt.repeated]
            count = len(repeated)
            return Told(count - sum(repeated), sum(repeated), len(pairs) - count)
        raise StoreUnavailable("queues are deleted faster than events can reach the others")

    async def _batches(
        self, pairs: Sequence[Pair], now_ms: int
    ) -> list[tuple[str, Sequence[Draft]]]:
        """What to publish where, without what a queue would refuse."""
        drafts: dict[str, list[Draft]] = {}
        for subscription, announcement in pairs:
            drafts.setdefault(subscription.parent, []).append(
                self._draft(subscription, announcement)
            )
        batches: list[tuple[str, Sequence[Draft]]] = []
        for id, wanted in drafts.items():
            queue = self._records.get(Queue, id)
            if queue is None:
                continue
            taken, reason = await self._taken(queue, wanted, now_ms)
            if len(taken) < len(wanted):
                log.warning(
                    "events_refused",
                    extra={"queue": id, "count": len(wanted) - len(taken), "reason": reason},
                )
            if taken:
                batches.append((id, self._admission.sealed(queue, taken)))
        return batches

    def _draft(self, subscription: EventSubscription, announcement: Announcement) -> Draft:
        once = f"event\n{subscription.id}\n{announcement.id}" if announcement.id else None
        body = self._catalogue.render(announcement, subscription)
        return Draft(body, "text", once_key=once, once_ms=announcement.once_ms)

    async def _taken(
        self, queue: Queue, drafts: list[Draft], now_ms: int
    ) -> tuple[list[Draft], str]:
        """Those of the drafts that the queue takes, and why it does not take the others."""
        fitting = await self._admission.fitting(queue, drafts)
        try:
            await self._admission.admit_many(queue, fitting, now_ms=now_ms, rated=False)
        except Frozen:
            return [], "frozen"
        except OverLimit:
            return [], "full"
        return fitting, "schema"
