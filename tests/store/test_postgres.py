"""What a PostgreSQL database can be instead of a good one, and that it comes back."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec.structs import replace

from courier import ids
from courier.clock import ManualClock
from courier.core.errors import StoreUnavailable, Unavailable
from courier.core.records import Change, Records
from courier.core.types import Draft, Queue
from courier.store.disk_postgres import migrate
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import CALLER, SEALER
from tests.faults.disk import SmallDisk, may_mount
from tests.server import free_port

QUEUE = Queue(id="c0" + "1" * 30, tenant="t", name="q", created_ms=0, modified_ms=0)


def _put(queue: Queue, records: Records) -> Change[None]:
    return Change(puts=[queue])


def refusal(url: str) -> str:
    async def opened() -> None:
        store = await SharedStore.open(url, sealer=SEALER)
        await store.close()

    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(opened())
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("/postgres?", "/nothing?"), "has no such database"),
        (("courier@", "nobody@"), "refused the user or the password"),
        (("schema=bad", "schema=Bad-Name"), "small letters, digits and underscores"),
        (("//courier@127.0.0.1", "//courier@127.0.0.2"), "cannot be reached"),
        (("//courier@127.0.0.1", "//"), "names no host"),
    ],
)
def test_a_bad_address_is_refused_in_one_sentence(change: tuple[str, str], said: str) -> None:
    url = postgres.server().url("bad").replace(*change)
    if change[1] == "//":
        url = "postgresql:///postgres"
    found = refusal(url)
    assert said in found and "\n" not in found


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("LOGIN PASSWORD 'right'", "refused the user or the password"),
        ("LOGIN CONNECTION LIMIT 0", "has no connection left"),
        ("LOGIN", "the user may not do that"),
        ("NOLOGIN", "refused the user or the password"),
    ],
    ids=["password", "connections", "rights", "login"],
)
def test_a_user_who_cannot_be_used_is_refused_in_one_sentence(role: str, said: str) -> None:
    server = postgres.server()
    server.sql("DROP ROLE IF EXISTS stranger", f"CREATE ROLE stranger {role}")
    user = "stranger:wrong@" if "PASSWORD" in role else "stranger@"
    server.require_password("stranger" if "PASSWORD" in role else "nobody")
    found = refusal(server.url("mine").replace("courier@", user))
    assert said in found and "\n" not in found and "wrong" not in found


_FULL = """
CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
RAISE EXCEPTION 'could not extend file "base/1": No space left on device' USING ERRCODE = '53100';
END $$
"""
_FULL_NOW = """
CREATE TRIGGER full_now BEFORE INSERT ON {schema}.block EXECUTE FUNCTION {schema}.full()
"""


class Trigger:
    """Stands in for a full disk where no file system may be mounted."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def fill(self) -> None:
        for statement in (_FULL, _FULL_NOW):
            postgres.server().sql(statement.format(schema=self._schema))

    def free(self) -> None:
        postgres.server().sql(f"DROP FUNCTION {self._schema}.full() CASCADE")


class Tablespace:
    """Bodies lie on a small disk of their own."""

    def __init__(self, schema: str, disk: SmallDisk) -> None:
        self._disk = disk
        place = disk.mount / "tablespace"
        place.mkdir()
        if os.geteuid() == 0:
            shutil.chown(place, "postgres")
        postgres.server().sql(f"CREATE TABLESPACE small LOCATION '{place}'")
        postgres.server().sql(f"ALTER TABLE {schema}.block SET TABLESPACE small")
        self._back = f"ALTER TABLE {schema}.block SET TABLESPACE pg_default"

    def fill(self) -> None:
        self._disk.fill()

    def free(self) -> None:
        self._disk.free()

    def remove(self) -> None:
        postgres.server().sql(self._back)
        postgres.server().sql("DROP TABLESPACE small")


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[str, Trigger | Tablespace]]:
    """A store, and what can fill its disk."""
    url = postgres.url_of(tmp_path / "full")
    asyncio.run(_opened_and_closed(url))
    schema = url.rpartition("=")[2]
    if not may_mount():
        yield url, Trigger(schema)
        return
    # Where the user that PostgreSQL runs as can go.
    with tempfile.TemporaryDirectory(prefix="courier-full-") as place:
        Path(place).chmod(0o755)
        with SmallDisk(Path(place) / "disk") as disk:
            space = Tablespace(schema, disk)
            yield url, space
            space.remove()


def test_a_full_database_refuses_and_takes_again_when_there_is_room(
    filled: tuple[str, Trigger | Tablespace],
) -> None:
    url, disk = filled
    # Longer than what is left in pages that the table has already.
    body = ids.new_bytes(4 << 20)

    async def story() -> tuple[str, int]:
        store = await SharedStore.open(url, sealer=SEALER)

        async def publish() -> None:
            await store.publish([(QUEUE.id, [Draft(body)])], actor=CALLER, now_ms=1)

        await store.change(partial(_put, QUEUE), actor=CALLER, now_ms=1)
        await asyncio.to_thread(disk.fill)
        try:
            with pytest.raises(StoreUnavailable) as caught:
                await publish()
        finally:
            await asyncio.to_thread(disk.free)
        await publish()
        await store.health.check()
        stats = await store.stats([QUEUE.id], now_ms=1)
        await store.close()
        return str(caught.value), stats[QUEUE.id].count

    said, count = asyncio.run(story())
    assert "has no room left: could not extend file" in said and "\n" not in said
    assert count == 1


@pytest.mark.parametrize("table", ["orders", "version"])
def test_tables_of_somebody_else_are_left_alone(table: str) -> None:
    server = postgres.server()
    server.sql("DROP SCHEMA IF EXISTS theirs CASCADE", "CREATE SCHEMA theirs")
    server.sql(f"CREATE TABLE theirs.{table} (id int)")
    assert f"tables that are not Courier's ({table})" in refusal(server.url("theirs"))
    assert server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'theirs'") == f"{table}\n"


def test_servers_of_two_releases_run_and_restart_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a release takes away what the older one needs."""
    url = postgres.server().url(f"releases_{free_port()}")
    package = tmp_path / "newer"
    shutil.copytree(str(files(migrate.__package__).joinpath("migrations")), package / "migrations")

    async def publish(store: SharedStore) -> None:
        await store.publish([(QUEUE.id, [Draft(b"x")])], actor=CALLER, now_ms=1)

    async def newer(number: int, script: str) -> SharedStore:
        (package / "migrations" / f"{number:04}_next.sql").write_text(script)
        with monkeypatch.context() as patched:
            patched.setattr(migrate, "files", lambda _: package)
            return await SharedStore.open(url, sealer=SEALER)

    async def story() -> int:
        old = await SharedStore.open(url, sealer=SEALER)
        await old.change(partial(_put, QUEUE), actor=CALLER, now_ms=1)
        number = len(list((package / "migrations").iterdir())) + 1
        new = await newer(number, "CREATE TABLE added (id bigint PRIMARY KEY);")
        for _ in range(2):
            for store in (old, new):
                await publish(store)
            await old.close()
            old = await SharedStore.open(url, sealer=SEALER)
        await new.close()
        new = await newer(number + 1, f"UPDATE version SET oldest = {number + 1};")
        await publish(new)
        await publish(old)  # who runs is not disturbed, and must be stopped before that release
        stats = await new.stats([QUEUE.id], now_ms=1)
        for store in (old, new):
            await store.close()
        return stats[QUEUE.id].count

    assert asyncio.run(story()) == 6
    assert "written by a newer Courier (schema 5, this one knows 3)" in refusal(url)


async def _opened_and_closed(url: str) -> None:
    store = await SharedStore.open(url, sealer=SEALER)
    await store.close()


def test_another_server_sees_settings_and_hints(tmp_path: Path) -> None:
    """Neither waits for the other's next look: settings are there with the answer.

    On a busy machine the answer waits for the other server for a second at most, so that some may
    come later; a look that nobody had to ask for would find few of them.
    """
    url = postgres.url_of(tmp_path / "two")

    async def story() -> tuple[int, bool, list[bytes], list[dict[str, int]]]:
        one = await SharedStore.open(url, sealer=SEALER)
        two = await SharedStore.open(url, sealer=SEALER)
        seen = 0
        for number in range(20):
            queue = replace(QUEUE, modified_ms=number + 1)
            await one.change(partial(_put, queue), actor=CALLER, now_ms=1)
            found = two.records.get(Queue, QUEUE.id)
            seen += found is not None and found.modified_ms == number + 1
        hint = two.waiters.wait(QUEUE.id)
        await one.publish([(QUEUE.id, [Draft(b"x")])], actor=CALLER, now_ms=1)
        async with asyncio.timeout(5):
            hinted = await hint
        leased = await two.lease(QUEUE.id, count=2, lease_ms=1_000, actor=CALLER, now_ms=1)
        held = [await node.hold(["sweep"], now_ms=1) for node in (one, two, one)]
        await one.close()
        held.append(await two.hold(["sweep"], now_ms=1))
        await two.close()
        return seen, hinted, [message.body for message in leased.messages], held

    seen, hinted, bodies, held = asyncio.run(story())
    assert seen > 10
    assert hinted
    assert bodies == [b"x"]
    assert held == [{"sweep": 1}, {}, {"sweep": 1}, {"sweep": 2}]


def test_a_reader_that_loses_its_connection_says_why(tmp_path: Path) -> None:
    url = postgres.url_of(tmp_path / "reader")

    async def story() -> str:
        store = await SharedStore.open(url, sealer=SEALER)
        with pytest.raises(StoreUnavailable) as caught:
            async with store.disk._reading() as db:
                pid = await db.fetchval("SELECT pg_backend_pid()")
                end = f"SELECT pg_terminate_backend({pid})"
                await asyncio.to_thread(postgres.server().sql, end)
                await db.fetch("SELECT 1")
        await store.close()
        return str(caught.value)

    assert "cannot be reached: the connection was lost" in asyncio.run(story())


@pytest.fixture
def mortal() -> Iterator[postgres.Database]:
    """A server that a test may stop."""
    server = postgres.Database("fsync=off")
    yield server
    server.remove()


@pytest.mark.slow
def test_a_database_that_comes_back_is_used_again(mortal: postgres.Database) -> None:
    clock = ManualClock()

    async def story() -> tuple[str, int]:
        store = await SharedStore.open(mortal.url("courier"), sealer=SEALER)
        now_ms = clock.now_ms()

        async def publish() -> None:
            await store.publish([(QUEUE.id, [Draft(b"x")])], actor=CALLER, now_ms=now_ms)

        await store.change(partial(_put, QUEUE), actor=CALLER, now_ms=now_ms)
        await publish()
        await asyncio.to_thread(mortal.stop, "immediate")
        with pytest.raises(StoreUnavailable) as caught:
            await publish()
        with pytest.raises(StoreUnavailable):
            await store.health.check()
        await asyncio.to_thread(mortal.start)
        async with asyncio.timeout(20):
            while True:
                try:
                    await publish()
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.1)
        await store.health.check()
        stats = await store.stats([QUEUE.id], now_ms=now_ms)
        await store.close()
        return str(caught.value), stats[QUEUE.id].count

    said, count = asyncio.run(story())
    assert "cannot be reached" in said
    assert count == 2


@pytest.mark.slow
def test_nobody_waits_for_a_database_that_stays_away(mortal: postgres.Database) -> None:
    """Neither callers whose commit is in doubt, nor those who come later, nor who only looks."""

    async def story() -> list[BaseException]:
        store = await SharedStore.open(mortal.url("courier"), sealer=SEALER)
        await store.change(partial(_put, QUEUE), actor=CALLER, now_ms=1)
        failed: list[BaseException] = []

        async def publish_until_refused() -> None:
            try:
                while True:
                    await store.publish([(QUEUE.id, [Draft(b"x")])], actor=CALLER, now_ms=1)
            except Unavailable as error:
                failed.append(error)

        publishers = [asyncio.create_task(publish_until_refused()) for _ in range(20)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(mortal.stop, "immediate")
        async with asyncio.timeout(30):
            await asyncio.gather(*publishers)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.journal.head()
            await store.close()
        return failed

    assert len(asyncio.run(story())) == 20
