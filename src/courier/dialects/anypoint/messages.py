"""The broker API: publish, get, ack, nack, lock TTL, one or up to ten at a time."""

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

from msgspec import UNSET

from courier import ids
from courier.core.broker import Routable
from courier.core.errors import BrokerError, InvalidRequest, NotFound, OverLimit, Rejected
from courier.core.slices import Slices
from courier.core.types import (
    SECOND_MS,
    Ack,
    Draft,
    Exchange,
    Extend,
    Outcome,
    Queue,
    Retry,
    Settlement,
)
from courier.dialects import example
from courier.dialects.anypoint import tokens, wire
from courier.dialects.anypoint.site import JSON, AnypointServices, AnypointSite
from courier.dialects.site import Family, encode
from courier.refusals import Refusal
from courier.web import Call, Parameter, Request, Response, Route

LEASED_MAX = 120_000
# Nothing about locks needs a long request.
LOCKS_BYTES_MAX = 1 << 20
# A body of the largest size, with every byte of it escaped.
REQUEST_BYTES_MAX = 64 << 20
_PLACE = (
    "/organizations/{organizationId}/environments/{environmentId}"
    "/destinations/{destinationId}/messages"
)
_CONTRACT = (
    "OrganizationsByOrganizationidEnvironmentsByEnvironmentidDestinationsByDestinationidMessages"
)
_ONE = "ByMessageidLocksByLockid"

_NOTHING = Response(b"", 204)

_TEXT = {"type": "string"}
_FAILURE = {
    "type": "object",
    "required": ["status", "statusMessage"],
    "properties": {"status": {"const": "failure"}, "statusMessage": _TEXT, "messageId": _TEXT},
}
_FAILURES = {"anyOf": [_FAILURE, {"type": "array", "items": _FAILURE}]}

# What settles a lease: from its sequence and attempt.
Settle = Callable[[int, int], Settlement]


class BrokerSite(AnypointSite):
    """The site under /api/v1."""

    prefix = "/api/v1"
    title = "Courier: Anypoint MQ, broker"
    shell = example.ANYPOINT_APP
    body_bytes_max = REQUEST_BYTES_MAX
    failure = _FAILURES
    for_apps = True

    def __init__(self, services: AnypointServices) -> None:
        token = tokens.app_token(
            services, "/authorize", with_client=True, contract="createAuthorize"
        )
        super().__init__(services, [*AnypointMessageRoutes(services).table(), token])

    def refuse(self, error: BrokerError, route: Route | None, request: Request) -> Response:
        if isinstance(error, NotFound):  # also a queue that goes while somebody waits for it
            error = NotFound("destination", error.ref)
        return super().refuse(error, route, request)

    def decode(self, raw: bytes, route: Route, request: Request) -> Any:
        if route.body is wire.MessageBatch:
            return wire.batch(raw)
        if route.body is wire.MessageBody:
            return wire.message(raw)
        return super().decode(raw, route, request)

    def refused(self, refused: Refusal, request: Request) -> Response:
        body = {"status": "failure", "statusMessage": refused.message}
        if "messageId" in request.params:
            body["messageId"] = request.params["messageId"]
        return Response(encode(body), refused.status, JSON)

    def broken(self, id: str) -> Response:
        return Response(b'{"status":"failure","statusMessage":"internal error"}', 500, JSON)


class AnypointMessageRoutes(Family[AnypointServices]):
    family = "messages"

    def routes(self) -> list[Route]:
        common: dict[str, Any] = {"reach": "target"}
        publish: dict[str, Any] = {"scope": "messages:publish", **common}
        consume: dict[str, Any] = {"scope": "messages:consume", **common}
        locks: dict[str, Any] = {**consume, "family": "locks"}
        settle: dict[str, Any] = {"result": list[wire.Result], "body_bytes_max": LOCKS_BYTES_MAX}
        one = _PLACE + "/{messageId}"
        return [
            Route("GET", _PLACE, self.get, summary="Get messages, and lock them", **consume,
                  query=_POLLING, result=list[wire.Delivered], others=(204,),
                  contract="get" + _CONTRACT),
            Route("PUT", _PLACE, self.publish_batch, summary="Publish up to 10 messages", **publish,
                  body=wire.MessageBatch, result=list[wire.Result], contract="update" + _CONTRACT),
            Route("DELETE", _PLACE, self.ack_batch, summary="Acknowledge up to 10 messages",
                  **consume, body=wire.LockBatch, **settle,
                  contract="delete" + _CONTRACT),
            Route("PATCH", _PLACE + "/locks", self.extend_batch,
                  summary="Change how long up to 10 locks last", **locks, body=wire.LockTtlBatch,
                  **settle, contract=f"patch{_CONTRACT}Locks"),
            Route("DELETE", _PLACE + "/locks", self.nack_batch, summary="Give up to 10 locks back",
                  **consume, body=wire.LockBatch, **settle,
                  contract=f"delete{_CONTRACT}Locks"),
            Route("PUT", one, self.publish, summary="Publish a message", **publish,
                  body=wire.MessageBody, result=wire.Result, status=201,
                  contract=f"update{_CONTRACT}ByMessageid"),
            Route("PUT", _PLACE + "/locks", self.publish, summary="Publish a message called locks",
                  **publish, body=wire.MessageBody, result=wire.Result, status=201,
                  described=False),
            Route("DELETE", one, self.ack, summary="Acknowledge a message", **consume,
                  body=wire.LockBody, body_bytes_max=LOCKS_BYTES_MAX, result=wire.Result,
                  contract=f"delete{_CONTRACT}ByMessageid"),
            Route("PATCH", one + "/locks/{lockId}", self.extend,
                  summary="Change how long a lock lasts", **locks, body=wire.LockTtlBody,
                  body_bytes_max=LOCKS_BYTES_MAX, result=wire.Result,
                  contract=f"patch{_CONTRACT}{_ONE}"),
            Route("DELETE", one + "/locks/{lockId}", self.nack, summary="Give a lock back",
                  **consume, result=wire.Result, contract=f"delete{_CONTRACT}{_ONE}"),
        ]  # fmt: skip

    # --- publishing ---

    async def publish(self, call: Call) -> wire.Result:
        id = wire.checked_id(call.params.get("messageId", "locks"))
        plain = wire.plain_drafts([call.body], call.queue, [id])
        if plain is not None:
            await self._broker.publish(call.queue, plain, actor=call.actor)
        else:
            wire.check_size(call.body)
            await self._publish(call, [_made(id, call.body, call.queue)])
        return wire.Result(id, "successful", "Message sent")

    async def publish_batch(self, call: Call) -> list[wire.Result] | Response:
        plain = wire.plain_drafts(call.body, call.queue)
        if plain is not None:
            await self._broker.publish(call.queue, plain, actor=call.actor)
            return [wire.Result(id or "", "successful", "Message sent") for id in plain.ids]
        results: list[wire.Result] = []
        made: list[Draft | Routable] = []
        too_large = False
        slices = Slices()
        for number, body in enumerate(call.body):
            try:
                if isinstance(body, wire.BadItem):
                    raise body.error
                id = wire.item_id(body) or ids.new_uuid()
                wire.check_size(body)
                made.append(_made(id, body, call.queue))
                results.append(wire.Result(id, "successful", "Message sent"))
            except Rejected as error:
                too_large = too_large or isinstance(error, OverLimit)
                results.append(
                    wire.Result(wire.bad_item_id(body), "failure", f"[{number}]: {error}")
                )
            await slices.turn()
        if too_large:
            for result in results:
                if result.status == "successful":
                    result.status, result.statusMessage = "failure", "another message is too large"
            return Response(encode(results), 413, JSON)
        if made:
            await self._publish(call, made)
        return results

    async def _publish(self, call: Call, made: Sequence[Draft | Routable]) -> None:
        if isinstance(call.queue, Exchange):
            routables = [each for each in made if isinstance(each, Routable)]
            await self._broker.route(call.queue, routables, reach=call.reach, actor=call.actor)
        else:
            drafts = [each for each in made if isinstance(each, Draft)]
            await self._broker.publish(call.queue, drafts, actor=call.actor)

    # --- consuming ---

    async def get(self, call: Call) -> list[wire.Delivered] | Response:
        queue = _queue(call)
        wait_ms, count, lease_ms, visibility = wire.polling(call.request.query, queue)
        pulled = await self._broker.await_pull(
            queue,
            count=count,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            caller=call.request.caller,
            actor=call.actor,
            allowance=call.request.allowance,
            leased_max=None if queue.fifo else LEASED_MAX,
            bound=True,
        )
        if pulled is None:
            return _NOTHING
        texts = call.long_texts()
        return wire.delivered(pulled.messages, queue, texts, visibility=visibility)

    async def ack(self, call: Call) -> wire.Result | Response:
        return await self._settle_one(call, call.body.lockId, Ack, "Acknowledgement operation")

    async def nack(self, call: Call) -> wire.Result | Response:
        lock = call.params["lockId"]
        return await self._settle_one(call, lock, _back, "Negative acknowledgement operation")

    async def extend(self, call: Call) -> wire.Result | Response:
        settle = _extend(call.body.ttl)
        return await self._settle_one(call, call.params["lockId"], settle, "Lock TTL operation")

    async def _settle_one(
        self, call: Call, lock: str, settle: Settle, what: str
    ) -> wire.Result | Response:
        [result] = await self._settle(call, [call.params["messageId"]], [lock], [settle], what)
        if result.status == "failure":
            return Response(encode(result), 400, JSON)
        result.lockId = UNSET
        return result

    async def ack_batch(self, call: Call) -> list[wire.Result]:
        settles = [Ack] * len(call.body)
        return await self._settle_batch(call, settles, "Acknowledgement operation")

    async def nack_batch(self, call: Call) -> list[wire.Result]:
        settles = [_back] * len(call.body)
        return await self._settle_batch(call, settles, "Negative acknowledgement operation")

    async def extend_batch(self, call: Call) -> list[wire.Result]:
        settles: list[Settle | Rejected] = []
        for item in call.body:
            try:
                settles.append(_extend(item.ttl))
            except Rejected as error:
                settles.append(error)
        return await self._settle_batch(call, settles, "Lock TTL operation")

    async def _settle_batch(
        self, call: Call, settles: Sequence[Settle | Rejected], what: str
    ) -> list[wire.Result]:
        messages = [item.messageId or "" for item in call.body]
        locks = [item.lockId or "" for item in call.body]
        return await self._settle(call, messages, locks, settles, what)

    async def _settle(
        self,
        call: Call,
        messages: Sequence[str],
        locks: Sequence[str],
        settles: Sequence[Settle | Rejected],
        what: str,
    ) -> list[wire.Result]:
        """Settle what can be settled in one transaction; each item has a result of its own."""
        queue = _queue(call)
        leases = self._broker.bound_leases(queue, locks, messages)
        settled: dict[int, Settlement] = {}
        known = [lease for lease in leases if lease is not None]
        if len(known) == len(leases) and settles.count(Ack) == len(leases):
            settled.update(enumerate(starmap(Ack, known)))
        else:
            settled = {
                place: settle(*lease)
                for place, (settle, lease) in enumerate(zip(settles, leases, strict=True))
                if lease is not None and not isinstance(settle, Rejected)
            }
        outcomes = await self._broker.settle(queue, [*settled.values()], actor=call.actor)
        done = f"{what} successful"
        items = zip(messages, locks, strict=True)
        if outcomes.count(Outcome.DONE) == len(messages):
            return [wire.Result(message, "successful", done, lock) for message, lock in items]
        of_place = dict(zip(settled, outcomes, strict=True))
        return [
            wire.Result(message, "successful", done, lock)
            if of_place.get(place) is Outcome.DONE
            else wire.Result(message, "failure", _why(message, lock, settles[place]), lock)
            for place, (message, lock) in enumerate(items)
        ]


def _made(id: str, body: wire.MessageBody, destination: Queue | Exchange) -> Draft | Routable:
    if isinstance(destination, Exchange):
        return wire.routable(id, body)
    return wire.draft(id, body, destination)


def _why(message: str, lock: str, settle: Settle | Rejected) -> str:
    """Why an item was not settled."""
    if isinstance(settle, Rejected):
        return str(settle)
    if not message or not lock:
        return "messageId and lockId are required"
    return f"LockId: {lock} provided is expired"


def _queue(call: Call) -> Queue:
    if not isinstance(call.queue, Queue):
        raise InvalidRequest("", "The destination should be a queue.")
    return call.queue


def _back(seq: int, attempt: int) -> Settlement:
    return Retry(seq, attempt, delay_ms=0)


def _extend(ttl: Any) -> Settle:
    if ttl is UNSET or ttl is None:
        raise InvalidRequest("ttl", "required")
    seconds = wire.whole(ttl, "ttl", low=0, high=wire.LOCK_S_MAX)
    if not seconds:
        return _back
    return lambda seq, attempt: Extend(seq, attempt, seconds * SECOND_MS)


_POLLING = (
    Parameter("pollingTime", int, "Longest wait for a first message, 0 to 20000 ms."),
    Parameter("batchSize", int, "Most messages returned, 1 to 10."),
    Parameter("lockTtl", int, "Life of the locks, 0 to 86400000 ms; default: the queue's."),
    Parameter("payloadVisibility", str, "full, none, or conditional: no bodies over 1 MiB."),
)
