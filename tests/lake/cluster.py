"""Sparks elsewhere: a standalone cluster, and one that is asked through Spark Connect.

The cluster has a master and two workers. Executors are children of the workers, so nothing is
shared with the driver but the network and what is installed for their Python.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from courier.lake import java
from tests.server import free_port

WORKERS = 2
START_S_MAX = 120
STOP_S_MAX = 20
POLL_S = 0.1
SPARK_HOME = Path(pyspark.__file__).parent
# With what clients of Spark Connect need, which is not installed where these tests run.
CONNECT_PYTHON = Path(__file__).parents[2] / ".tools" / "connect" / "bin" / "python"


@contextmanager
def cluster(directory: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of its master. `env` is for the executors' Python."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, main: str, *args: str, host: str = "127.0.0.1") -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(
                    [*_java(), f"org.apache.spark.deploy.{main}", "--host", host, *args],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **_environment(directory, name), **(env or {})},
                    # With a worker go its executors, which are in its group.
                    start_new_session=True,
                )
            )
        return log

    try:
        ui = ("--webui-port", "0")
        _wait_for(start("master", "master.Master", "--port", str(port), *ui), "ALIVE", 1)
        room = ("--cores", "1", "--memory", "700m")
        # Each on a host of its own: a task is not tried twice at a time on one.
        logs = [
            start(f"worker-{n}", "worker.Worker", *room, *ui, url, host=f"127.0.0.{n + 1}")
            for n in range(WORKERS)
        ]
        for log in logs:
            _wait_for(log, "Successfully registered with master", 1)
        yield url
    finally:
        for process in reversed(started):
            _end(process)


@contextmanager
def connect(spark: SparkSession) -> Iterator[str]:
    """The address at which a Spark that runs already does what is asked through Spark Connect."""
    assert CONNECT_PYTHON.exists(), f"there is no {CONNECT_PYTHON}; `make test` makes it"
    context = spark.sparkContext
    jvm: Any = context._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    # Chosen when it is needed: a port that is kept for later may be taken by then.
    port = str(free_port())
    context._jsc.sc().conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context._jsc.sc().conf().set("spark.connect.grpc.binding.port", port)
    service.start(context._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        none = jvm.scala.Option.apply(None)
        service.stop(none, none)


def settings(directory: Path) -> dict[str, str]:
    """Of a driver that is to run on the cluster."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        # Nothing begins before all of them are there: see the two settings below.
        "spark.cores.max": str(WORKERS),
        "spark.local.dir": str(directory / "tmp"),
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }


def _java() -> list[str]:
    home = java.find()
    assert home is not None, java.MISSING
    # As Spark's own scripts order it: another class path would do without the class archive.
    [first] = SPARK_HOME.glob("jars/slf4j-api-*.jar")
    return [f"{home}/bin/java", "-Xmx256m", "-cp", f"{first}:{SPARK_HOME}/jars/*"]


def _environment(directory: Path, name: str) -> dict[str, str]:
    return {
        "SPARK_HOME": str(SPARK_HOME),
        # What Spark's own start scripts find out by looking around.
        "SPARK_SCALA_VERSION": next(SPARK_HOME.glob("jars/spark-core_*")).name.split("_")[1][:4],
        "SPARK_WORKER_DIR": str(directory / name),
        "SPARK_LOCAL_DIRS": str(directory / f"{name}-tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def _wait_for(log: Path, text: str, count: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    while len(re.findall(text, log.read_text(errors="replace"))) < count:
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """A worker that is asked ends its executors first; one that does not answer ends with them."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S_MAX)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
