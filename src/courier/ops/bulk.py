"""Bulk publish: many messages in one request, each of them once, however often it is sent."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from courier.core import keys
from courier.core.errors import Conflict, Forbidden, InvalidRequest, RowsChanged
from courier.core.sealed import body_place
from courier.core.types import OPERATOR, Draft, Queue
from courier.dialects.openapi import ARROW
from courier.dialects.site import flag, number
from courier.ops.digests import DIGEST_BYTES, digests
from courier.ops.services import OpsFamily
from courier.web import Call, Parameter, Route

REQUEST_BYTES_MAX = 32 << 20
KEY_CHARACTERS_MAX = 256

_PUBLISH = "/courier/v1/tenants/{tenant}/queues/{queue}/publish"
_DIGEST = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


class BulkRoutes(OpsFamily):
    family = "bulk"

    def routes(self) -> list[Route]:
        key = Parameter("once", str, "The key that the rows are numbered under")
        return [
            Route("POST", _PUBLISH, self.publish_rows, "messages:publish", "target",
                  "Publish the rows of an Arrow stream, each once under its key and number",
                  body=bytes, body_bytes_max=REQUEST_BYTES_MAX,
                  query=(key, Parameter("first", int, "The number of the first row"),
                         Parameter("digest", str, "That of the rows before the first, as told"),
                         Parameter("last", bool, "No row of the key follows these"),
                         Parameter("listener", str, "The only listener that is to get them"))),
            Route("GET", _PUBLISH, self.count_rows, "messages:publish", "target",
                  "How many rows have been published under a key, or under many",
                  query=(key, Parameter("below", str, "Of all keys that begin so, and a slash"))),
        ]  # fmt: skip

    async def publish_rows(self, call: Call) -> dict[str, Any]:
        given = call.request.header(b"content-type").partition(";")[0].strip().lower()
        if given != ARROW:
            raise InvalidRequest("content-type", f"must be {ARROW}, not '{given[:80]}'")
        key = _key(call)
        first = number(call.request, "first", default=0, high=1 << 62)
        listener = call.request.query.get("listener", [""])[-1]
        for name in ("first", "digest", "last", "listener"):
            if name in call.request.query and not key:
                raise InvalidRequest(name, "needs the parameter once")
        before, last = _digest(call, first), flag(call.request, "last")
        queue = self._queue(call)
        open = self._opener(queue) if _may_open(call) else None
        secret = self._sealer.digest_key if queue.encrypted else b""
        drafts, marks = await asyncio.to_thread(
            _drafts, call.body, open, before if key else None, last, secret
        )
        try:
            published = await self._broker.publish_rows(
                queue,
                drafts,
                key=key,
                first=first,
                listener=listener or None,
                actor=call.actor,
                marks=marks,
            )
        except RowsChanged:
            raise
        except Conflict:
            rows = await self._broker.rows(queue, key)
            told = f"is {first}, but only {rows} rows are published under '{key}'"
            raise InvalidRequest("first", told) from None
        if last and (rows := await self._broker.rows(queue, key)) > first + len(drafts):
            raise RowsChanged(key, rows)
        answer: dict[str, Any] = {"published": published}
        if marks is not None:
            answer["digest"] = marks[-1].hex()
        return answer

    async def count_rows(self, call: Call) -> dict[str, int]:
        key, below = _key(call), _key(call, "below")
        if bool(key) == bool(below):
            raise InvalidRequest("once", "is missing" if not key else "cannot go with below")
        queue = self._queue(call)
        return {"rows": await self._broker.rows(queue, key or below, below=bool(below))}

    def _opener(self, queue: Queue) -> Callable[[bytes, str], bytes]:
        """Reads bodies that were sealed on any queue of the same tenant."""
        return partial(self._sealer.open, place=body_place(queue.tenant))


def _key(call: Call, name: str = "once") -> str:
    """The key of the rows, "" for none."""
    given: list[Any] = call.request.query.get(name, [])
    if not given:
        return ""
    key = str(given[-1])
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        told = f"must have 1 to {KEY_CHARACTERS_MAX} characters, not {len(key)}"
        raise InvalidRequest(name, told)
    return key


def _digest(call: Call, first: int) -> bytes | None:
    """Of the rows before the first; None where nobody says."""
    given = str(call.request.query.get("digest", [""])[-1])
    if not given:
        return None if first else b""
    if not first:
        raise InvalidRequest("digest", "must be empty where first is 0: no row is before it")
    if not _DIGEST.fullmatch(given):
        raise InvalidRequest("digest", f"is not one that was told, but '{given[:40]}'")
    return bytes.fromhex(given)


def _drafts(
    raw: bytes,
    open: Callable[[bytes, str], bytes] | None,
    before: bytes | None,
    last: bool,
    secret: bytes,
) -> tuple[list[Draft], list[bytes] | None]:
    """The drafts, and their digests, if that before them is known."""
    # Here, so that a server nobody sends Arrow to does not load it.
    from courier.ops.drafts import read

    drafts = read(raw, open)
    return drafts, None if before is None else digests(drafts, before, last=last, key=secret)


def _may_open(call: Call) -> bool:
    """A caller that may read the journal may also send its sealed bodies as they are."""
    if call.tenant == OPERATOR:
        return True
    assert call.key is not None
    try:
        keys.require(call.key, "journal")
    except Forbidden:
        return False
    return True
