"""What the store on PostgreSQL must reach beside statements of pgmq's shape."""

from bench.bars import Bar, ratio
from bench.postgres import COURIER, PGMQ, Cycles

# Workload -> rate at least, CPU at most, as parts of the other's.
_LIMITS = {"postgres, cycle 64x1": (4.0, 1 / 10), "postgres, cycle 16x100": (3.0, 1 / 5)}
WAL_BYTES_MAX = 450


def postgres_bars(cycles: Cycles) -> list[Bar]:
    bars = []
    for name, (rate, cpu) in _LIMITS.items():
        ours, theirs = cycles.costs[name][COURIER], cycles.costs[name][PGMQ]
        beside = f"{name} beside {PGMQ}"
        bars += [
            Bar(beside, ratio(ours.figure.rate, theirs.figure.rate), rate, "x"),
            Bar(f"{beside}, CPU", ratio(ours.cpu_ms, theirs.cpu_ms), cpu, "x", at_most=True),
        ]
    wal = cycles.costs["postgres, cycle 16x100"][COURIER].wal_bytes
    bars.append(Bar("WAL of a cycled message", wal, WAL_BYTES_MAX, " bytes", at_most=True))
    return bars
