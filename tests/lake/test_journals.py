"""Lakes of several journals in one folder: read as one, and every row tells its journal."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from courier import lake as courier_lake
from courier.lake import archive, checks, journals, query, views
from courier.lake.catalog import Lake
from courier.lake.journals import Lakes
from courier.lake.tables import LakeError
from tests.clients.cloudflare import CloudflareClient
from tests.lake.commands import Commands
from tests.lake.lakes import SmallLake, bring, place_of, rows
from tests.server import Server

FINDINGS = ("gaps", "double_leases", "unleased_acks", "revived", "order_violations")
BODIES = "select journal, body from messages where queue = 'here' order by journal, seq"


@pytest.fixture(scope="module")
def root(small: SmallLake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the small lake, and one of another broker that has a queue of the same name."""
    root = tmp_path_factory.mktemp("journals") / "lakes"
    shutil.copytree(small.root, root / "one")
    (root.parent / "two").mkdir()
    with Server(root.parent / "two").start() as server, server.client() as http:
        orders = CloudflareClient(http, "orders")
        orders.publish_batch([json.dumps({"n": n}) for n in range(7)])
        orders.ack([each.lease for each in orders.pull(4)])
        bring(spark, server, root / "two")
    return root


@pytest.fixture
def both(root: Path) -> Lakes:
    found = journals.opened(str(root))
    assert isinstance(found, Lakes)
    return found


def test_every_row_of_every_table_is_there_and_tells_its_journal(
    both: Lakes, spark: SparkSession
) -> None:
    assert [*both.journals] == ["one", "two"]
    for table in both.journals["one"].tables:
        wanted = {name: len(rows(each)) for name, each in journals.tables(both)[table.name].items()}
        counted = f"select journal, count(*) from {table.name} group by 1 order by 1"
        assert {name: n for name, n in query.ask(both, counted, limit=9).rows} == wanted
        read = courier_lake.read(spark, table.name, lake=both.root)
        assert {
            row["journal"]: row["count"] for row in read.groupBy("journal").count().collect()
        } == wanted
        assert read.columns == ["journal", *table.schema.names]


def test_each_journal_has_its_own_offsets_and_its_own_audit(both: Lakes) -> None:
    sql = 'select journal, min("offset"), max("offset"), count(*) from events group by 1 order by 1'
    wanted = [
        [name, 1, upto, upto]
        for name, lake in both.journals.items()
        for upto in [archive.last(lake.events)]
    ]
    assert [[*row] for row in query.ask(both, sql, limit=9).rows] == wanted
    wrong = " or ".join(f"{name} <> 0" for name in ("difference", *FINDINGS))
    assert query.ask(both, f"select * from audit where {wrong}", limit=9).rows == []
    sql = "select journal, accepted, acked from audit where queue = 'orders' order by 1, run_at"
    found = {row[0]: [*row[1:]] for row in query.ask(both, sql, limit=99).rows}
    assert found == {"one": [40, 25], "two": [7, 4]}


def test_a_file_of_views_has_all_of_them(both: Lakes, tmp_path: Path) -> None:
    file = tmp_path / "views.duckdb"
    written = views.write(both, file)
    with duckdb.connect(str(file), read_only=True) as connection:
        for name, count in written.items():
            assert connection.execute(f"select count(*) from {name}").fetchall() == [(count,)]
        sql = "select journal, upto from tables where \"table\" = 'events' order by 1"
        assert connection.execute(sql).fetchall() == [
            (name, archive.last(lake.events)) for name, lake in both.journals.items()
        ]
        sql = "select count(*) from messages where journal = 'two' and data->>'n' >= '0'"
        assert connection.execute(sql).fetchall() == [(7,)]


def test_commands_read_all_and_change_one(root: Path, small: SmallLake, courier: Commands) -> None:
    def command(*args: str, lake: Path = root) -> tuple[int, str]:
        status, printed, said = courier("lake", *args, "--lake", str(lake))
        return status, printed + said

    status, said = command("query", "select journal from audit group by 1 order by 1", "--csv")
    assert (status, said.split()) == (0, ["journal", "one", "two"])
    status, said = command("tables", "--json")
    assert {(each["journal"], each["table"]) for each in json.loads(said)} == {
        (journal, table.name) for journal in ("one", "two") for table in small.lake.tables
    }
    changing = (["erase", "--queue", "orders"], ["drop", "--before", "1d"], ["compact"], ["vacuum"])
    for args in (*changing, ["erasures"], ["catalog"]):
        status, said = command(*args)
        assert status == 1 and f"(one, two): name the one that is meant, as {root}/one" in said
    status, said = command("erase", "--queue", "orders", "--dry-run", lake=root / "two")
    assert status == 0 and said.startswith("7 messages")


def test_a_pipeline_does_not_begin_a_lake_around_others(root: Path, small: SmallLake) -> None:
    lake = Lake(str(root))
    with pytest.raises(LakeError, match="has lakes of several journals"):
        checks.check(lake, place_of(small.server), name="lake", checkpoint=str(root / "_c"))
    assert {each.name for each in root.iterdir()} == {"one", "two"}


def test_one_journal_is_not_counted_twice(root: Path, tmp_path: Path) -> None:
    lakes = tmp_path / "lakes"
    shutil.copytree(root, lakes)
    shutil.copytree(root / "two", lakes / "two-again")
    with pytest.raises(LakeError, match=r"'two' and 'two-again' .* are of the same journal"):
        journals.opened(str(lakes))


def test_the_lakes_of_before_and_after_a_restore_are_kept_apart(
    spark: SparkSession, courier: Commands, tmp_path: Path
) -> None:
    """The same queue has other messages with the same numbers after it."""
    root, place = tmp_path / "lakes", tmp_path / "server"
    place.mkdir()
    bodies = iter(["kept", "lost", "new"])

    def publish_one() -> Iterator[Server]:
        with Server(place).start() as server, server.client() as http:
            http.post("/queues", json={"queue_name": "here"})
            [queue] = http.get("/queues", params={"name": "here"}).json()["result"]
            message = {"body": next(bodies), "content_type": "text"}
            path = f"/queues/{queue['queue_id']}/messages"
            http.post(path, json=message).raise_for_status()
            yield server

    for _ in publish_one():
        pass
    shutil.copytree(place, tmp_path / "backup")
    for server in publish_one():
        bring(spark, server, root / "before")
    shutil.rmtree(place)
    shutil.move(tmp_path / "backup", place)
    status, _, said = courier("store", "restored", f"sqlite:{place / 'data'}")
    assert status == 0, said
    for server in publish_one():
        with pytest.raises(LakeError, match="lakes in one folder can be read as one"):
            bring(spark, server, root / "before")
        bring(spark, server, root / "after")
    found = query.ask(journals.opened(str(root)), BODIES, limit=9).rows
    assert [[*row] for row in found] == [
        ["after", "kept"],
        ["after", "new"],
        ["before", "kept"],
        ["before", "lost"],
    ]


def test_lakes_in_a_bucket_are_read_as_one(
    tmp_path: Path, bucket: str, spark: SparkSession, small: SmallLake
) -> None:
    lakes = f"{bucket}/journals"
    with Server(tmp_path).start() as server, server.client() as http:
        CloudflareClient(http, "here").publish_batch(["three"])
        bring(spark, server, f"{lakes}/three")
    bring(spark, small.server, f"{lakes}/one")
    both = journals.opened(lakes)
    assert [[*row] for row in query.ask(both, BODIES, limit=9).rows] == [["three", "three"]]
    read = courier_lake.read(spark, "messages", lake=lakes)
    assert {row["journal"] for row in read.collect()} == {"one", "three"}
