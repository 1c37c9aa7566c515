"""Logs and counters. Counting is a few additions; the Prometheus text is made when asked for."""

import logging
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from operator import add
from typing import Any, Literal

import msgspec

from courier import ids
from courier.clock import SteadyClock
from courier.masking import scrubbed
from courier.steering import Steering

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)

COUNTED_AT_ONCE = 256

_KNOWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

log = logging.getLogger("courier.requests")


def note_failure(path: str, site: str) -> str:
    """Log the exception that is being handled; the id that its line has."""
    id = ids.new_id()
    log.exception("request_failed", extra={"path": path, "site": site, "request": id})
    return id


class Metric:
    """A metric in Prometheus' text, whose samples are rendered one by one, as they are found."""

    def __init__(
        self,
        name: str,
        help: str,
        value: float | None = None,
        *,
        kind: Literal["gauge", "counter", "histogram"] = "gauge",
    ) -> None:
        self._name = f"{name}_total" if kind == "counter" else name
        self._lines = [f"# HELP {self._name} {help}\n# TYPE {self._name} {kind}\n"]
        if value is not None:
            self.add("", value)

    def add(self, labels: str, value: float, *, part: str = "") -> None:
        """`labels` as `label_text` writes them; `part` of a histogram."""
        shown = f"{{{labels}}}" if labels else ""
        self._lines.append(f"{self._name}{part}{shown} {float(value)}\n")

    def text(self) -> bytes:
        return "".join(self._lines).encode()


def label_text(**labels: str) -> str:
    escaped = (
        (name, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for name, value in sorted(labels.items())
    )
    return ",".join(f'{name}="{value}"' for name, value in escaped)


class Meter:
    """Counts the answers of one operation: how many of each status, and how long they took."""

    __slots__ = ("_logs", "_recent", "latencies", "operation", "seconds", "site", "statuses")

    def __init__(self, site: str, operation: str, *, logs: bool) -> None:
        self.site = site
        self.operation = operation
        self.statuses: dict[int, int] = {}
        # As many as are over each bound and not over the next.
        self.latencies = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.seconds = 0.0
        self._recent: list[tuple[int, float]] = []  # not counted yet
        self._logs = logs

    def answered(self, status: int, seconds: float, path: str) -> None:
        recent = self._recent
        recent.append((status, seconds))
        if len(recent) >= COUNTED_AT_ONCE:
            self.count()
        if self._logs:
            log.info(
                "request",
                extra={
                    "site": self.site,
                    "operation": self.operation,
                    "status": status,
                    "path": path,
                    "ms": round(seconds * 1000, 3),
                },
            )

    def count(self) -> None:
        """Bring the counts up to date. Together, answers are counted faster than one by one."""
        recent, self._recent = self._recent, []
        for status, count in Counter([status for status, _ in recent]).items():
            self.statuses[status] = self.statuses.get(status, 0) + count
        taken = sorted([seconds for _, seconds in recent])
        self.seconds += sum(taken)
        ends = [0, *(bisect_right(taken, bound) for bound in LATENCY_BOUNDS_S), len(taken)]
        counts = [end - start for start, end in pairwise(ends)]
        self.latencies = [*map(add, self.latencies, counts)]


class Telemetry:
    """Counts requests per site, operation and status, with their latencies, and worker batches."""

    def __init__(self, *, log_requests: bool = False) -> None:
        self._meters: dict[tuple[str, str], Meter] = {}
        self._log_requests = log_requests
        self._batches = dict.fromkeys(("done", "refused", "unanswered"), 0)
        self._batches_in_flight = 0
        self.workers_missing = 0
        self._signins: dict[str, int] = {}
        # Others that have something to show.
        self.collectors: list[Callable[[], Iterable[Metric]]] = []

    def meter(self, site: str, operation: str) -> "Meter":
        """What counts the answers of one operation."""
        found = self._meters.get((site, operation))
        if found is None:
            found = self._meters[site, operation] = Meter(site, operation, logs=self._log_requests)
        return found

    def signin_failed(self, reason: str) -> None:
        self._signins[reason] = self._signins.get(reason, 0) + 1

    def batch_began(self) -> None:
        self._batches_in_flight += 1

    def batch_ended(self, outcome: str) -> None:
        self._batches_in_flight -= 1
        self._batches[outcome] += 1

    def metrics(self) -> Iterator[Metric]:
        requests = Metric("courier_requests", "Requests answered.", kind="counter")
        latency = Metric("courier_request_seconds", "Time to answer.", kind="histogram")
        bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
        for meter in self._meters.values():
            meter.count()
            about = {"site": meter.site, "operation": meter.operation}
            for status, count in meter.statuses.items():
                requests.add(label_text(**about, status=str(status)), count)
            if meter.statuses:
                sums = list(accumulate(meter.latencies))
                for bound, count in zip(bounds, sums, strict=True):
                    latency.add(label_text(**about, le=bound), count, part="_bucket")
                latency.add(label_text(**about), sums[-1], part="_count")
                latency.add(label_text(**about), meter.seconds, part="_sum")
        failures = Metric(
            "courier_signin_failures", "Requests that were not let in.", kind="counter"
        )
        for reason, count in self._signins.items():
            failures.add(label_text(reason=reason), count)
        batches = Metric("courier_worker_batches", "Batches sent to workers.", kind="counter")
        for outcome, count in self._batches.items():
            batches.add(label_text(outcome=outcome), count)
        yield from (requests, latency, failures, batches)
        yield Metric(
            "courier_worker_batches_in_flight",
            "Batches that workers have not answered yet.",
            self._batches_in_flight,
        )
        yield Metric(
            "courier_workers_missing",
            "Worker consumers with messages waiting and no URL to send them to.",
            self.workers_missing,
        )
        for collect in self.collectors:
            yield from collect()


def clock_metrics(clock: SteadyClock) -> list[Metric]:
    return [
        Metric(
            "courier_clock_offset_seconds",
            "By how much the wall clock is ahead of Courier's time.",
            (clock.wall_ms() - clock.now_ms()) / 1000,
        ),
        Metric(
            "courier_clock_steps",
            "Steps of the wall clock of more than a minute.",
            clock.steps,
            kind="counter",
        ),
    ]


def steering_metrics(steering: Steering) -> list[Metric]:
    told = "By how much this machine's clock is ahead of the database's."
    return [Metric("courier_database_clock_offset_seconds", told, steering.off_ms() / 1000)]


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return scrubbed(msgspec.json.encode(line, enc_hook=str).decode())


class _TextFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        at = self.formatTime(record, "%H:%M:%S")
        text = f"{at} {record.levelname.lower():7} {record.name} {record.getMessage()}{extra}"
        text += "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return scrubbed(text)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _KNOWN}


def set_up_logs(*, level: str, format: str) -> None:
    as_text = format == "text" or (format == "auto" and sys.stderr.isatty())
    formatter = _TextFormat() if as_text else _JsonLines()
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
