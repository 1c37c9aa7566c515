"""Bulk publish: many messages in one request, each of them once, however often it is sent."""

import asyncio
from collections.abc import Callable
from typing import Any

from courier.core import keys
from courier.core.admin import OPERATOR, Admin
from courier.core.broker import Broker, Sealer
from courier.core.errors import Conflict, Forbidden, InvalidRequest
from courier.core.types import Draft, Queue
from courier.ops.query import number
from courier.web import Call, Parameter, Route

ARROW = "application/vnd.apache.arrow.stream"
REQUEST_BYTES_MAX = 32 << 20
KEY_CHARACTERS_MAX = 256

_PUBLISH = "/courier/v1/tenants/{tenant}/queues/{queue}/publish"


class BulkRoutes:
    def __init__(self, broker: Broker, admin: Admin, sealer: Sealer) -> None:
        self._broker = broker
        self._admin = admin
        self._sealer = sealer

    def routes(self) -> list[Route]:
        key = Parameter("once", str, "The key that the rows are numbered under")
        return [
            Route("POST", _PUBLISH, self.publish_rows, "messages:publish",
                  "Publish the rows of an Arrow stream, each once under its key and number",
                  body=bytes, body_bytes_max=REQUEST_BYTES_MAX,
                  query=(key, Parameter("first", int, "The number of the first row"),
                         Parameter("listener", str, "The only listener that is to get them"))),
            Route("GET", _PUBLISH, self.count_rows, "messages:publish",
                  "How many rows have been published under a key", query=(key,)),
        ]  # fmt: skip

    async def publish_rows(self, call: Call) -> dict[str, int]:
        given = call.request.header(b"content-type").partition(";")[0].strip().lower()
        if given != ARROW:
            raise InvalidRequest("content-type", f"must be {ARROW}, not '{given[:80]}'")
        key = _key(call)
        first = number(call.request, "first", default=0, high=1 << 62)
        listener = call.request.query.get("listener", [""])[-1]
        for name in ("first", "listener"):
            if name in call.request.query and not key:
                raise InvalidRequest(name, "needs the parameter once")
        queue = await self._queue(call)
        open = self._sealer.open if _may_open(call) else None
        drafts = await asyncio.to_thread(_drafts, call.body, open)
        try:
            published = await self._broker.publish_rows(
                queue, drafts, key=key, first=first, listener=listener or None, actor=call.actor
            )
        except Conflict:
            rows = await self._broker.rows(queue, key)
            told = f"is {first}, but only {rows} rows are published under '{key}'"
            raise InvalidRequest("first", told) from None
        return {"published": published}

    async def count_rows(self, call: Call) -> dict[str, int]:
        key = _key(call)
        if not key:
            raise InvalidRequest("once", "is missing")
        return {"rows": await self._broker.rows(await self._queue(call), key)}

    async def _queue(self, call: Call) -> Queue:
        tenant = await self._admin.tenant(call.params["tenant"])
        return await self._admin.queue_named(tenant.id, call.params["queue"])


def _key(call: Call) -> str:
    """The key of the rows, "" for none."""
    given: list[Any] = call.request.query.get("once", [])
    if not given:
        return ""
    key = str(given[-1])
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        told = f"must have 1 to {KEY_CHARACTERS_MAX} characters, not {len(key)}"
        raise InvalidRequest("once", told)
    return key


def _drafts(raw: bytes, open: Callable[[bytes, str], bytes] | None) -> list[Draft]:
    # Here, so that a server nobody sends Arrow to does not load it.
    from courier.ops.drafts import read

    return read(raw, open)


def _may_open(call: Call) -> bool:
    """Whoever reads the journal may also send what it holds as it is."""
    if call.tenant == OPERATOR:
        return True
    assert call.key is not None
    try:
        keys.require(call.key, "journal")
    except Forbidden:
        return False
    return True
