"""Source, pipeline and replay on a standalone cluster.

Its own Python has no Courier: a job ships it, or brings a Python in which it is installed.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.client import Client
from courier.lake.session import START
from courier.lake.tables import FEW_ROWS
from tests.clients.cloudflare import CloudflareClient
from tests.lake.brokers import bodies, events, last_offset, options, queue
from tests.lake.cluster import SPARK_HOME, WORKERS, cluster
from tests.lake.cluster import settings as settings_of
from tests.lake.commands import Commands
from tests.lake.lakes import place_of, rows
from tests.server import Server

RUN_S_MAX = 400
ROWS_PER_TASK = 100
HERE = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Site:
    """A cluster, a server that it can reach, and what its Python is given."""

    master: str
    server: Server
    elsewhere: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    interpreter = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}")
    packages = str(bare(folder / "packages"))
    # With the second, workers do not compile Spark's archive of sources, each of them again.
    path = os.pathsep.join([packages, str(START)])
    elsewhere = {"PYTHONPATH": path, "PYSPARK_PYTHON": interpreter}
    with (
        Server(folder).start() as server,
        cluster(folder / "cluster", elsewhere) as master,
    ):
        yield Site(master, server, elsewhere)


def shipped(target: Path) -> Path:
    """What `docs/spark.md` tells to give to `--py-files`: the two packages in one file."""
    with zipfile.ZipFile(target, "w") as packed:
        for package in ("courier", "pyspark_courier"):
            for file in sorted((HERE / "src" / package).rglob("*.py")):
                packed.write(file, file.relative_to(HERE / "src"))
    return target


def bare(folder: Path) -> Path:
    """All that is installed here but Courier."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "courier" not in entry.name.lower() and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


def test_reader_writer_and_consumer_run_on_executors_elsewhere(site: Site, tmp_path: Path) -> None:
    server = site.server
    known = subprocess.run(
        [site.elsewhere["PYSPARK_PYTHON"], "-c", "import pyspark, pyarrow, courier"],
        env={**os.environ, **site.elsewhere},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "No module named 'courier'" in known.stderr, known.stderr
    packed = str(shipped(tmp_path / "courier.zip"))
    driver = os.pathsep.join([site.elsewhere["PYTHONPATH"], str(HERE), packed])
    with queue(server, "in") as incoming, queue(server, "out"):
        before = last_offset(server)
        done = subprocess.run(
            [
                str(SPARK_HOME / "bin" / "spark-submit"),
                *("--master", site.master),
                *("--py-files", packed),
                str(HERE / "tests" / "lake" / "cluster_job.py"),
                *(site.master, str(tmp_path), json.dumps(options(server))),
            ],
            env={**os.environ, **site.elsewhere, "PYTHONPATH": driver},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S_MAX,
        )
        assert done.returncode == 0, done.stdout[-5_000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert len(told["executors"]) == WORKERS
        assert told["offsets"] == [*range(1, before + 1)]
        # While a task waited in the midst of its rows, it was tried a second time; and what both
        # published is there once.
        assert told["tries"] == ["try-0-0", "try-0-1", "try-1-0", "try-2-0", "try-3-0"]
        second_ms = (tmp_path / "try-0-1").stat().st_mtime * 1000
        assert any(event["at_ms"] < second_ms for event in _of_first_task(server))
        assert sorted(bodies(server, "in"), key=int) == [str(n) for n in range(400)]
        assert Counter(bodies(server, "out")) == Counter(f"again {n}" for n in range(400))
        assert incoming.backlog() == 0


def _of_first_task(server: Server) -> list[dict[str, Any]]:
    return [
        event
        for event in events(server, kind="published", queue="in")
        if int(event["body"]) < ROWS_PER_TASK
    ]


def test_a_pipeline_runs_on_it_and_so_does_a_replay(
    site: Site, courier: Commands, tmp_path: Path
) -> None:
    root, server = tmp_path / "lake", site.server
    with server.client() as http:
        work = CloudflareClient(http, "work")
        work.publish_batch([f"body {n}" for n in range(50)])
        work.ack([each.lease for each in work.pull(20)])
        CloudflareClient(http, "again")
        CloudflareClient(http, "busy")
    # What is few the command brings itself; the rest is the executors'.
    with Client(place_of(server)) as broker:
        many = pa.record_batch({"body": pa.array([f"{n}" for n in range(FEW_ROWS)])})
        broker.publish("busy", many, once="many", first=0)
    settings = [f"--conf={name}={value}" for name, value in settings_of(tmp_path).items()]
    place = ("--lake", str(root), "--data", str(server.data), "--master", site.master, *settings)
    status, shown, said = courier("pipeline", "run", "--once", *place)
    assert (status, shown) == (0, ""), said
    lake = Lake(str(root))
    [upto] = {archive.last(table) for table in lake.tables}
    assert sorted(row["offset"] for row in rows(lake.events)) == [*range(1, upto + 1)]
    assert upto > FEW_ROWS
    ended = Counter(row["outcome"] for row in rows(lake.messages) if row["queue"] == "work")
    assert ended == {"acked": 20, "live": 30}

    chosen = ("--queue", "work", "--into", "again", "--where", "outcome = 'acked'")
    # The rows are few and published in order, so one executor does.
    one = "--conf=spark.cores.max=1"
    status, shown, said = courier("replay", *chosen, "--id", "there", *place, one)
    assert (status, shown) == (0, "20 messages published to 'again', replay 'there'\n"), said
    assert sorted(bodies(server, "again")) == sorted(f"body {n}" for n in range(20))
