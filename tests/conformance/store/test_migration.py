"""A file written by an older Courier goes on where it was."""

import asyncio
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import apsw
import msgspec
import pytest

from courier import ids
from courier.clock import ManualClock
from courier.core.types import DAY_MS, MINUTE_MS, Draft, Key, Outcome, Queue, QueueStats, Run
from courier.store.sqlite import SqliteStore
from tests.conformance.store.driver import SEALER, TENANT, Driver, bodies

NOW_MS = 1_700_000_000_000
QUEUE = "c0" + "1" * 30
SECRET = bytes(range(32))
LANE = 1 << 42
BASE = 1 << 43

RECORDS = {
    "Queue": {
        "type": "Queue",
        "id": QUEUE,
        "tenant": TENANT,
        "parent": "",
        "name": "orders",
        "created_ms": NOW_MS - 1_000,
        "modified_ms": NOW_MS - 1_000,
        "delay_ms": 0,
        "retention_ms": DAY_MS,
        "lease_ms": 30_000,
        "retry_delay_ms": 0,
        "attempts_max": None,
        "dead_letter": None,
        "paused": False,
        "frozen": False,
        "purge": None,
        "labels": {},
    },
    "Key": {
        "type": "Key",
        "id": "c0" + "2" * 30,
        "tenant": TENANT,
        "parent": "",
        "name": "robot",
        "created_ms": NOW_MS - 1_000,
        "digest": "d" * 64,
        "hint": "co_ab",
        "grants": [{"scope": "journal", "targets": []}],
        "enabled": True,
        "expires_ms": None,
    },
}


def message(seq: int, body: bytes, *, lane: int = 0, expires_ms: int | None = None) -> list[object]:
    key = BASE | lane | seq
    return [key, NOW_MS, len(body), "text", None, None, None, expires_ms, None, body]


def write_the_first_schema(path: Path) -> None:
    """One message leased, one given back, one delayed with an expiry of its own, one new."""
    scripts = files("courier.store.sqlite").joinpath("migrations")
    db = apsw.Connection(str(path))
    db.execute(scripts.joinpath("0001_start.sql").read_text())
    db.execute("PRAGMA user_version = 1")
    db.execute("INSERT INTO meta (one, epoch, secret) VALUES (1, 'epoch', ?)", (SECRET,))
    for kind, record in RECORDS.items():
        body = json.dumps(record).encode()
        db.execute("INSERT INTO record VALUES (?, ?, ?)", (kind, record["id"], body))
    db.execute(
        "INSERT INTO subscription"
        " (no, queue, tail, cursor, count, bytes, leased, delayed, again, held)"
        " VALUES (1, ?, 4, 2, 4, 10, 1, 1, 1, 1)",
        (QUEUE,),
    )
    db.executemany(
        "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            message(1, b"a"),
            message(2, b"bb"),
            message(3, b"ccc", lane=LANE, expires_ms=NOW_MS + 500),
            message(4, b"dddd"),
        ],
    )
    db.executemany(
        "INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (BASE | 1, 1, 0, 1, NOW_MS + 100, NOW_MS, NOW_MS, NOW_MS, 1, None),
            (BASE | 2, 0, 0, 2, 0, NOW_MS, NOW_MS, NOW_MS, 2, None),
            (BASE | 3, 2, 1, 0, NOW_MS + 200, NOW_MS, None, None, 3, None),
        ],
    )
    known = ids.message_id(published_ms=NOW_MS, seq=1, queue=QUEUE)
    db.execute("INSERT INTO once VALUES (1, 'k', ?, ?)", (NOW_MS + 1_000, known))
    columns = {"seq": [1, 2], "published_ms": NOW_MS, "size": [1, 2], "body": [b"a", b"bb"]}
    run = Run(1, 2, "published", NOW_MS, TENANT, QUEUE, "orders", "", "", columns)
    data = msgspec.msgpack.encode([run])
    db.execute("INSERT INTO journal VALUES (2, 2, ?, ?, ?)", (NOW_MS, len(data), data))
    db.execute("INSERT INTO minute VALUES (?, ?, 'published', 4, 10)", (NOW_MS // MINUTE_MS, QUEUE))
    db.close()


@pytest.fixture
def driver(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Driver]:
    path = tmp_path / "courier.db"
    write_the_first_schema(path)
    driver = Driver(runner.run(SqliteStore.open(path, sealer=SEALER)), ManualClock(NOW_MS), runner)
    yield driver
    runner.run(driver.store.close())


@pytest.fixture
def queue(driver: Driver) -> Queue:
    queue = driver.run(driver.store.get(Queue, QUEUE))
    assert queue is not None
    return queue


def test_records_are_read_with_what_they_did_not_say(driver: Driver, queue: Queue) -> None:
    assert (queue.name, queue.retention_ms) == ("orders", DAY_MS)
    assert (queue.fifo, queue.encrypted) == (False, False)
    [key] = driver.run(driver.store.scan(Key))
    assert (key.name, key.kind, key.sealed) == ("robot", "token", "")


def test_the_secret_and_the_epoch_are_the_same(driver: Driver) -> None:
    assert driver.store.secret == SECRET
    assert driver.run(driver.store.head()).epoch == "epoch"


def test_leases_delays_and_attempts_go_on(driver: Driver, queue: Queue) -> None:
    assert driver.stats(queue) == QueueStats(4, 10, NOW_MS, leased=1, delayed=1)
    ready = driver.lease(queue, lease_ms=1_000)
    assert [(m.body, m.attempts) for m in ready] == [(b"bb", 3), (b"dddd", 1)]
    driver.advance(100)
    assert [(m.body, m.attempts) for m in driver.lease(queue)] == [(b"a", 2)]
    driver.advance(100)
    [delayed] = driver.lease(queue)
    assert (delayed.body, delayed.attempts) == (b"ccc", 1)
    assert (delayed.expires_ms, delayed.sealed, delayed.group) == (NOW_MS + 500, None, None)
    assert driver.ack(queue, ready[0]) is Outcome.DONE
    driver.advance(300)
    assert driver.find(queue, delayed.id) is None


def test_keys_of_repeated_publishes_are_known(driver: Driver, queue: Queue) -> None:
    receipt = driver.publish(queue, Draft(b"a", once_key="k"))
    assert receipt.repeated == [True]
    assert receipt.ids == [driver.browse(queue)[0].id]


def test_the_queue_works_on(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "e", Draft(b"f", ttl_ms=2 * DAY_MS))
    assert bodies(driver.lease(queue)) == ["bb", "dddd", "e", "f"]
    assert [message.seq for message in driver.browse(queue)] == [1, 2, 3, 4, 5, 6]
    driver.advance(DAY_MS)
    assert bodies(driver.lease(queue)) == ["f"]


def test_the_journal_goes_on(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "e")
    events = driver.events()
    assert [event["offset"] for event in events] == [1, 2, 3]
    assert [event["seq"] for event in events] == [1, 2, 5]


def test_minutes_that_were_counted_still_count(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "e")
    [tally] = driver.tallies(queue.id)
    assert (tally.minute, tally.kind) == (NOW_MS // MINUTE_MS, "published")
    assert (tally.count, tally.bytes) == (5, 11)


def test_new_kinds_of_queues_can_be_added(driver: Driver) -> None:
    fifo = driver.queue("fifo", fifo=True)
    driver.publish(fifo, Draft(b"a1", group="a"), Draft(b"b1", group="b"), Draft(b"a2", group="a"))
    driver.lease(fifo, count=1)
    assert bodies(driver.peek(fifo)) == ["b1"]
