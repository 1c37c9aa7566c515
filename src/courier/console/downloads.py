"""Messages of a queue as a file: one line of JSON for each."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from courier.console import Services, forms
from courier.console.browsing import Wanted, at, matches, window
from courier.console.guard import HEADERS, NOT_KEPT
from courier.console.planning import selection_of
from courier.console.plans import PAGE, Selection
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
        async for page in self._pages(queue, selection):
            lines = [_encode(self._shown(queue, each)) for each in page[: MESSAGES_MAX - written]]
            written += len(lines)
            if lines:
                yield b"\n".join(lines) + b"\n"
            if written >= MESSAGES_MAX:
                yield _encode({"cut_after": MESSAGES_MAX}) + b"\n"
                return

    async def _pages(self, queue: Queue, selection: Selection) -> AsyncIterator[list[Message]]:
        store, clock = self._services.store, self._services.clock
        if selection.seqs:
            seqs = selection.seqs
            while seqs:
                found = await at(store, queue, seqs, clock.now_ms())
                yield found.messages
                last = found.messages[-1].seq if found.cut else seqs[-1]
                seqs = tuple(seq for seq in seqs if seq > last)
            return
        wanted = Wanted(
            selection.text, selection.path, state=selection.state or None, origin=selection.origin
        )
        after, upto = 0, await store.messages.tail(queue.id)
        while after < upto:
            page = await window(store, queue, wanted, after, upto + 1, PAGE, clock.now_ms())
            yield [
                each
                for each in page.messages
                if selection.since_ms <= each.published_ms < selection.until_ms
                and not (wanted.searches and each.sealed)
                and matches(each, wanted)
            ]
            if not page.end:
                return
            after = page.end

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
