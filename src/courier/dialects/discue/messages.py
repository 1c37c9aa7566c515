"""Messages: add, list, read, rename, delete, and retry a push by hand.

Lists go queue by queue, oldest first, and in each by the order of arrival. Where a list goes on,
`_links.next` continues behind its last item, whatever was added or deleted meanwhile; `page` counts
from the beginning each time, and so only so far.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from courier import ids
from courier.core import attempts
from courier.core.errors import NotFound
from courier.core.types import Listener, Message, Push, Queue
from courier.delivery.requests import message_id
from courier.dialects.discue import attempt_wire, names
from courier.dialects.discue import message_wire as wire
from courier.dialects.discue.errors import KeyReused, NotRetryable
from courier.dialects.discue.queues import QUEUE, Item
from courier.dialects.discue.site import DiscueFamily, Success
from courier.dialects.discue.wire import PAGE_MAX, PAGING, Named, page
from courier.dialects.site import InvalidQuery
from courier.web import Call, Parameter, Route

EVERYWHERE = "/messages"
MESSAGES = QUEUE + EVERYWHERE
MESSAGE = MESSAGES + "/{message_id}"
# Others have their turn between.
STEP = 100
PAGES_REACH = 10_000
QUEUES_LOOKED_AT_MAX = 1_000
# Of how many queues it is remembered where their messages are.
QUEUES_REMEMBERED_MAX = 128
_LIST = (*PAGING, Parameter("after", str, "Only what follows; `_links.next` says it."))


class StatsRow(NamedTuple):
    queue: Queue
    item: Item


class DiscueMessageRoutes(DiscueFamily):
    family = "messages"

    def routes(self) -> list[Route]:
        return [
            Route("GET", EVERYWHERE, self.list_all_messages, "messages:read", "listed",
                  "List messages of all queues", result=wire.MessagesAnswer, query=_LIST),
            Route("GET", MESSAGES, self.list_messages, "messages:read", "target", "List messages",
                  result=wire.MessagesAnswer, query=_LIST),
            Route("POST", MESSAGES, self.add_message, "messages:publish", "target", "Add a message",
                  body=wire.DiscueMessageBody, result=wire.AddedAnswer),
            Route("PUT", MESSAGES, self.add_message, "messages:publish", "target", "Add a message",
                  body=wire.DiscueMessageBody, described=False),
            Route("GET", MESSAGE, self.get_message, "messages:read", "target",
                  "Get a message, and how far it has come", result=wire.MessageAnswer),
            Route("PUT", MESSAGE, self.rename_message, "messages:consume", "target",
                  "Rename a message",
                  body=Named, result=wire.AddedAnswer),
            Route("DELETE", MESSAGE, self.delete_message, "messages:consume", "target",
                  "Delete a message"),
            Route("POST", MESSAGE + "/deliveries/{listener_id}/retry", self.retry_delivery,
                  "messages:consume", "target", "Push a message to a listener again, now",
                  result=wire.DeliveryAnswer),
            Route("GET", MESSAGE + "/attempts", self.message_attempts, "messages:read", "target",
                  "List attempts to push a message, newest first",
                  result=attempt_wire.AttemptsAnswer, query=attempt_wire.QUERY),
        ]  # fmt: skip

    # --- lists ---

    async def list_messages(self, call: Call) -> Success:
        after = _after(call)
        seq = _seq(call.queue, after) if after else 0
        return await self._list(call, [call.queue], seq, _collection(call.queue.id))

    async def list_all_messages(self, call: Call) -> Success:
        within = call.reach
        queues = [
            queue for queue in self._records.scan(Queue, tenant=call.tenant) if queue.id in within
        ]
        after, seq = _after(call), 0
        if after:
            last, _, message = after.partition(".")
            places = {queue.id: place for place, queue in enumerate(queues)}
            if names.read(last) not in places:
                raise InvalidQuery("after", "names a queue that is gone; begin again")
            queues = queues[places[names.read(last)] :]
            seq = (
                _seq(queues[0], message)
                if message
                else await self._reads.messages.tail(queues[0].id)
            )
        return await self._list(call, queues, seq, EVERYWHERE)

    async def _list(self, call: Call, queues: list[Queue], seq: int, path: str) -> Success:
        # As if there were as many as pages may reach.
        places, _ = page(range(PAGES_REACH), call.request, path)
        if not places:
            raise InvalidQuery(
                "page", f"must end before {PAGES_REACH} messages; follow _links.next"
            )
        skip, size = places[0], len(places)
        looked_at = queues[:QUEUES_LOOKED_AT_MAX]
        rows = await self._rows(looked_at, seq, skip + size + 1)
        shown = rows[skip : skip + size]
        last = ""
        if len(rows) > skip + size:
            last = shown[-1].item.id
            if path == EVERYWHERE:
                last = f"{names.shown(shown[-1].queue.id)}.{last}"
        elif len(queues) > len(looked_at):
            last = names.shown(looked_at[-1].id)
        links = []
        if last:
            per_page = f"&per_page={size}" if size <= PAGE_MAX else ""
            links.append(("next", "next", f"{path}?after={last}{per_page}"))
        links += [(row.item.name, row.item.id, _path(row.queue, row.item)) for row in shown]
        return Success({"messages": [row.item for row in shown]}, path, links)

    async def _rows(self, queues: Sequence[Queue], seq: int, count: int) -> list[StatsRow]:
        """Up to `count` messages of those queues, beginning behind `seq` of the first."""
        rows: list[StatsRow] = []
        for queue in queues:
            with suppress(NotFound):  # a queue that was deleted meanwhile has none
                while len(rows) < count:
                    limit = min(STEP, count - len(rows))
                    found = await self._reads.messages.browse(
                        queue.id,
                        after_seq=seq,
                        limit=limit,
                        now_ms=self._clock.now_ms(),
                        kept=True,
                        bodies=False,
                    )
                    rows += [StatsRow(queue, wire.item(queue, message)) for message in found]
                    if len(found) < limit:
                        break
                    seq = found[-1].seq
            if len(rows) == count:
                break
            seq = 0
        return rows

    # --- one message ---

    async def add_message(self, call: Call) -> Success:
        queue: Queue = call.queue
        chosen = call.body.chosen()
        drafts = wire.drafts(call.body, chosen, call.request)
        receipt = await self._broker.publish(queue, drafts, actor=call.actor)
        id = receipt.ids[0]
        if receipt.repeated[0]:
            known = await self._find(queue, id)
            if known is not None:
                if self._broker.opened(queue, known).body != drafts[0].body:
                    raise KeyReused
                return _answer(queue, wire.item(queue, known))
        shown = names.shown(id)
        name = chosen or names.invented(queue, shown)
        return _answer(queue, Item(shown, name, name))

    async def get_message(self, call: Call) -> Success:
        message = await self._message(call)
        pushes = await self._pushes(call.queue, message)
        call.admit(message.size)
        opened = self._broker.opened(call.queue, message)
        member = wire.member(call.queue, opened, pushes, call.long_texts())
        return Success({"message": member}, _path(call.queue, member))

    async def rename_message(self, call: Call) -> Success:
        body: Named = call.body
        name = body.required()
        message = await self._message(call)
        renamed = await self._broker.rename(call.queue, message, name, actor=call.actor)
        return _answer(call.queue, wire.item(call.queue, renamed))

    async def delete_message(self, call: Call) -> Success:
        message = await self._message(call)
        await self._broker.delete(call.queue, message, actor=call.actor)
        return Success({}, _collection(call.queue.id))

    async def retry_delivery(self, call: Call) -> Success:
        message = await self._message(call)
        listener = names.read(call.params["listener_id"])
        retried = await self._admin.listeners.retry(listener, message.seq)
        for push, to in await self._pushes(call.queue, message):
            if to.id == listener:
                if not retried:
                    raise NotRetryable(push.status)
                path = _path(call.queue, wire.item(call.queue, message))
                return Success({"delivery": wire.delivery(push, to)}, path)
        raise NotFound("delivery", listener)

    async def message_attempts(self, call: Call) -> Success:
        """Also of a message that is done, as long as the journal has them."""
        id = names.read(call.params["message_id"])
        if ids.message_seq(id, queue=call.queue.id) is None:
            raise NotFound("message", id)
        limit, before = attempt_wire.asked(call.request)
        found = await attempts.read(
            self._reads.journal, call.queue, message=id, before=before, limit=limit
        )
        path = f"{_collection(call.queue.id)}/{names.shown(id)}/attempts"
        return attempt_wire.answer(found, self._records, path)

    async def _find(self, queue: Queue, id: str) -> Message | None:
        """By its generated id, which another message's own id may look like."""
        found = await self._reads.messages.find(queue.id, id, now_ms=self._clock.now_ms())
        return found if found and message_id(queue, found) == id else None

    async def _message(self, call: Call) -> Message:
        id = names.read(call.params["message_id"])
        found = await self._find(call.queue, id) if id else None
        if found is None:
            raise NotFound("message", id)
        return found

    async def _pushes(self, queue: Queue, message: Message) -> list[tuple[Push, Listener]]:
        listeners = {each.id: each for each in self._records.scan(Listener, parent=queue.id)}
        now_ms = self._clock.now_ms()
        return [
            (push, listeners[push.listener])
            for push in await self._reads.pushes.of_message(queue.id, message.seq, now_ms=now_ms)
            if push.listener in listeners
        ]


@lru_cache(maxsize=QUEUES_REMEMBERED_MAX)
def _collection(queue: str) -> str:
    """The path of a queue's messages, by its id, which takes a while to spell."""
    return f"/queues/{names.shown(queue)}/messages"


def _path(queue: Queue, item: Item) -> str:
    return f"{_collection(queue.id)}/{item.id}"


def _answer(queue: Queue, item: Item) -> Success:
    return Success({"message": item}, _path(queue, item))


def _after(call: Call) -> str:
    """Where the list goes on; "": at its beginning."""
    query = call.request.query
    if "after" in query and "page" in query:
        raise InvalidQuery("page", "cannot be given together with after")
    return query.get("after", [""])[-1]


def _seq(queue: Queue, message: str) -> int:
    seq = ids.message_seq(names.read(message), queue=queue.id)
    if seq is None:
        raise InvalidQuery("after", "is not where a list could go on")
    return seq
