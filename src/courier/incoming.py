"""A request as it arrives: its head is here, its body may be on its way."""

import asyncio
import io
from typing import TYPE_CHECKING

from courier.web import BodiesFull, BodyTooLong, Request

if TYPE_CHECKING:
    from courier.connection import Connection


class Incoming(Request):
    """A request whose head is here; its body may be on its way."""

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        query_string: bytes,
        headers: dict[bytes, bytes],
        connection: "Connection",
    ) -> None:
        room = connection.traffic.answers
        super().__init__(method, raw_path, query_string, headers, connection, room)
        self._connection = connection
        self.keep_alive = True
        self.old = False  # HTTP/1.0
        self.expects = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self.length = int(headers.get(b"content-length", 0))
        self.received = 0  # bytes of the body
        self._body: bytes | io.BytesIO = b""
        self.complete = False
        self.unwanted = False
        self.arrived: asyncio.Future[None] | None = None
        self.limit = 0
        self.charged = 0
        self.lined_up = False
        self.framing = 0
        self.loose = 0  # of the data that its head ended in, what is not its body

    @property
    def text_bytes(self) -> int:
        head = sum(len(name) + len(value) for name, value in self.headers.items())
        return head + len(self.raw_path) + len(self.query_string) + self.received

    @property
    def remote(self) -> str:
        return self._connection.source(self.headers)

    def whole(self, limit: int) -> bytes | None:
        return self._taken(limit) if self.complete else None

    async def read(self, limit: int) -> bytes:
        if self.complete:
            return self._taken(limit)
        size = max(self.length, self.received)
        if size > limit:
            raise BodyTooLong(limit=limit, actual=size)
        self._charge(size)
        self.limit = limit
        await self._connection.receive(self)
        return self._joined()

    def _taken(self, limit: int) -> bytes:
        if self.received > limit:
            raise BodyTooLong(limit=limit, actual=self.received)
        self._charge(self.received)
        return self._joined()

    def _joined(self) -> bytes:
        body = self._body
        return body if isinstance(body, bytes) else body.getvalue()

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
        self.unwanted = True
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_exception(error)

    def drop(self) -> None:
        """It is answered: nothing of it is needed any more."""
        self._connection.traffic.bodies -= self.charged
        self.charged = 0
        self.unwanted = True
        self._body, self.received = b"", 0

    @property
    def rest(self) -> int | None:
        """Bytes of the body that are still to come; None if unknown."""
        if self.complete:
            return 0
        return None if b"transfer-encoding" in self.headers else self.length - self.received
