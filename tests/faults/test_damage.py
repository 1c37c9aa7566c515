"""A damaged store says so at the start, in one sentence, and goes on only when told to."""

import asyncio
import random
from itertools import takewhile
from pathlib import Path

import apsw
import pytest

from courier.core.records import decided
from courier.core.types import Draft
from courier.store.disk_sqlite.damage import log_damage
from courier.store.embedded import EmbeddedStore
from tests.faults import account
from tests.faults.account import metrics_of, status_of, wait_until
from tests.faults.disk_run import killed
from tests.faults.disk_story import ACTOR, NOW_MS, ORDERS
from tests.server import Server

MESSAGES = 100


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Killed, with acknowledged messages in its log."""
    server = Server(tmp_path).start()
    with server.client() as client:
        path = account.create_queue(client)
        for number in range(MESSAGES):
            account.publish(client, path, f"m{number}")
    server.kill()
    return server


def spoil(file: Path, at: float, count: int = 64) -> None:
    """Change bytes at a part of the file."""
    data = bytearray(file.read_bytes())
    start = int(len(data) * at)
    data[start : start + count] = bytes(byte ^ 0x5A for byte in data[start : start + count])
    file.write_bytes(data)


def sentence(server: Server) -> str:
    """What a start that is refused says."""
    server.start(ready=False)
    assert server.ended() == 1
    last = server.log().strip().splitlines()[-1]
    assert last.startswith("courier: ") and "Traceback" not in server.log(), server.log()
    return last


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    ["UPDATE record SET body = substr(body, 2)", "DELETE FROM record WHERE kind = 'Queue'"],
    ids=["unreadable", "missing"],
)
def test_damaged_settings_need_a_backup(server: Server, damage: str) -> None:
    db = apsw.Connection(str(server.data / "courier.db"))
    db.execute(damage)
    db.close()
    for args in ([], ["--accept-damage"]):
        server.args += args
        refused = sentence(server)
        assert "courier.db is damaged" in refused and "restore a backup" in refused


def messages(server: Server) -> int:
    with server.client() as client:
        paths = [f"/queues/{queue['queue_id']}" for queue in account.result(client.get("/queues"))]
        metrics = [account.result(client.get(f"{path}/metrics")) for path in paths]
        return sum(each["backlog_count"] for each in metrics)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 0.3, 0.7])
def test_a_damaged_log_is_said_and_can_be_accepted(server: Server, at: float) -> None:
    spoil(server.data / "courier.db-wal", at)
    refused = sentence(server)
    assert "courier.db-wal is damaged at frame" in refused and "--accept-damage" in refused
    server.args.append("--accept-damage")
    with server.start():
        assert messages(server) < MESSAGES
        assert (server.data / "courier.db-wal.damaged-1").exists()
        metrics = metrics_of(server)
        assert "courier_store_damage_accepted_total 1.0" in metrics

        def journal() -> str:
            return server.operate("GET", "/journal?kinds=damage_accepted").text

        wait_until(lambda: '"lost"' in journal(), "no event says what was accepted")
        server.args.clear()
        server.restart()


@pytest.mark.slow
def test_a_damaged_database_is_said_and_can_be_accepted(server: Server) -> None:
    server.start()
    server.stop()
    database = server.data / "courier.db"
    whole = database.read_bytes()
    spoil(database, 0)
    assert "file is not a database" in sentence(server)
    database.write_bytes(whole)
    root = next(
        at for at in range(4_096, len(whole), 4_096) if whole[at] == 0x05 and len(whole) > at
    )
    spoil(database, root / len(whole), 8)
    refused = sentence(server)
    assert "courier.db is damaged" in refused and "--accept-damage" in refused


@pytest.mark.slow
def test_a_server_that_meets_damage_is_not_ready(server: Server) -> None:
    server.args += ["--check-at-start", "off"]
    server.start()
    with server.client() as client:
        path = account.create_queue(client, "large")
        account.publish(client, path, "x" * 100_000)
    server.stop()
    database = server.data / "courier.db"
    whole = bytearray(database.read_bytes())
    for at in range(0, len(whole), 4_096):
        if whole[at + 100 : at + 200] == b"x" * 100:  # of the large body, which page comes next
            whole[at : at + 4] = b"\xff" * 4
    database.write_bytes(whole)
    server.start()
    with server.client() as client:
        pulled = client.post(f"{path}/messages/pull", json={"batch_size": 1})
        assert pulled.status_code == 503, pulled.text
        assert status_of(server, "/ready") == 503
        assert status_of(server, "/health") == 200
    server.kill()


@pytest.mark.slow
def test_a_wrong_bit_of_a_body_is_an_error_that_others_do_not_notice(server: Server) -> None:
    server.start()
    with server.client() as client:
        bad, good = account.create_queue(client, "bad"), account.create_queue(client, "good")
        account.publish(client, bad, "y" * 500)
        account.publish(client, good, "fine")
    server.stop()
    database = server.data / "courier.db"
    whole = database.read_bytes()
    assert whole.count(b"y" * 500) == 1
    spoil(database, (whole.index(b"y" * 500) + 9) / len(whole), 1)
    with server.start(), server.client() as client:
        assert status_of(server, "/ready") == 200
        pulled = client.post(f"{bad}/messages/pull", json={"batch_size": 1})
        assert pulled.status_code == 503 and "damaged on disk" in pulled.text
        assert status_of(server, "/ready") == 503
        assert "courier_store_damaged_reads_total 1.0" in metrics_of(server)
        fine = account.result(client.post(f"{good}/messages/pull", json={"batch_size": 1}))
        assert len(fine["messages"]) == 1
    assert "Traceback" not in server.log()


def test_any_damage_to_what_was_acknowledged_is_noticed(tmp_path: Path) -> None:
    """Of the last transaction alone it cannot be told from one that was not finished."""

    async def story() -> Path:
        store = await EmbeddedStore.open(tmp_path / "courier.db")
        await store.change(decided(puts=[ORDERS]), actor=ACTOR, now_ms=NOW_MS)
        for number in range(5):
            await store.publish([(ORDERS.id, [Draft(b"%d" % number)])], actor=ACTOR, now_ms=NOW_MS)
        left = killed(tmp_path, tmp_path / "left")
        await store.close()
        return left

    left = asyncio.run(story())
    log, database = left / "courier.db-wal", left / "courier.db"
    whole = log.read_bytes()
    frame = 24 + 4_096
    heads = [whole[at:][:24] for at in range(32, len(whole), frame)]
    # Once all of the log is copied it begins again, and what is left of before has other salts.
    heads = list(takewhile(lambda head: head[8:16] == whole[16:24], heads))
    frames = len(heads)
    commits = [number for number, head in enumerate(heads) if head[4:8] != bytes(4)]
    chance = random.Random(1)
    assert log_damage(database) is None
    for number in range(frames):
        # A commit's own salts and checksum are what shows that another followed.
        at = 32 + number * frame + 24 + chance.randrange(4_096)
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = log_damage(database)
        if number <= commits[-2]:
            lost = sum(number <= commit for commit in commits[:-1])
            assert found is not None and (found.frame, found.lost) == (number + 1, lost)
        else:
            assert found is None
