"""HTTP/1.1 on one socket: requests in, answers out, and no longer than clients keep up."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, cast

from courier.core.errors import InvalidRequest
from courier.heads import Refused, ending, head, refusal, usual_head
from courier.incoming import Incoming
from courier.reader import Reader
from courier.traffic import BODY_READ_BYTES, STRANGER_READ_BYTES, Traffic
from courier.web import BodiesFull, BodyLate, ClientGone, Response

# A longer body costs more to copy behind its head than to be sent as a second part.
JOINED_BYTES_MAX = 64 << 10
# Of a body that nobody has asked for yet, no more than this is read; nor is more thrown away for
# the sake of the next request on the connection.
UNASKED_BYTES_MAX = 64 << 10
# Reads that filled their buffer, and after which others have their turn. Of small ones by those who
# have been let in only a few wait to be answered anyway.
FULL_READS_BYTES = (STRANGER_READ_BYTES, BODY_READ_BYTES)
# What a connection takes up for its encryption.
TLS_BYTES = 48 << 10

log = logging.getLogger("courier.connection")


class _Closed(asyncio.Transport):
    """Takes the place of the transport of a lost connection."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


_CLOSED = _Closed()


class Connection(asyncio.BufferedProtocol):
    """One client. Its requests are answered one after the other, in the order they came.

    It is a `broker.Caller`: `gone` says whether the client has left, and `on_gone` is called
    when it does. `deaf`: nothing that comes is looked at any more.
    """

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.on_gone: Callable[[], None] | None = None
        self._reader = Reader(self, traffic)
        self._running: Incoming | None = None
        self._steps: Coroutine[Any, None, Response | None]  # of the running one
        self.peer = ""
        self.direct = True  # what it says of other sources is not believed
        self._idle_s = 0.0
        self._was_busy = False  # since the watch came by
        self._deaf_s: float | None = None  # since when
        self.stalled_s: float | None = None  # since when the client has read nothing
        self._unsent = 0
        self._paused = False
        self._left = False
        self.known = False  # its last request was admitted
        self._sending: Incoming | None = None  # the client has not read its whole answer yet
        self._drained: asyncio.Future[None] | None = None
        self._base = 0
        self._held = 0

    # --- the socket ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        traffic = self.traffic
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self.direct = not traffic.proxies.trusts(self.peer)
        self._idle_s = traffic.loop.time()
        full = traffic.full(self.peer)
        traffic.enter(self, self.peer)
        encrypted = transport.get_extra_info("ssl_object") is not None
        self._base = TLS_BYTES if encrypted else 0
        if full and encrypted:  # a farewell would take as long as the client likes
            self._transport.abort()
        elif full:
            many_open = Refused(503, "busy", "there are too many connections")
            self._send(refusal(many_open))
            self._transport.close()
        elif encrypted:
            self._hold(self._base)
            traffic.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.traffic.leave(self)
        self._leave()
        for request in (self._running, self._reader.arriving):
            if request is not None:
                request.fail(ClientGone())
        self._read_by_client()
        self._stop_listening()
        self._reader.ready.clear()
        # An encrypted transport leads back here, and would wait for the collector to come by.
        self._transport = _CLOSED

    def eof_received(self) -> None:
        self._leave()

    def _leave(self) -> None:
        self._left = True
        if self.on_gone is not None:
            self.on_gone()

    @property
    def gone(self) -> bool:
        return self._left or self._transport.is_closing()

    def source(self, headers: Mapping[bytes, bytes]) -> str:
        """The address that a request with these headers came from."""
        return self.traffic.proxies.source(self.peer, headers)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Small while heads are expected: what is not read yet costs us nothing."""
        traffic = self.traffic
        if self._reader.arriving is not None:
            return traffic.buffer
        return traffic.head_buffer if self.known else traffic.stranger_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf_s is not None:
            return
        reader = self._reader
        try:
            reader.feed(self.traffic.buffer[:nbytes])
        except Refused as why:
            self._refuse(why)
        if reader.ready:
            self._next()
        elif reader.began_s is None and self._running is None and reader.arriving is None:
            reader.wait_for_head()
        if self._held or reader.in_head or reader.ready or reader.arriving is not None:
            self._account()
        if nbytes in FULL_READS_BYTES and not self._paused:
            self._give_turn()

    def _give_turn(self) -> None:
        """There is more to read, and the event loop would go on with it many times."""
        if not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()
            self.traffic.loop.call_soon(self._flow)

    def pause_writing(self) -> None:
        self.stalled_s = self.traffic.loop.time()
        self._unsent = self._transport.get_write_buffer_size()
        self._account()

    def resume_writing(self) -> None:
        self.stalled_s = None
        self._account()
        self._read_by_client()
        self._go_on()

    def _read_by_client(self) -> None:
        """What was written before is with the client, or nobody waits for it any more."""
        if self._sending is not None:
            self._sending.sent()
            self._sending = None
        if self._drained is not None:
            _settle(self._drained)

    # --- requests and answers ---

    def _next(self) -> None:
        """Run the next request, unless it must wait for others or for the client to read."""
        reader = self._reader
        if self._running is None and self.stalled_s is None:
            self._running = reader.ready.pop(0)
            self._steps = self.traffic.app.respond(self._running)
            self._step()
            if reader.ready and self._running is None:
                self.traffic.loop.call_soon(self._go_on)  # others have their turn
        if self._paused or reader.ready or reader.arriving is not None:
            self._flow()

    def _go_on(self) -> None:
        """Whatever held up the next request is over."""
        if self._transport.is_closing():
            self._reader.ready.clear()
        elif self._reader.ready:
            self._next()
        elif self._paused:
            self._flow()

    def _step(self) -> None:
        """Go on with an answer up to where it waits for something; most wait once."""
        try:
            awaited = self._steps.send(None)
        except StopIteration as end:
            self._answer(end.value)
        except asyncio.CancelledError:
            self._answer(None)
        except Exception:
            log.exception("request_failed")
            self._answer(None)
        else:
            if awaited is None:  # sleep(0)
                self.traffic.loop.call_soon(self._resume)
            else:
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(self._resume)

    def _resume(self, _: object = None) -> None:
        self._step()
        if self._running is None and (self._paused or self._reader.ready):
            self._go_on()

    def _answer(self, response: Response | None) -> None:
        """Send it; None closes the connection without an answer, also to later requests."""
        request = self._running
        assert request is not None
        if response is None or self._transport.is_closing():
            self._transport.close()
            self._reader.ready.clear()
            self._forget(request)
            return
        if request.admitted != self.known:
            self.known = request.admitted
            if self._base:
                self._account()
        if response.stream is not None:
            self.traffic.spawn(self._stream(request, response))
            return
        keep = request.keep_alive and not self.traffic.stopping
        if keep and not request.complete:
            rest = request.rest
            keep = rest is not None and rest <= UNASKED_BYTES_MAX and not request.expects
        body, asked = response.body, request.head
        size = len(body)
        if keep and asked.plain and not response.headers and size <= JOINED_BYTES_MAX:
            self._transport.write(usual_head(size, response.status, response.content_type) + body)
        else:
            body = b"" if asked.method == "HEAD" else body
            self._send(head(response) + ending(asked, keep=keep), body)
        if request.admitted and request.spelling is not None:
            self.traffic.heads.keep(request.spelling, asked)
        self._forget(request)
        if not keep:
            self._end()

    def _send(self, *parts: bytes | memoryview) -> None:
        """Write to the client, unless it has gone: a closed transport takes nothing and raises."""
        if self._transport.is_closing():
            return
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    def _forget(self, request: Incoming) -> None:
        if request.charged or not request.complete:
            request.drop()
        if request.granted is None:
            pass
        elif self.stalled_s is None or self._transport is _CLOSED:
            request.sent()
        else:
            self._sending = request
        self._running = None
        self._was_busy = True

    async def _stream(self, request: Incoming, response: Response) -> None:
        """Send parts until the stream ends, the client goes or the server stops."""
        stream, loop = response.stream, self.traffic.loop
        assert stream is not None
        chunked = not request.head.old
        end = b"transfer-encoding: chunked\r\n\r\n" if chunked else b"connection: close\r\n\r\n"
        self._send(head(response) + end)

        async def parts() -> None:
            async for part in stream:
                if part:
                    self._send(*((b"%x\r\n" % len(part), part, b"\r\n") if chunked else (part,)))
                if self.stalled_s is not None:
                    self._drained = loop.create_future()
                    await self._drained

        gone = loop.create_future()
        self.on_gone = partial(_settle, gone)
        ends = [
            loop.create_task(parts()),
            loop.create_task(self.traffic.draining.wait()),
            gone,
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.on_gone = self._drained = None
            for each in ends:
                each.cancel()
            outcome, *_ = await asyncio.gather(*ends, return_exceptions=True)
        self._forget(request)
        if isinstance(outcome, Exception):
            log.error("stream_failed", exc_info=outcome, extra={"path": request.path})
            self._transport.abort()  # or what was sent would look whole
        elif chunked:
            self._send(b"0\r\n\r\n")
        keep = chunked and request.keep_alive and request.complete
        if keep and not self.traffic.draining.is_set():
            self._go_on()
        else:
            self._end()

    # --- holding back ---

    def receive(self, request: Incoming) -> "asyncio.Future[None]":
        """Have the rest of a body sent; the future is done when it is here."""
        if self._deaf_s is not None or self.gone:
            raise ClientGone
        if request.expects and not request.received and not request.head.old:
            self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.expects = False
        request.arrived = self.traffic.loop.create_future()
        self._reader.began_s = self.traffic.loop.time()
        self._flow()
        return request.arrived

    def _flow(self) -> None:
        """Stop reading while there is enough to do, and go on when there is not."""
        request = self._reader.arriving
        full = len(self._reader.ready) >= self.traffic.limits.pipelined_max or (
            request is not None
            and request.arrived is None
            and not request.unwanted
            and request.received > UNASKED_BYTES_MAX
        )
        if full != self._paused and not self._transport.is_closing():
            self._paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _account(self) -> None:
        """Count what is held for a caller who has shown no credential, or reads nothing."""
        held, traffic = self._reader.held, self.traffic
        unread = 0 if self.stalled_s is None else self._transport.get_write_buffer_size()
        if not self.known:
            held += self._base + unread
        self._hold(held)
        traffic.unread.hold(self, unread if self.known else 0)
        traffic.make_room()

    def _hold(self, count: int) -> None:
        self.traffic.strangers.hold(self, count)
        self._held = count

    def give_way(self) -> None:
        """Others need the room; requests that have arrived and are running still get answers."""
        self._hold(0)
        self._reader.ready.clear()
        if self.stalled_s is not None or (self._base and self._running is None):
            self._transport.abort()
        else:
            self._refuse(Refused(503, "busy", "too many requests are waiting for their end"))

    # --- ends ---

    def _refuse(self, why: Refused) -> None:
        """What came cannot be answered. Good requests before it are, and nothing after them."""
        ready, arriving = self._reader.ready, self._reader.arriving
        if arriving in ready:
            ready.remove(arriving)
        last = ready[-1] if ready else self._running
        if last is None:
            if arriving is None or not arriving.unwanted:
                self._send(refusal(why))
            self._end()
            return
        last.keep_alive = False
        self._stop_listening()
        if last is arriving and why.status == 503:
            last.fail(BodiesFull(limit=self.traffic.limits.strangers_bytes_max))
        elif last is arriving:
            last.fail(InvalidRequest("", str(why)))

    def _stop_listening(self) -> None:
        """Throw away what comes, and what has come but for requests that are ready."""
        self._deaf_s = self.traffic.loop.time()
        self._reader.close()
        self._hold(0)

    def _end(self) -> None:
        """Close when the client has, or soon.

        If we closed while it is sending, it could lose an answer that it has not read yet.
        """
        reader = self._reader
        quiet = not (reader.ready or reader.arriving or reader.in_head) and self._deaf_s is None
        reader.ready.clear()
        self._stop_listening()
        if quiet or self._transport.is_closing():
            self._transport.close()
        else:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self.traffic.linger(self)
            self._flow()

    def cut_if_slow(self, now_s: float) -> None:
        """End the connection when the client takes too long for what it has to do next."""
        limits, began_s = self.traffic.limits, self._reader.began_s
        busy = self._running is not None or bool(self._reader.ready)
        if self.stalled_s is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._unsent, self.stalled_s = unsent, now_s
            elif now_s - self.stalled_s > limits.request_wait_s:
                self._transport.abort()
        elif self._deaf_s is not None:
            if not busy and now_s - self._deaf_s > limits.linger_wait_s:
                self._transport.abort()
        elif self._paused:
            return  # it waits for us
        elif began_s is not None:
            allowed_s = limits.header_wait_s if self._reader.in_head else limits.request_wait_s
            if now_s - began_s > allowed_s:
                self._cut(round(allowed_s * 1000))
        elif busy or self._was_busy:
            self._was_busy, self._idle_s = False, now_s
        elif now_s - self._idle_s > limits.idle_wait_s:
            self._transport.close()

    def _cut(self, wait_ms: int) -> None:
        request = self._reader.arriving
        if request is not None and request.arrived is not None and not request.arrived.done():
            request.keep_alive = False
            self._reader.began_s = None
            request.fail(BodyLate(wait_ms=wait_ms))
        else:
            message = f"the request did not arrive within {wait_ms} ms"
            self._refuse(Refused(408, "timeout", message))

    @property
    def idle_s(self) -> float | None:
        """Since when it has waited for its client alone; None if there is something to answer."""
        request = self._running
        if request is None:
            return None if self._reader.ready else self._idle_s
        slow = request.arrived is not None and not request.arrived.done() and not request.admitted
        return self._idle_s if slow else None

    @property
    def waits_for(self) -> str | None:
        """The tenant for which something is waited for that may not come soon, if any."""
        request = self._running
        if request is None or request.key is None or self.on_gone is None:
            return None
        return request.key.tenant

    def close_if_idle(self) -> None:
        if self._running is None and not self._reader.ready:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
