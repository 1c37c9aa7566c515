"""What a long queue costs: time of a pull, memory, time to restart."""

import socket
import time
from array import array
from pathlib import Path
from typing import NamedTuple

from bench import http
from bench.client import Refused, move
from bench.courier import Courier, CourierServer, Queue, check_acked, leases
from bench.figure import percentile
from bench.table import MB, Row

FEW = 1_000
BATCH = 100
_FILLERS = 16
_FOREVER_MS = 12 * 3_600_000
_FOREVER_S = 86_400


class PullTime(NamedTuple):
    p50_ms: float
    p99_ms: float

    def row(self, workload: str, *, note: str = "") -> Row:
        return Row(workload, Courier.name, p50_ms=self.p50_ms, p99_ms=self.p99_ms, note=note)


class Backlog(NamedTuple):
    many: int
    crowd: int
    few: PullTime
    long: PullTime  # in turns with `few`
    again: PullTime  # the few once more, in turns with `crowded`
    crowded: PullTime
    resident_bytes: int
    stop_s: float
    start_s: float

    def rows(self) -> list[Row]:
        few, long = f"pull 100 of {FEW:,}", f"pull 100 of {self.many:,}"
        crowd = f"behind {self.crowd:,} delayed and {self.crowd:,} leased"
        memory = f"{self.resident_bytes / MB:.1f} MB resident"
        restart = (
            f"{self.stop_s + self.start_s:.2f} s"
            f" ({self.stop_s:.2f} to stop, {self.start_s:.2f} until ready)"
        )
        return [
            self.few.row(few),
            self.long.row(long, note=f"in turns with {FEW:,}"),
            self.again.row(few),
            self.crowded.row(long, note=f"{crowd}, in turns with {FEW:,}"),
            Row(f"memory, {self.many:,} waiting", Courier.name, note=memory),
            Row(f"restart, {self.many:,} waiting", Courier.name, note=restart),
        ]


def measure(directory: Path, *, many: int, crowd: int, pulls: int) -> Backlog:
    """Compare pulls from a short, a long and a crowded queue; in between, weigh and restart.

    In the crowded queue `crowd` delayed and `crowd` leased messages stand before the waiting.
    """
    server = CourierServer(directory)
    try:
        short, long = server.queue, server.new_queue("long")
        _publish(server, short, FEW)
        _publish(server, long, many)
        few_times, long_times = _pull_times(server, [short, long], pulls=pulls)
        resident_bytes = server.process.resident_bytes()

        stopping_s = time.perf_counter()
        server.process.stop()
        stopped_s = time.perf_counter()
        server.start()
        ready_s = time.perf_counter()

        crowded = server.new_queue("crowded")
        _publish(server, crowded, crowd, delay_s=_FOREVER_S)
        _publish(server, crowded, crowd)
        move(server.process, [crowded.leasing(BATCH, lease_ms=_FOREVER_MS)], messages=crowd)
        _publish(server, crowded, many)
        again_times, crowded_times = _pull_times(server, [short, crowded], pulls=pulls)
    finally:
        server.process.stop()
    return Backlog(
        many=many,
        crowd=crowd,
        few=few_times,
        long=long_times,
        again=again_times,
        crowded=crowded_times,
        resident_bytes=resident_bytes,
        stop_s=stopped_s - stopping_s,
        start_s=ready_s - stopped_s,
    )


def _publish(server: CourierServer, queue: Queue, messages: int, *, delay_s: int = 0) -> None:
    # Each client ends with the batch it is at, so that many batches may come on top.
    clients = min(_FILLERS, messages // BATCH)
    scripts = [queue.publishing(BATCH, delay_s=delay_s) for _ in range(clients)]
    move(server.process, scripts, messages=messages - (clients - 1) * BATCH)


def _pull_times(server: CourierServer, queues: list[Queue], *, pulls: int) -> list[PullTime]:
    """Pull from one queue after the other, so that noise meets all of them alike.

    What was pulled is acked and published anew, outside the timed part: the queues keep their
    length.
    """
    times_s = [array("d") for _ in queues]
    with Line(server.process.port) as line:
        for _ in range(pulls):
            for queue, taken_s in zip(queues, times_s, strict=True):
                pull = queue.pull(BATCH)
                started_s = time.perf_counter()
                answer = line.ask(pull)
                taken_s.append(time.perf_counter() - started_s)
                pulled = leases(answer)
                if len(pulled) != BATCH:
                    raise Refused(f"a pull of {BATCH} gave {len(pulled)}")
                check_acked(line.ask(queue.ack(pulled)), BATCH)
                http.check(line.ask(queue.push(BATCH)))
    return [PullTime(percentile(s, 50) * 1000, percentile(s, 99) * 1000) for s in times_s]


class Line:
    """One blocking connection: nothing but the server's time between question and answer."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def ask(self, request: bytes) -> bytes:
        self._sock.sendall(request)
        answer = b""
        while not http.whole(answer):
            part = self._sock.recv(1 << 20)
            if not part:
                raise Refused("the server closed the connection")
            answer += part
        return answer
