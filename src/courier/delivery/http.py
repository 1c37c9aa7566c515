"""The transport over HTTP, by a client that takes long to load: see `LateTransport`."""

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from courier.delivery.targets import Refused, Targets
from courier.delivery.transport import USER_AGENT, Push, PushResult

ANSWER_BYTES_MAX = 64 << 10


class HttpTransport:
    """Keeps connections open between pushes. Follows no redirect, keeps no cookie."""

    def __init__(self, targets: Targets, *, connections_max: int) -> None:
        self._targets = targets
        self._guarded = _session(targets, connections_max)
        self._trusted = _session(None, connections_max)
        # Its own, or listeners that are well would seem down because others do not answer.
        self._probing = _session(targets, connections_max)

    async def send(self, push: Push, *, timeout_ms: int) -> PushResult:
        session = self._trusted if push.trusted else self._guarded
        return await self._request(session, "POST", push.url, timeout_ms, push.headers, push.body)

    async def get(self, url: str, *, timeout_ms: int) -> PushResult:
        # Nothing here unpacks an answer.
        headers = {"accept-encoding": "identity"}
        return await self._request(self._probing, "GET", url, timeout_ms, headers)

    async def _request(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        timeout_ms: int,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> PushResult:
        began_s = time.perf_counter()

        def result(status: int, error: str = "", body: bytes = b"", after: str = "") -> PushResult:
            return PushResult(
                status, round((time.perf_counter() - began_s) * 1000), error, body, after
            )

        try:
            if session is not self._trusted:
                self._targets.check_url(url)
            async with asyncio.timeout(timeout_ms / 1000):
                async with session.request(
                    method,
                    URL(url, encoded=True),
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                ) as answer:
                    content = await _read(answer)
                    return result(
                        answer.status, body=content, after=answer.headers.get("retry-after", "")
                    )
        except TimeoutError:
            return result(0, f"no whole answer within {timeout_ms} ms")
        except Refused as error:
            return result(0, str(error))
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            return result(0, _cause(error))

    async def close(self) -> None:
        await self._guarded.close()
        await self._trusted.close()
        await self._probing.close()


class _Resolver(AbstractResolver):
    """Gives the client the addresses that may be called, and no others."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=found.address,
                port=port,
                family=found.family,
                proto=found.protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found in await self._targets.resolve(host, port, family)
        ]

    async def close(self) -> None:
        """Nothing to let go of."""


def _session(targets: Targets | None, connections_max: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=None if targets is None else _Resolver(targets),
            socket_factory=None if targets is None else targets.open_socket,
            use_dns_cache=False,
            limit=connections_max,
            keepalive_timeout=30,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"user-agent": USER_AGENT, "accept": "*/*"},
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
    )


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """The answer, which counts only when it is whole. What is over the limit is not read."""
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size >= ANSWER_BYTES_MAX:
            answer.close()
            break
    return b"".join(parts)[:ANSWER_BYTES_MAX]


def _cause(error: BaseException) -> str:
    """In a few words, what went wrong."""
    inner = error.__cause__ or error
    if isinstance(inner, Refused):
        return str(inner)
    text = str(error) or type(error).__name__
    return text[:500]
