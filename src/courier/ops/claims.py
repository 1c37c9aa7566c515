"""Claims over HTTP: many messages of a queue, leased together under a name of the caller's."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from courier.core.errors import InvalidRequest
from courier.core.types import HOUR_MS, Message, Queue
from courier.dialects.openapi import ARROW
from courier.dialects.site import number
from courier.long_texts import LongTexts
from courier.ops.services import OpsFamily
from courier.web import Call, Parameter, Response, Route

# All messages of a claim are acknowledged at once, and nobody is served meanwhile.
COUNT_MAX = 20_000
LEASE_MS_MAX = 12 * HOUR_MS
PAGE = 1_000

_CLAIM = "/courier/v1/tenants/{tenant}/queues/{queue}/claims/{name}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_LeaseMs = Annotated[int, Meta(ge=1, le=LEASE_MS_MAX)]
_encode = msgspec.json.Encoder().encode


class ClaimBody(Struct):
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)]
    lease_ms: _LeaseMs


class ExtendBody(Struct):
    lease_ms: _LeaseMs


class ClaimRoutes(OpsFamily):
    family = "claims"

    def routes(self) -> list[Route]:
        return [
            Route("PUT", _CLAIM, self.claim_messages, "messages:consume", "target",
                  "Lease messages under a name, or find them leased", body=ClaimBody),
            Route("GET", _CLAIM, self.read_claim, "messages:consume", "target",
                  "Messages of a claim", media=("application/x-ndjson", ARROW),
                  query=(Parameter("first", int, "The number of the first one, from 0 on"),
                         Parameter("count", int, "How many at most"))),
            Route("PATCH", _CLAIM, self.extend_claim, "messages:consume", "target",
                  "Let a claim's leases end later or sooner", body=ExtendBody),
            Route("DELETE", _CLAIM, self.ack_claim, "messages:consume", "target",
                  "Acknowledge all messages of a claim",
                  query=(Parameter("after", str, "The claim that was acknowledged before"),)),
        ]  # fmt: skip

    async def claim_messages(self, call: Call) -> dict[str, int]:
        queue, name = self._claim(call)
        asked: ClaimBody = call.body
        count = await self._broker.claim(
            queue, name, count=asked.count, lease_ms=asked.lease_ms, actor=call.actor
        )
        return {"count": count}

    async def read_claim(self, call: Call) -> Response:
        """Fewer than asked for when more would be too long an answer, but one at least."""
        queue, name = self._claim(call)
        messages = await self._broker.claimed(
            queue,
            name,
            first=number(call.request, "first", default=0, high=COUNT_MAX),
            count=number(call.request, "count", default=PAGE, low=1, high=COUNT_MAX),
            allowance=call.request.allowance,
        )
        arrow = ARROW in call.request.header(b"accept")
        texts = call.long_texts()
        body = await asyncio.to_thread(self._rendered, queue, messages, texts, arrow=arrow)
        kind = ARROW if arrow else "application/x-ndjson"
        return Response(body, content_type=kind.encode())

    async def extend_claim(self, call: Call) -> dict[str, Any]:
        queue, name = self._claim(call)
        await self._broker.extend_claim(queue, name, lease_ms=call.body.lease_ms, actor=call.actor)
        return {}

    async def ack_claim(self, call: Call) -> dict[str, Any]:
        queue, name = self._claim(call)
        given = call.request.query.get("after")
        after = given[-1] if given else None
        if after:
            _check("after", after)
        await self._broker.ack_claim(queue, name, actor=call.actor, after=after)
        return {}

    def _claim(self, call: Call) -> tuple[Queue, str]:
        name = call.params["name"]
        _check("name", name)
        return self._queue(call), name

    def _rendered(
        self, queue: Queue, messages: Sequence[Message], texts: LongTexts, *, arrow: bool
    ) -> bytes | memoryview:
        opened = [self._broker.opened(queue, message) for message in messages]
        if arrow:
            # Here, so that a server nobody asks for Arrow does not load it.
            from courier.arrow import claimed

            return claimed(opened)
        return b"".join(_encode(_shown(message, texts)) + b"\n" for message in opened)


def _check(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(field, "expected 1 to 200 letters, digits, or any of . _ : -")


def _shown(message: Message, texts: LongTexts) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "message_id": message.id,
        "seq": message.seq,
        "attempt": message.attempts,
        "published_ms": message.published_ms,
        "content_type": message.content_type,
        "headers": message.headers,
        "group": message.group,
    }
    base64 = message.content_type == "bytes"
    shown["body_base64" if base64 else "body"] = texts.text(message.body, base64=base64)
    return shown
