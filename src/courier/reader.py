"""From the bytes of one connection to requests, within limits."""

from typing import TYPE_CHECKING

import httptools

from courier.heads import Refused, check, framing, spelled, target
from courier.incoming import FIELD_BYTES, Incoming
from courier.traffic import HEAD_READ_BYTES, Traffic
from courier.web import Head

if TYPE_CHECKING:
    from courier.connection import Connection

# Bytes of framing that each byte of a chunked body may have, beyond `framing_bytes_max`.
FRAMING_RATIO_MAX = 2


class Reader:
    """Requests are in `ready` from the end of the data in which their head ended.

    `arriving` is the one whose body is not all here yet, and `began_s` is when it, or the head
    that is not all here yet, began to arrive.
    """

    def __init__(self, connection: "Connection", traffic: Traffic) -> None:
        self._connection = connection
        self._limits = traffic.limits
        self._heads = traffic.heads
        self._time = traffic.loop.time
        self._parser = httptools.HttpRequestParser(self)
        self.ready: list[Incoming] = []
        self.arriving: Incoming | None = None
        self.began_s: float | None = None
        self.in_head = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._fields = 0
        self._head_bytes = 0
        self._fed = 0
        self._part_bytes = 0
        self._framing_bytes = 0  # of its body, what is not content
        self._framing = b""  # a head for the parser alone, to be fed before the body
        self._framed = False  # that head is being fed

    def feed(self, data: memoryview) -> None:
        """Raises Refused; what came before the bad part is in `ready` all the same."""
        begun = self.arriving is not None or self.in_head
        # Most often this is one request, with a head like one before.
        whole = None if begun else spelled(bytes(data))
        if whole is None:
            self._go_on(data)
            return
        spelling, body = whole
        head = self._heads.find(spelling)
        known = (head, "") if head is not None else self._heads.named(spelling)
        if known is not None:
            self.ready.append(Incoming(known[0], self._connection, len(body), body, known[1]))
            return
        before = len(self.ready)
        self._go_on(data)
        came = self.ready[before:]
        if len(came) == 1 and came[0].complete and came[0].length == len(body):
            came[0].spelling = spelling

    def _go_on(self, data: memoryview) -> None:
        arriving = self.arriving
        self._fed, self._part_bytes = len(data), 0
        try:
            self._parse(data)
        finally:
            request = self.arriving
            if request is not None and request is not arriving:
                self._framing_bytes = 0
                self._line_up(request)
        if request is None:
            if self.in_head:
                self._count_head()
        elif request is arriving:
            self._count_framing(request)

    def close(self) -> None:
        """Forget everything but what is ready.

        Parser and connection lead back here; without them both are freed at once, and not when
        the collector comes by.
        """
        self._parser = self._connection = self.arriving = None  # type: ignore[assignment]
        self.began_s, self.in_head = None, False
        self._url, self._headers = b"", {}

    def wait_for_head(self) -> None:
        """There was nothing but the empty lines that may stand before a request."""
        self.began_s = self._time()
        self.in_head = True
        self._head_bytes = self._fed

    def _parse(self, data: memoryview) -> None:
        while data or self._framing:
            try:
                if self._framing:
                    self._frame()
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # There is nothing to upgrade to; the request is answered as if it had not asked.
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, Refused):
                    raise error.__context__ from None
                message = "this is not a valid HTTP request"
                raise Refused(400, "not_http", message) from error

    def _frame(self) -> None:
        """The parser ends a request that asks for an upgrade at its head; its body follows."""
        framing, self._framing = self._framing, b""
        self._framed = True
        self._parser.feed_data(framing)
        self._framed = False

    def _count_head(self) -> None:
        # Of data that began in a body it is unknown how much is head.
        self._head_bytes += min(self._fed, HEAD_READ_BYTES)
        limits = self._limits
        if self._head_bytes > limits.header_bytes_max or self._fields > limits.headers_max:
            raise self._head_too_large()

    def _count_framing(self, request: Incoming) -> None:
        self._framing_bytes += self._fed - self._part_bytes
        limit = self._limits.framing_bytes_max + FRAMING_RATIO_MAX * request.received
        if self._framing_bytes > limit and not request.unwanted:
            raise Refused(400, "framing", "trailers and chunk extensions are too long")

    def _head_too_large(self) -> Refused:
        sizes = f"{self._limits.header_bytes_max} bytes or {self._limits.headers_max} fields"
        return Refused(431, "head_too_large", f"request line and headers are over {sizes}")

    def _line_up(self, request: Incoming) -> None:
        if not request.lined_up:
            request.lined_up = True
            self.ready.append(request)

    @property
    def held(self) -> int:
        """Bytes that are kept for requests that were not admitted yet."""
        held = sum([request.held_bytes for request in self.ready])
        request = self.arriving
        if self.in_head:
            held += self._head_bytes + FIELD_BYTES * self._fields
        elif request is not None and not request.admitted:
            held += self._framing_bytes + (request not in self.ready) * request.held_bytes
        return held

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._framed:
            return
        self.began_s = self._time()
        self.in_head = True
        self._fields = 0
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self._framed:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # a trailer, or only for the parser
        self._fields += 1
        name = name.lower()
        if name in self._headers:
            if self._fields > self._limits.headers_max:
                raise self._head_too_large()
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._framed:
            return
        self.in_head = False
        headers, limits, parser = self._headers, self._limits, self._parser
        if self._fields > limits.headers_max:
            raise self._head_too_large()
        if self._head_bytes + self._fed > limits.header_bytes_max:
            size = len(self._url) + sum(len(name) + len(headers[name]) for name in headers)
            if size > limits.header_bytes_max:
                raise self._head_too_large()
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refused(400, "version", "only HTTP/1.1 and HTTP/1.0 are spoken here")
        check(headers, version)
        raw_path, query = target(self._url)
        head = Head(
            parser.get_method().decode(),
            raw_path,
            query,
            headers,
            old=version == "1.0",
            keep_alive=parser.should_keep_alive(),
        )
        length = int(headers.get(b"content-length", 0))
        request = Incoming(head, self._connection, length)
        if request.rest != 0 and parser.should_upgrade():
            if request.method == "CONNECT":
                raise Refused(400, "upgrade", "CONNECT cannot have a body")
            self._framing = framing(headers, version)
        self.arriving = request
        # A head that was answered is not kept until the next one: that may never come.
        self._url, self._headers = b"", {}

    def on_body(self, body: bytes) -> None:
        self._part_bytes += len(body)
        if self.arriving is not None:
            self.arriving.add(body)

    def on_message_complete(self) -> None:
        if self._framing:
            return
        self.began_s = None
        request, self.arriving = self.arriving, None
        if request is not None:
            request.end()
            self._line_up(request)
