"""Messages of a queue as a file: one line of JSON for each."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from courier.console import Services, forms
from courier.console.choosing import held
from courier.console.guard import HEADERS, NOT_KEPT
from courier.console.planning import selection_of
from courier.console.plans import Selection
from courier.core.types import Message, Queue
from courier.web import Call, Handler, Response

# Messages of one file; a line at its end says that there are more.
MESSAGES_MAX = 100_000
LINES = b"application/octet-stream"
_encode = msgspec.json.encode


class Downloads:
    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> dict[str, Handler]:
        return {"download": self.download}

    async def download(self, call: Call) -> Response:
        """Those selected, or all that match. Looking leases nothing."""
        asked: forms.NewPlan = call.body
        queue: Queue = call.queue
        selection = selection_of(asked, by_message=True)
        name = f'attachment; filename="{queue.id}.jsonl"'.encode()
        headers = (*HEADERS, NOT_KEPT, (b"content-disposition", name))
        return Response(
            b"", content_type=LINES, headers=headers, stream=self._lines(queue, selection)
        )

    async def _lines(self, queue: Queue, selection: Selection) -> AsyncIterator[bytes]:
        written = 0
        selection.upto_seq[queue.id] = await self._services.store.messages.tail(queue.id)
        async for page in held(self._services, queue, selection):
            lines = [_encode(self._shown(queue, each)) for each in page[: MESSAGES_MAX - written]]
            written += len(lines)
            if lines:
                yield b"\n".join(lines) + b"\n"
            if written >= MESSAGES_MAX:
                yield _encode({"cut_after": MESSAGES_MAX}) + b"\n"
                return

    def _shown(self, queue: Queue, message: Message) -> dict[str, Any]:
        """As text where it is text, else as base64."""
        raw = self._services.broker.opened(queue, message).body
        shown: dict[str, Any] = {
            "id": message.id,
            "seq": message.seq,
            "published_ms": message.published_ms,
            "attempts": message.attempts,
            "content_type": message.content_type,
            "headers": message.headers or {},
        }
        if message.group:
            shown["group"] = message.group
        try:
            if message.content_type != "bytes":
                return {**shown, "body": raw.decode()}
        except UnicodeDecodeError:
            pass
        return {**shown, "base64": base64.b64encode(raw).decode()}
