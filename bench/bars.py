"""The bars: what a release must reach, as ratios within one run."""

from typing import NamedTuple

from bench.backlog import FEW, Backlog
from bench.comparison import Comparison
from bench.courier import Courier
from bench.floor import Floor
from bench.redis import Redis
from bench.redis_py import RedisPy
from bench.table import MB


class Bar(NamedTuple):
    """`value` must be at least (or at most) `limit`; None: it could not be measured."""

    what: str
    value: float | None
    limit: float
    unit: str
    at_most: bool = False

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        verdict = "pass" if self.met else "MISSED"
        sign = "<=" if self.at_most else ">="
        value = "not measured" if self.value is None else f"{self.value:.2f}{self.unit}"
        return f"{verdict:6}  {self.what}: {value} (bar: {sign} {self.limit:g}{self.unit})"


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def all_bars(comparison: Comparison, queues: Backlog) -> list[Bar]:
    ours, rate = Courier.name, comparison.rate
    return [
        Bar(
            "single publish beside the same HTTP stack without a store",
            ratio(rate("publish 64x1", ours), rate("publish 64x1", Floor.name)),
            0.6,
            "x",
        ),
        *(
            Bar(
                f"{workload} beside {peer}",
                ratio(rate(workload, ours), rate(workload, peer)),
                limit,
                "x",
            )
            for peer in (RedisPy.name, Redis.name)
            for workload, limit in (("cycle 64x1", 1.0), ("cycle 16x100", 1.5))
        ),
        Bar(
            f"pull of 100 with {queues.many:,} waiting beside {FEW:,} waiting",
            ratio(queues.long.p50_ms, queues.few.p50_ms),
            1.3,
            "x",
            at_most=True,
        ),
        Bar(
            f"resident memory with {queues.many:,} waiting",
            queues.resident_bytes / MB,
            200,
            " MB",
            at_most=True,
        ),
        Bar(
            f"restart with {queues.many:,} waiting",
            queues.stop_s + queues.start_s,
            2,
            " s",
            at_most=True,
        ),
    ]
