"""Events of sources outside of Courier, sent in by callers."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from courier.core.announcer import Told
from courier.core.errors import InvalidRequest, OverLimit
from courier.ops.services import OpsFamily
from courier.web import Call, Route

PAYLOAD_BYTES_MAX = 100_000
BODY_BYTES_MAX = 1 << 20


class EventBody(Struct, forbid_unknown_fields=True):
    """`source` has a `type` and what identifies it; `id` makes telling it again harmless."""

    source: dict[str, Any]
    event: str
    payload: Raw
    id: Annotated[str, Meta(min_length=1, max_length=128)] | UnsetType = UNSET


class OpsEventRoutes(OpsFamily):
    family = "events"

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/courier/v1/tenants/{tenant}/events", self.send_event, "queues:write",
                  "whole",
                  "Tell of an event: it becomes a message on every queue that subscribes to it",
                  body=EventBody, body_bytes_max=BODY_BYTES_MAX),
        ]  # fmt: skip

    async def send_event(self, call: Call) -> Told:
        body: EventBody = call.body
        return await self._services.announcer.announce(
            self._tenant(call),
            body.source,
            body.event,
            _payload(body.payload),
            id="" if body.id is UNSET else body.id,
            actor=call.actor,
        )


def _payload(raw: Raw) -> bytes:
    """The object as it was written, digit for digit, without the space between."""
    payload = msgspec.json.format(bytes(raw), indent=-1)
    if not payload.startswith(b"{"):
        raise InvalidRequest("payload", "expected an object")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise OverLimit("payload bytes", limit=PAYLOAD_BYTES_MAX, actual=len(payload))
    return payload
