"""What one measurement yields, and how repeated ones become one."""

from array import array
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Self


class Figure(NamedTuple):
    """Rates count messages; latency is that of one whole pass of a client's script."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_s_per_1000: float
    client_busy: float  # share of one core; near 1 the client is what limits the rate

    @classmethod
    def of(
        cls,
        *,
        messages: int,
        latencies_s: "array[float]",
        elapsed_s: float,
        cpu_s: float,
        client_cpu_s: float,
    ) -> Self:
        if not messages:
            raise RuntimeError("nothing was moved in the measured time")
        return cls(
            rate=messages / elapsed_s,
            p50_ms=percentile(latencies_s, 50) * 1000,
            p99_ms=percentile(latencies_s, 99) * 1000,
            cpu_s_per_1000=cpu_s / messages * 1000,
            client_busy=client_cpu_s / elapsed_s,
        )


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def middle(figures: Sequence[Figure]) -> Figure:
    """The median of each value over the rounds: one disturbed round does not count."""
    return Figure(*(median(values) for values in zip(*figures, strict=True)))
