"""A request as it arrives: its head is here, its body may be on its way."""

import asyncio
import io
from typing import TYPE_CHECKING

from courier.core.limits import AnswerRoom
from courier.traffic import HEAD_READ_BYTES
from courier.web import BodiesFull, BodyTooLong, Head, Request

if TYPE_CHECKING:
    from courier.connection import Connection

# What one header field, and one request that waits for its turn, take up beside their text.
FIELD_BYTES = 200
REQUEST_BYTES = 2_000


class Incoming(Request):
    """A request whose head is here; its body may be on its way."""

    __slots__ = (
        "_body",
        "_connection",
        "arrived",
        "charged",
        "complete",
        "expects",
        "keep_alive",
        "length",
        "limit",
        "lined_up",
        "received",
        "spelling",
        "unwanted",
    )

    def __init__(
        self,
        head: Head,
        connection: "Connection",
        length: int,
        body: bytes | None = None,
        name: str = "",
    ) -> None:
        """`body`: all of it, if it came together with the head."""
        remote = connection.peer if connection.direct else connection.source(head.headers)
        Request.__init__(self, head, connection, remote, name)
        self._connection = connection
        self.keep_alive = head.keep_alive
        self.expects = head.expects
        self.length = length
        self._body: bytes | io.BytesIO = body or b""
        self.received = length if body is not None else 0  # bytes of the body
        self.complete = body is not None
        self.unwanted = self.lined_up = False
        self.arrived: asyncio.Future[None] | None = None
        self.limit = self.charged = 0
        self.spelling: bytes | None = None  # by which its head may be remembered

    @property
    def answer_room(self) -> AnswerRoom:
        return self._connection.traffic.answers

    @property
    def held_bytes(self) -> int:
        head = sum([FIELD_BYTES + len(name) + len(self.headers[name]) for name in self.headers])
        text = len(self.head.raw_path) + len(self.head.query_string) + self.received
        return REQUEST_BYTES + head + text

    def whole(self, limit: int) -> bytes | None:
        if not self.complete:
            return None
        if self.received > limit:
            raise BodyTooLong(limit=limit, actual=self.received)
        if self.received > HEAD_READ_BYTES:  # or it is no more than was set aside for its head
            self._charge(self.received)
        body = self._body
        return body if isinstance(body, bytes) else body.getvalue()

    async def read(self, limit: int) -> bytes:
        body = self.whole(limit)
        if body is not None:
            return body
        size = max(self.length, self.received)
        if size > limit:
            raise BodyTooLong(limit=limit, actual=size)
        self._charge(size)
        self.limit = limit
        await self._connection.receive(self)
        received = self._body
        return received if isinstance(received, bytes) else received.getvalue()

    def _charge(self, count: int) -> None:
        if self.admitted:
            traffic = self._connection.traffic
            if not traffic.take(count, of=self.charged + count):
                raise BodiesFull(limit=traffic.limits.bodies_bytes_max)
            self.charged += count

    def add(self, part: bytes) -> None:
        """A part of the body has arrived."""
        if self.unwanted:
            return
        if not self.received:
            self._body = part
        else:
            # One growing buffer: a list would cost many times the length of very small parts.
            # And one whose value is not a copy, which would hold up the loop.
            if isinstance(self._body, bytes):
                first, self._body = self._body, io.BytesIO()
                self._body.write(first)
            self._body.write(part)
        self.received += len(part)
        if self.arrived is None or self.arrived.done():
            return
        if self.received > self.limit:
            self.fail(BodyTooLong(limit=self.limit, actual=self.received))
        elif self.received > self.charged:
            try:
                self._charge(len(part))
            except BodiesFull as error:
                self.fail(error)

    def end(self) -> None:
        """The whole of the body has arrived."""
        self.complete = True
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)

    def fail(self, error: Exception) -> None:
        """The rest of the body will not come, or is not wanted."""
        self._release()
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_exception(error)

    def drop(self) -> None:
        """It is answered: nothing of it is needed any more."""
        self._release()
        self.received = 0
        self.arrived = None  # it may hold an error that leads back here

    def _release(self) -> None:
        """At once, or others that are growing beside it would be refused too."""
        if self.charged:
            self._connection.traffic.bodies -= self.charged
            self.charged = 0
        self.unwanted = True
        self._body = b""

    @property
    def rest(self) -> int | None:
        """Bytes of the body that are still to come; None if unknown."""
        if self.complete:
            return 0
        return None if b"transfer-encoding" in self.headers else self.length - self.received
