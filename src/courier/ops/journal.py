"""The journal and its registered readers."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from courier.core import journal
from courier.core.errors import Forbidden, InvalidRequest, Rejected
from courier.core.types import OPERATOR, JournalHead, Pipeline, Run
from courier.dialects.site import number
from courier.long_texts import LongTexts
from courier.ops.services import OpsFamily, OpsServices
from courier.web import Call, Response, Route

PAGE = 1_000
# A page holds fewer events than were asked for once they take this much of the store.
PAGE_BYTES_MAX = 16 << 20
# What is being made of pages takes several times their length.
PAGES_AT_ONCE = 2
# Readers of the journal inside the server have names that begin like this.
OWN_READERS = "courier."
ARROW = "application/vnd.apache.arrow.stream"

_encode = msgspec.json.Encoder().encode


class PipelineBody(Struct):
    offset: Annotated[int, Meta(ge=0, le=1 << 62)]
    restart: bool | UnsetType = UNSET
    lost: Annotated[int, Meta(ge=0, le=1 << 62)] | UnsetType = UNSET


class OffsetTrimmed(Rejected):
    def __init__(self, after: int, first: int) -> None:
        super().__init__(
            f"the journal has been trimmed: events after {after} were asked for, "
            f"the first one kept is {first}"
        )


class JournalRoutes(OpsFamily):
    family = "journal"

    def __init__(self, services: OpsServices) -> None:
        super().__init__(services)
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/journal", self.read_journal, "journal", "whole",
                  "Events of a range of offsets", media=("application/x-ndjson", ARROW)),
            Route("GET", "/journal/head", self.journal_head, "journal", "whole",
                  "Where the journal is"),
            Route("GET", "/journal/kinds", self.journal_kinds, "journal", "whole",
                  "The kinds of events that there are"),
            Route("GET", "/journal/backlogs", self.journal_backlogs, "journal", "whole",
                  "How many messages every queue held at the journal's end"),
            Route("GET", "/journal/pipelines", self.list_pipelines, "journal", "whole",
                  "Registered readers of the journal"),
            Route("PUT", "/journal/pipelines/{name}", self.commit_pipeline, "journal", "whole",
                  "Register a reader, or say how far it has come", body=PipelineBody),
            Route("DELETE", "/journal/pipelines/{name}", self.delete_pipeline, "journal", "whole",
                  "Forget a reader"),
        ]  # fmt: skip

    async def read_journal(self, call: Call) -> Response:
        """Events with the next `limit` offsets; filters leave rows out and change no offset.

        Who reads on does so after `x-courier-upto`, the last offset that was looked at.
        """
        query = call.request.query
        as_arrow = ARROW in call.request.header(b"accept")
        after = number(call.request, "after", default=0, high=1 << 62)
        limit = number(call.request, "limit", default=PAGE, low=1, high=1 << 62)
        limit = min(limit, self._services.journal_page_max)
        wanted = _Wanted(
            call.tenant,
            queues=_names(query.get("queues")),
            kinds=_kinds(query.get("kinds")),
        )
        columns = _columns(query.get("columns"))
        if columns and not as_arrow:
            raise InvalidRequest("columns", f"only a page of {ARROW} has some; say so in accept")
        head = await self._reads.journal.head()
        if after + 1 < head.first:
            raise OffsetTrimmed(after, head.first)
        limit = min(limit, max(0, head.last - after))
        async with self._pages:
            return await self._page(call, head, after, limit, wanted, columns if as_arrow else None)

    async def _page(
        self,
        call: Call,
        head: JournalHead,
        after: int,
        limit: int,
        wanted: "_Wanted",
        columns: Sequence[str] | None,
    ) -> Response:
        """`columns` None: as lines of JSON."""
        runs = await self._reads.journal.read(after=after, limit=limit, bytes_max=PAGE_BYTES_MAX)
        if limit and (not runs or runs[0].offset > after + 1):
            # It has been trimmed since its head was read.
            raise OffsetTrimmed(after, (await self._reads.journal.head()).first)
        upto, parts, size = await asyncio.to_thread(_chosen, runs, after, limit, wanted)
        headers = ((b"x-courier-epoch", head.epoch.encode()), (b"x-courier-upto", b"%d" % upto))
        call.admit(size)
        if columns is not None:
            stream = await asyncio.to_thread(_stream, parts, columns)
            return Response(stream, content_type=ARROW.encode(), headers=headers)
        lines = await asyncio.to_thread(_lines, parts, call.long_texts())
        return Response(lines, content_type=b"application/x-ndjson", headers=headers)

    async def journal_head(self, call: Call) -> dict[str, Any]:
        head = await self._reads.journal.head()
        told: dict[str, Any] = {"first": head.first, "last": head.last, "epoch": head.epoch}
        if "at_ms" in call.request.query:
            at_ms = number(call.request, "at_ms", default=0, high=1 << 62)
            told["before"] = min(head.last, await self._reads.journal.offset_at(at_ms))
        if "room" in call.request.query:
            room = await self._services.sweeper.room()
            told["room"] = None if room is None else msgspec.to_builtins(room)
        return told

    async def journal_kinds(self, _: Call) -> dict[str, Any]:
        return {"kinds": sorted(journal.KINDS)}

    async def journal_backlogs(self, call: Call) -> dict[str, Any]:
        tenant = None if call.tenant == OPERATOR else call.tenant
        offset, held = await self._reads.journal.backlogs(tenant=tenant)
        return {"offset": offset, "queues": held}

    async def list_pipelines(self, _: Call) -> dict[str, Any]:
        found = self._records.scan(Pipeline)
        return {"pipelines": [_pipeline(each) for each in found]}

    async def commit_pipeline(self, call: Call) -> dict[str, Any]:
        _operator(call)
        name = _reader(call)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
            raise InvalidRequest("name", "expected 1 to 63 letters, digits, dots or dashes")
        offset: int = call.body.offset
        last = (await self._reads.journal.head()).last
        if offset > last:
            raise InvalidRequest("offset", f"the journal ends at {last}, before {offset}")
        moved = await self._admin.commit_pipeline(
            name,
            offset,
            actor=call.actor,
            restart=call.body.restart is True,
            lost=call.body.lost or 0,
        )
        return _pipeline(moved)

    async def delete_pipeline(self, call: Call) -> dict[str, Any]:
        _operator(call)
        await self._admin.delete_pipeline(_reader(call), actor=call.actor)
        return {}


def _reader(call: Call) -> str:
    name = call.params["name"]
    if name.startswith(OWN_READERS):
        raise InvalidRequest("name", f"'{OWN_READERS}...' are readers of the server's own")
    return name


class _Wanted:
    """Whether a run is one of those that were asked for. No names: all of them."""

    def __init__(self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str]) -> None:
        self._tenant = tenant
        self._queues = frozenset(queues)
        self._kinds = frozenset(kinds)

    def __call__(self, run: Run) -> bool:
        return (
            self._tenant in (OPERATOR, run.tenant)
            and (not self._queues or run.queue_name in self._queues)
            and (not self._kinds or run.kind in self._kinds)
        )


def _names(given: Sequence[str] | None) -> list[str]:
    """Names that were given; one may be empty, as is the queue of an event that has none."""
    return [name for text in given or () for name in text.split(",")]


def _kinds(given: Sequence[str] | None) -> list[str]:
    names = _names(given)
    for name in names:
        if name not in journal.KINDS:
            known = ", ".join(sorted(journal.KINDS))
            raise InvalidRequest("kinds", f"unknown kind '{name[:80]}'; known: {known}")
    return names


def _columns(given: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_names(given)))
    for name in names:
        if name not in journal.SHOWN:
            raise InvalidRequest("columns", f"there is no column '{name[:80]}'")
    return names


def _operator(call: Call) -> None:
    """A pipeline holds back the whole journal, so only the operator registers one."""
    if call.tenant != OPERATOR:
        raise Forbidden("journal")


def _stream(parts: list[tuple[Run, int, int]], columns: Sequence[str]) -> memoryview:
    # Here, so that a server nobody asks for Arrow does not load it.
    from courier import arrow

    return arrow.stream(parts, columns)


def _chosen(
    runs: Sequence[Run], after: int, limit: int, wanted: _Wanted
) -> tuple[int, list[tuple[Run, int, int]], int]:
    """The last offset of the page, its parts that are wanted, and the bytes of their bodies."""
    cut = list(journal.cut(runs, after=after, limit=limit))
    parts = [part for part in cut if wanted(part[0])]
    upto = after + sum([stop - start for _, start, stop in cut])
    return upto, parts, sum([_body_bytes(*part) for part in parts])


def _body_bytes(run: Run, start: int, stop: int) -> int:
    if "body" not in run.columns:
        return 0
    # Sizes are those of the bodies, unless they are encrypted; most often they are one number.
    size = run.columns.get("size")
    if "sealed" not in run.columns and isinstance(size, int):
        return size * (stop - start)
    return sum([len(body) for body in journal.column(run, "body")[start:stop] if body])


def _lines(parts: list[tuple[Run, int, int]], texts: LongTexts) -> bytes:
    lines = []
    for run, start, stop in parts:
        after, limit = run.offset + start - 1, stop - start
        for event in journal.events([run], after=after, limit=limit):
            body = event.pop("body", None)
            if body is not None:
                base64 = event["content_type"] == "bytes" or "sealed" in event
                event["body_base64" if base64 else "body"] = texts.text(body, base64=base64)
            lines.append(_encode(event))
    return b"\n".join(lines) + (b"\n" if lines else b"")


def _pipeline(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "offset": pipeline.offset,
        "seen_ms": pipeline.seen_ms,
        "lost": pipeline.lost,
    }
