"""What pushes are sent to: `python -m bench.receiver PORT`, as bare as a receiver can be.

It answers 200 at once and notes when each message came, by the number its body begins with. A
path that begins with `/hang` is never answered; one that begins with `/slow` is answered after 100
ms, and one that begins with `/some` too, but there the first attempt of three messages in ten is
refused. A message that is refused has not come. `GET /arrivals` tells what came and forgets it.
"""

import asyncio
import json
import re
import sys
import time
from typing import cast

import uvloop

HANG = "/hang"
SLOW = "/slow"
SOME = "/some"
SLOW_S = 0.1
ARRIVALS = "/arrivals"
LIVE = "/live"
NUMBER_DIGITS = 8
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_FIRST = re.compile(rb"\r\nx-attempt: *1\r\n", re.IGNORECASE)
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_NO = b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"

# Path -> number and time of what came there.
Arrivals = dict[str, list[tuple[int, float]]]


def body(number: int, size: int) -> bytes:
    """The body of a message that the receiver can tell from others."""
    return b"%0*d" % (NUMBER_DIGITS, number) + b"m" * (size - NUMBER_DIGITS)


class Receiving(asyncio.Protocol):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        at_s = time.perf_counter()
        data = self._data + data if self._data else data
        head_end = data.find(_HEAD_END)
        if head_end < 0:
            self._data = data
            return
        length = _LENGTH.search(data, 0, head_end + 2)
        start = head_end + len(_HEAD_END)
        if len(data) < start + (int(length[1]) if length else 0):
            self._data = data
            return
        self._data = b""
        path = data[: data.index(b"\r\n")].split(b" ")[1].decode()
        if path == ARRIVALS:
            self._tell()
        elif path == LIVE:
            self._transport.write(_OK)
        else:
            number = int(data[start : start + NUMBER_DIGITS])
            first = _FIRST.search(data, 0, head_end + 2) is not None
            if path.startswith(SOME) and number % 10 < 3 and first:
                self._later(_NO)
                return
            self._arrivals.setdefault(path, []).append((number, at_s))
            if path.startswith((SLOW, SOME)):
                self._later(_OK)
            elif not path.startswith(HANG):
                self._transport.write(_OK)

    def _later(self, answer: bytes) -> None:
        asyncio.get_running_loop().call_later(SLOW_S, self._transport.write, answer)

    def _tell(self) -> None:
        text = json.dumps(self._arrivals).encode()
        self._arrivals.clear()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


async def _serve(port: int) -> None:
    arrivals: Arrivals = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiving(arrivals), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
