"""A connection that is cut when COMMIT was sent: whether it happened is found out, not guessed."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from courier.core.records import Change, Records
from courier.core.types import Draft, Queue
from courier.store.disk_postgres.turns import Turns
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER
from tests.server import free_port

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)
# The end of a transaction, and what is in a group that is one statement.
COMMIT, BODY = b"COMMIT\0", b"a body that is cut off"


def _put(records: Records) -> Change[None]:
    return Change(puts=[QUEUE])


class Cutter:
    """Stands between a server and its database. `cuts`: how many of the next commits are cut off;
    `delivered`: after the database has answered, otherwise before it has heard of them."""

    def __init__(self, port: int, mark: bytes) -> None:
        self._to = port
        self._mark = mark
        self.port = free_port()
        self.cuts = 0
        self.delivered = True

    async def __aenter__(self) -> "Cutter":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._to)
        cut = asyncio.Event()

        async def back() -> None:
            while data := await there.read(65_536):
                if cut.is_set():
                    return
                writer.write(data)

        answering = asyncio.create_task(back())
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self.cuts and self._mark in data:
                    self.cuts -= 1
                    cut.set()
                    if self.delivered:
                        to.write(data)
                        await answering
                    break
                to.write(data)
        answering.cancel()
        for each in (writer, to):
            each.transport.abort()


@pytest.mark.parametrize("mark", [COMMIT, BODY], ids=["transaction", "one statement"])
@pytest.mark.parametrize("delivered", [True, False], ids=["happened", "did not happen"])
def test_a_commit_whose_answer_is_lost_is_answered_truly_and_not_repeated(
    delivered: bool, mark: bytes, tmp_path: Path
) -> None:
    url = postgres.url_of(tmp_path / "doubt")

    async def story() -> tuple[int, int, int]:
        async with Cutter(postgres.server().port, mark) as cutter:
            through = url.replace(f":{postgres.server().port}/", f":{cutter.port}/")
            store = await SharedStore.open(through, sealer=SEALER)
            await store.change(_put, actor=CALLER, now_ms=1)
            cutter.delivered = delivered
            # Looks of this server commit as well, so that some cuts may hit one of those.
            answered = 0
            while store.writer.doubts < 3:
                cutter.cuts = 1
                store.writer._turns = Turns("courier")
                if mark == BODY:
                    postgres.believe_alone(store)
                await store.publish([(QUEUE.id, [Draft(BODY)])], actor=CALLER, now_ms=1)
                answered += 1
            found = (await store.stats([QUEUE.id], now_ms=1))[QUEUE.id].count
            events = await store.journal.read(after=0, limit=1_000)
            published = sum(run.count for run in events if run.kind == "published")
            await store.close()
            return answered, found, published

    answered, found, published = asyncio.run(asyncio.wait_for(story(), 60))
    assert answered == found == published >= 3
