"""Spark sessions as Courier wants them: quiet, in UTC, with Arrow."""

import atexit
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from courier import files
from courier.lake import java, versions
from courier.lake.tables import LakeError

LOCAL = "local[*]"
CONNECT_PORT = 15_002
REACHED_S_MAX = 10.0
# A Spark elsewhere does not tell how many cores it has.
CORES_ELSEWHERE = 4
# How long Java may take to end when this process does.
JAVA_END_S_MAX = 10.0
# What forks Python workers on this machine.
DAEMON = "spark.python.daemon.module", "courier.lake.daemon"
# What Java says whenever it starts.
_NOISE = ("Picked up ", "WARNING:", "[")
# What workers on this machine start with: see the module in there.
START = Path(__file__).parent / "start"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without this Spark refuses a source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Parquet's older timestamps have no statistics, and files could not be skipped by time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # What is larger is written by tasks, not collected: see `Table.write`.
    "spark.driver.maxResultSize": "256m",
    # Hadoop sets modes itself, whatever the umask of its process.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # Nobody looks for the mark, and a batch is told by its commit.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The driver lists some hundred files faster than it starts a job that does.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Rows of a few days need not be sorted by day before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Where in our code a column was made helps nobody, and is more than half of what is said to
    # Java when a query is made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A batch that hangs must not keep a pipeline from ending.
    "spark.sql.streaming.stopTimeout": "30s",
}
# What Spark has to say, in files that do not grow for ever.
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def session(
    name: str,
    *,
    master: str = LOCAL,
    settings: dict[str, str] | None = None,
    logs: Path | None = None,
) -> SparkSession:
    """A new session, or the one that this process has; `logs` is where it may be noisy."""
    if wrong := versions.problem(pyspark.__version__):
        raise LakeError(wrong)
    home = java.find()
    if home is None:
        raise LakeError(java.MISSING)
    os.environ["JAVA_HOME"] = str(home)
    # Executors on this machine are started with the same Python as this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = {**SETTINGS, **(settings or {})}
    if master.startswith("local"):
        chosen.setdefault(*DAEMON)
        chosen.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
        chosen.setdefault("spark.driver.host", "127.0.0.1")
    if logs is not None:
        files.make_directory(logs)
        properties = logs / "log4j2.properties"
        files.write(properties, _LOG4J.format(folder=logs.resolve()).encode())
        given = chosen.get("spark.driver.extraJavaOptions", "")
        options = f"-Dlog4j2.configurationFile={properties.resolve()} {given}"
        chosen["spark.driver.extraJavaOptions"] = options.strip()
    conf = SparkConf().setAppName(name).setMaster(master).setAll(list(chosen.items()))
    with ExitStack() as around:
        if master.startswith("local"):
            around.enter_context(_compiled_workers())
        if logs is not None:
            # What it tells is in the errors that it raises, too.
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
            logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
            around.enter_context(_output_into(logs / "java.log"))
        try:
            if SparkContext._gateway is None:
                SparkContext(conf=conf, gateway=_start_java(conf))
            return SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            raise LakeError(f"Spark does not start: {_reason(error, logs)}") from error


def remote(name: str, url: str, *, settings: dict[str, str] | None = None) -> SparkSession:
    """A session on a Spark that runs already, through Spark Connect; `url` is sc://HOST:PORT."""
    place = urlsplit(url)
    try:
        if place.scheme != "sc" or not place.hostname:
            raise LakeError(f"--remote is an address such as sc://host:{CONNECT_PORT}, not '{url}'")
        # Asked by Spark's own client, one that is not there is asked again for ten minutes.
        where = place.hostname, place.port or CONNECT_PORT
        socket.create_connection(where, REACHED_S_MAX).close()
    except (OSError, ValueError) as error:
        raise LakeError(f"Spark at {url} cannot be reached: {error}") from error
    builder = SparkSession.builder.appName(name).remote(url)
    # What else there is to set, it was started with.
    chosen = {key: value for key, value in SETTINGS.items() if key.startswith("spark.sql.")}
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        raise LakeError(
            "--remote needs the client of Spark Connect: install `courier-mq[connect]`"
        ) from error
    except Exception as error:
        raise LakeError(f"Spark at {url} does not serve: {_reason(error, None)}") from error


def is_remote(spark: SparkSession) -> bool:
    """Whether its queries are made here and run elsewhere; functions given to them, too."""
    return type(spark) is not SparkSession


def cores(spark: SparkSession) -> int:
    """How many tasks run at a time, for deciding how many files to write."""
    return CORES_ELSEWHERE if is_remote(spark) else spark.sparkContext.defaultParallelism


def _reason(error: Exception, logs: Path | None) -> str:
    """In one line: what Java says comes in the midst of its trace, or only in its log."""
    told = str(error)
    if logs is not None and "JAVA_GATEWAY_EXITED" in told:
        told = (logs / "java.log").read_text("utf-8", "replace") + told
    lines = [line.strip() for line in told.splitlines() if not line.startswith(_NOISE)]
    lines = [line for line in lines if line] or [repr(error)]
    line = next((line for line in lines if "Exception: " in line), lines[0])
    return line.rpartition("Exception: ")[2][:300].rstrip(".")


class _Apart(dict[str, Any]):
    """How Java is started: in a session of its own, and ignoring SIGTERM.

    Supervisors send SIGTERM to the group of a process, or to every process of a unit. Java would
    end in the midst of a batch, while we are finishing it. It ends with us: its stdin is a pipe.
    Spark sets the function that is called in the child; it is called besides ours.
    """

    def __init__(self) -> None:
        super().__init__(start_new_session=True, preexec_fn=_ignore_end)

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "preexec_fn":
            value = _both(_ignore_end, value)
        super().__setitem__(key, value)


def _ignore_end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _start_java(conf: SparkConf) -> Any:
    gateway = launch_gateway(conf, _Apart())  # type: ignore[no-untyped-call]
    if gateway.proc is not None:  # else Java started us, as spark-submit does
        atexit.register(_end_java, gateway.proc)
    return gateway


def _end_java(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of it stays behind when this process ends."""
    # What is still to be released in Java would be reported as an error of the connection.
    logging.disable(logging.CRITICAL)
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(JAVA_END_S_MAX)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _compiled_workers() -> Iterator[None]:
    """A JVM that is started meanwhile has workers that begin in a third of the time."""
    same = os.environ["PYSPARK_PYTHON"] == sys.executable and Path(pyspark.__file__).exists()
    before = os.environ.get("PYTHONPATH")
    if same and START.is_dir():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(START), before]))
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        else:
            os.environ.pop("PYTHONPATH", None)


@contextmanager
def _output_into(file: Path) -> Iterator[None]:
    """The JVM keeps the output it was started with; ours comes back."""
    kept = [os.dup(1), os.dup(2)]
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.FILE_MODE)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for each in (log, *kept):
            os.close(each)
