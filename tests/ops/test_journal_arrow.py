"""A page of Arrow says what the lines of JSON say, for every kind of event and every column."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from courier import arrow, ids
from courier.clock import ManualClock
from courier.core import journal
from courier.core.types import Draft, Message, Run
from courier.long_texts import LongTexts
from courier.ops.journal import _lines
from courier.store.embedded import EmbeddedStore
from tests.conformance.store.driver import Driver, sealed

Parts = list[tuple[Run, int, int]]

START_MS = 1_700_000_000_123
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def live(driver: Driver) -> None:
    """A history with every kind of message event, many and few at a time."""
    dead = driver.queue("dead")
    queue = driver.queue(attempts_max=2, dead_letter=dead.id, retention_ms=10_000)
    fifo = driver.queue("fifo", fifo=True)
    mill, shop = driver.listener(queue), driver.listener(queue, "shop")

    def published(*drafts: Draft | str) -> list[Message]:
        driver.publish(queue, *drafts)
        return driver.lease(queue)

    driver.publish(fifo, Draft(b"f", group="g"), Draft(b"g", group="g", delay_ms=5))
    one, two, three = published(
        Draft(b'{"n":1}', "json", {"k": [1, None]}, "own-1"), Draft(b"\xff\x00", "bytes"), "größe"
    )
    driver.extend(queue, one, lease_ms=5_000)
    driver.advance(7)
    driver.ack(queue, one)
    driver.retry(queue, two, delay_ms=3)
    driver.advance(1_000)  # the lease of the third is over
    driver.lease(queue)
    driver.retry(queue, two)  # late
    for message in driver.lease(queue):
        driver.retry(queue, message)
    driver.advance(2_000)
    for message in driver.lease(queue):
        driver.retry(queue, message)
    assert three.attempts == 1
    driver.publish(queue, sealed(b"secret", id="own-2"), "d", "e")
    driver.rename(queue, 5, "name")
    driver.arrive(mill, driver.take_one(mill))
    driver.miss(mill, driver.take_one(mill), delay_ms=10)
    driver.miss(shop, driver.take_one(shop), delay_ms=None)
    driver.remove(queue, 4)
    driver.purge(queue, upto_seq=5)
    driver.advance(10_000)
    driver.sweep_all()
    driver.publish_rows(queue, "x", "y", listener=mill)
    driver.change(drops=[shop])
    driver.change(drops=[fifo])
    driver.sweep_all()


async def open_memory(_: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(None)


OPENERS: dict[str, Callable[[Path], Any]] = {"memory": open_memory, "sqlite": EmbeddedStore.open}


@pytest.fixture(params=OPENERS, scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Run]]:
    clock = ManualClock()
    clock.advance(START_MS - clock.now_ms())
    with asyncio.Runner() as runner:

        async def opened() -> Any:
            return await OPENERS[request.param](tmp_path_factory.mktemp("told") / "courier.db")

        driver = Driver(runner.run(opened()), clock, runner)
        live(driver)
        yield driver.run(driver.store.journal.read(after=0, limit=1_000))
        runner.run(driver.store.close())


def parts(runs: list[Run], *, after: int = 0, limit: int = 1_000) -> Parts:
    return list(journal.cut(runs, after=after, limit=limit))


def table(parts: Parts, *columns: str) -> pa.RecordBatch:
    with pa.ipc.open_stream(arrow.stream(parts, columns)) as stream:
        batch = stream.read_next_batch()
    batch.validate(full=True)
    return batch


def told(parts: Parts) -> list[dict[str, Any]]:
    """The lines of JSON, in the names and values of a table."""
    rows = []
    for line in _lines(parts, LongTexts(0)).splitlines():
        event = json.loads(line)
        row: dict[str, Any] = dict.fromkeys(journal.SHOWN)
        if "body_base64" in event:
            row["body"] = base64.b64decode(event.pop("body_base64"))
        elif "body" in event:
            row["body"] = event.pop("body").encode()
        for shown, name in journal.SHOWN.items():
            if name in event:
                row[shown] = event.pop(name)
        assert not event
        rows.append(row)
    return rows


def shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of a table, with times as milliseconds and JSON as values."""
    rows = []
    for row in batch.to_pylist():
        for name, value in row.items():
            if isinstance(value, datetime):
                since = value - EPOCH
                row[name] = since.days * 86_400_000 + since.seconds * 1_000
                row[name] += since.microseconds // 1_000
            elif name in ("headers", "detail") and value is not None:
                row[name] = json.loads(value)
        rows.append(row)
    return rows


def test_the_history_has_every_kind_of_message_event(runs: list[Run]) -> None:
    assert set(journal.MESSAGE_KINDS) <= {run.kind for run in runs}


def test_arrow_and_json_tell_the_same(runs: list[Run]) -> None:
    whole = parts(runs)
    assert shown(table(whole)) == told(whole)


def test_every_column_that_can_hold_something_does(runs: list[Run]) -> None:
    batch = table(parts(runs))
    assert batch.schema.names == list(journal.SHOWN)
    assert [
        name for name in batch.schema.names if batch.column(name).null_count == len(batch)
    ] == []


def test_a_queue_is_shown_by_name_and_by_id(runs: list[Run]) -> None:
    batch = table(parts(runs), "queue", "queue_id")
    ids = {run.queue_name: run.queue for run in runs}
    assert {row["queue"]: row["queue_id"] for row in batch.to_pylist()} == ids


def test_every_range_is_a_slice_of_the_whole(runs: list[Run]) -> None:
    whole = table(parts(runs))
    for after in range(0, len(whole) + 1, 3):
        for limit in (1, 2, 7, 1_000):
            part = table(parts(runs, after=after, limit=limit))
            assert part.equals(whole.slice(after, limit))


def test_some_columns_are_those_of_the_whole(runs: list[Run]) -> None:
    whole = table(parts(runs))
    for name in whole.schema.names:
        some = table(parts(runs), name, "offset" if name != "offset" else "kind")
        assert some.num_columns == 2
        assert some.column(0).equals(whole.column(name))


TIMES = st.integers(0, 2**44 - 1)
SEQS = st.integers(1, 2**ids.SEQ_BITS - 1)
QUEUES = st.integers(0, 2**120 - 1).map(lambda number: f"c0{number:030x}")
OWN = st.none() | st.text(min_size=1)


@st.composite
def message_runs(draw: st.DrawFn) -> Run:
    seqs = draw(st.lists(SEQS, min_size=1, max_size=4))
    size = len(seqs)
    columns: dict[str, Any] = {"seq": seqs[0] if size == 1 and draw(st.booleans()) else seqs}
    lists = st.lists(TIMES, min_size=size, max_size=size)
    columns["published_ms"] = draw(TIMES | lists)
    if draw(st.booleans()):
        columns["own_id"] = draw(OWN | st.lists(OWN, min_size=size, max_size=size))
    return Run(0, size, "leased", 0, "t", draw(QUEUES), "q", "", "", columns)


SETTINGS_RUN = Run(0, 1, "key_created", 0, "t", "", "", "", "", {"detail": {}})


@given(st.lists(message_runs() | st.just(SETTINGS_RUN), max_size=6))
def test_ids_of_messages_are_those_that_everyone_else_is_told(found: list[Run]) -> None:
    pieces = [(run, 0, run.count) for run in found]
    told = [id for run in found for id in journal.column(run, "message_id")]
    assert table(pieces, "message_id").column(0).to_pylist() == told


def test_no_events_are_a_page_without_rows() -> None:
    batch = table([])
    assert (batch.num_rows, batch.schema) == (0, arrow.SCHEMA)
    assert table([], "kind").schema.names == ["kind"]
