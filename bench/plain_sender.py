"""The same pushes from a plain script: `python -m bench.plain_sender PORT LISTENERS MESSAGES`.

No broker: a common client library sends the same signed requests, as many at a time, and nothing
is stored before or noted after. Prints the CPU time that sending took, in seconds.
"""

import asyncio
import sys
import time
from collections.abc import Iterator

import aiohttp
import uvloop

from bench.receiver import body
from bench.workload import BODY
from courier.delivery import secrets
from courier.delivery.pace import IN_FLIGHT_MAX
from courier.delivery.transport import USER_AGENT

_ID = "A" * 21


async def _send(session: aiohttp.ClientSession, url: str, numbers: Iterator[int]) -> None:
    secret = secrets.new_secret()
    for number in numbers:
        data = body(number, len(BODY))
        headers = {
            "content-type": "application/json; charset=utf-8",
            "x-queue-id": _ID,
            "x-queue-name": "bench",
            "x-listener-id": _ID,
            "x-message-name": "bench-AAAAAAA",
            "x-delivery-id": _ID,
            "x-attempt": "1",
            **secrets.headers([secret], id=_ID, at_ms=time.time_ns() // 1_000_000, body=data),
        }
        async with session.post(url, data=data, headers=headers, allow_redirects=False) as answer:
            await answer.read()
            assert answer.status == 200


async def _main(port: int, listeners: int, messages: int) -> None:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers={"user-agent": USER_AGENT}
    ) as session:
        senders = []
        for listener in range(listeners):
            numbers = iter(range(messages))
            url = f"http://127.0.0.1:{port}/{listener}"
            senders += [_send(session, url, numbers) for _ in range(IN_FLIGHT_MAX)]
        began_s = time.process_time()
        await asyncio.gather(*senders)
        print(time.process_time() - began_s)


if __name__ == "__main__":
    uvloop.run(_main(*map(int, sys.argv[1:])))
