"""The source on a standalone cluster whose Python has no Courier but what is shipped to it."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.lake.brokers import bodies, last_offset, options, queue
from tests.lake.cluster import SPARK_HOME, WORKERS, cluster
from tests.server import Server

RUN_S_MAX = 400
HERE = Path(__file__).resolve().parents[2]


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


@pytest.mark.timeout(600)
def test_reader_writer_and_consumer_run_on_executors_elsewhere(tmp_path: Path) -> None:
    interpreter = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}")
    packages = str(bare(tmp_path / "packages"))
    elsewhere = {"PYTHONPATH": packages, "PYSPARK_PYTHON": interpreter}
    known = subprocess.run(
        [interpreter, "-c", "import pyspark, pyarrow, courier"],
        env={**os.environ, **elsewhere},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "No module named 'courier'" in known.stderr, known.stderr
    packed = str(shipped(tmp_path / "courier.zip"))
    driver = os.pathsep.join([packages, str(HERE), packed])
    with (
        Server(tmp_path).start() as server,
        queue(server, "in") as incoming,
        queue(server, "out"),
        cluster(tmp_path / "cluster", elsewhere) as url,
    ):
        before = last_offset(server)
        done = subprocess.run(
            [
                str(SPARK_HOME / "bin" / "spark-submit"),
                *("--master", url),
                *("--py-files", packed),
                str(HERE / "tests" / "lake" / "cluster_job.py"),
                *(url, str(tmp_path), json.dumps(options(server))),
            ],
            env={**os.environ, **elsewhere, "PYTHONPATH": driver},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S_MAX,
        )
        assert done.returncode == 0, done.stdout[-5_000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert len(told["executors"]) == WORKERS
        assert told["offsets"] == [*range(1, before + 1)]
        # While a task waited, it was tried a second time; and what both published is there once.
        assert told["tries"] == ["try-0-0", "try-0-1", "try-1-0", "try-2-0", "try-3-0"]
        assert sorted(bodies(server, "in"), key=int) == [str(n) for n in range(400)]
        assert Counter(bodies(server, "out")) == Counter(f"again {n}" for n in range(400))
        assert incoming.backlog() == 0
