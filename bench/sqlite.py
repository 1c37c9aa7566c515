"""The storage ceiling: plain inserts into one table, one transaction for each group, no HTTP."""

import time
from array import array
from pathlib import Path

import apsw

from bench.figure import Figure
from bench.workload import BODY

_INSERT = "INSERT INTO message (queue, at_ms, body) VALUES (?, ?, ?)"


def measure(directory: Path, *, group: int, seconds: float) -> Figure:
    """Insert groups of `group` messages for a while; latency is that of one transaction."""
    connection = apsw.Connection(str(directory / "plain.db"))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE message (seq INTEGER PRIMARY KEY, queue INTEGER, at_ms INTEGER, body BLOB)"
    )
    rows = [(1, 1_700_000_000_000, BODY)] * group
    latencies_s = array("d")
    started_s, cpu_s = time.perf_counter(), time.process_time()
    ended_s = now_s = started_s
    while ended_s - started_s < seconds:
        with connection:
            connection.executemany(_INSERT, rows)
        ended_s = time.perf_counter()
        latencies_s.append(ended_s - now_s)
        now_s = ended_s
    cpu_s = time.process_time() - cpu_s
    connection.close()
    return Figure.of(
        messages=len(latencies_s) * group,
        latencies_s=latencies_s,
        elapsed_s=ended_s - started_s,
        cpu_s=cpu_s,
        client_cpu_s=0.0,
    )
