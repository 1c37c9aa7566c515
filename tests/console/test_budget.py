"""What the console may cost the broker: with 10,000 queues, and with nobody looking."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from courier import app, ids
from courier.clock import SteadyClock
from courier.config import Config
from courier.core import keys
from courier.core.records import decided
from courier.core.types import BROKER, Draft, Queue, Tenant
from courier.store.embedded import EmbeddedStore
from courier.web import Head, Request

QUEUES = 10_000
# What they cost in time is measured by `python -m bench console`.
CALLS_MAX = 22 * QUEUES
STEP_CALLS_MAX = 35_000
STREAMS = 50
STREAM_CALLS_MAX = 1_000
# Where the event loop begins its next step.
_TURN = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
NOW_MS = 1_794_950_030_000


class Asked(Request):
    async def read(self, limit: int) -> bytes:
        return b""


class Waiting:
    on_gone: Callable[[], None] | None = None
    gone = False


async def _server(directory: Path) -> tuple[app.Courier, str]:
    store = await EmbeddedStore.open(directory / "courier.db")
    clock = SteadyClock(NOW_MS, step_wait_ms=60_000)
    courier = app.build(store, Config(data=directory), clock, port=1)
    tenant = Tenant(id=ids.new_id(), tenant="", name="default", created_ms=0, organization="o")
    grants = keys.grants(["admin", "journal"])
    key, secret = keys.new_key(tenant="", name="first", grants=grants, now_ms=0)
    queues = [
        Queue(id=ids.new_id(), tenant=tenant.id, name=f"queue-{n:05d}", created_ms=0, modified_ms=0)
        for n in range(QUEUES)
    ]
    await store.change(decided(puts=[tenant, key]), actor=BROKER, now_ms=NOW_MS)
    for first in range(0, QUEUES, 500):
        part = queues[first : first + 500]
        await store.change(decided(puts=part), actor=BROKER, now_ms=NOW_MS)
    for queue in queues[:: QUEUES // 500]:
        await store.publish([(queue.id, [Draft(b"x")] * 3)], actor=BROKER, now_ms=NOW_MS)
    return courier, secret


class Calls:
    """Counts calls of Python and C functions, in all and in the longest step of the loop.

    Unlike time they do not depend on the machine; a call takes some 0.1 to 0.3 microseconds.
    """

    def __init__(self) -> None:
        self.whole = self.step_longest = self._step = 0

    def __enter__(self) -> "Calls":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "c_call"):
            return
        self.whole += 1
        if frame.f_code is _TURN:
            self._step = 0
        self._step += 1
        self.step_longest = max(self.step_longest, self._step)


async def _calls(directory: Path, query: bytes) -> tuple[Calls, Calls]:
    """Of the page, and of opening its stream of live values fifty times."""
    courier, secret = await _server(directory)
    headers = {b"authorization": f"Bearer {secret}".encode()}

    async def ask(path: bytes, accept: bytes) -> Any:
        asked = Asked(Head("GET", path, query, {**headers, b"accept": accept}), Waiting(), "")
        answer = await courier.app.respond(asked)
        assert answer is not None and answer.status == 200, answer

    await ask(b"/console", b"text/html")
    with Calls() as page:
        await ask(b"/console", b"text/html")
    with Calls() as streams:
        for _ in range(STREAMS):
            await ask(b"/console/live", b"text/event-stream")
    courier.console.drain()  # type: ignore[union-attr]
    await courier.store.close()
    return page, streams


@pytest.mark.parametrize("query", [b"", b"sort=waiting", b"q=queue-04", b"sort=name&after=9000"])
def test_ten_thousand_queues_are_shown_with_few_calls_and_in_small_steps(
    tmp_path: Path, query: bytes
) -> None:
    page, streams = asyncio.run(_calls(tmp_path, query))
    assert page.whole <= CALLS_MAX
    assert page.step_longest <= STEP_CALLS_MAX
    # Which rows a page has is not found out once more for each stream.
    assert streams.whole <= STREAMS * STREAM_CALLS_MAX


def test_nobody_looking_costs_nothing(tmp_path: Path) -> None:
    async def tasks() -> int:
        courier, _ = await _server(tmp_path)
        count = len(asyncio.all_tasks())
        await courier.store.close()
        return count

    assert asyncio.run(tasks()) == 1
