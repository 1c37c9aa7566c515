"""The bars: what a release must reach, as ratios within one run."""

from typing import NamedTuple

from bench.aging import DAY, MANY, Aging
from bench.aging import FEW as FEW_COMMITS
from bench.anypoint import Anypoint
from bench.backlog import FEW, Backlog
from bench.bare import Bare
from bench.before import Before
from bench.comparison import Comparison
from bench.console import FEW_PAGES, PAGES, Console
from bench.courier import Courier
from bench.creating import Creating
from bench.discue import Discue
from bench.floor import Floor
from bench.growth import EVERY_S, Freshness, Growth
from bench.lake import ARROW, EVENTS, JSON, PARQUET, PUBLISH, RAW, READ, Lakes
from bench.polls import CROWD, Polls
from bench.pushes import COURIER, PLAIN, SENT_TO, WELL, Pushes
from bench.receivers import HANGING, OTHER, SAME, Receivers
from bench.redis import Redis
from bench.redis_py import RedisPy
from bench.table import MB
from bench.workload import WORKLOADS

DIALECTS = (Courier(), Anypoint(), Discue())
# The commit before messages were kept in blocks, and how much faster than it must be published.
BEFORE_ENGINE = "6a97a9f"
ENGINE_GAINS = {"publish 64x1": 2.3, "cycle 64x1": 2.0}


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


def dialect_bars(comparison: Comparison) -> list[Bar]:
    """Every dialect beside the fastest, which is held back by none of the others."""
    bars = []
    for workload in WORKLOADS:
        takers = [each.name for each in DIALECTS if each.takes(workload)]
        rates = {who: comparison.rate(workload.name, who) for who in takers}
        fastest = max([rate for rate in rates.values() if rate], default=None)
        bars += [
            Bar(
                f"{workload.name}, {who} beside the fastest dialect",
                ratio(rate, fastest),
                0.85,
                "x",
            )
            for who, rate in rates.items()
            if len(takers) > 1
        ]
    return bars


def console_bars(console: Console) -> list[Bar]:
    limits = dict(zip(console.pages_ms, (50.0, 30.0, 50.0), strict=True))
    return [
        *(
            Bar(f"console: {name}, CPU in the server", cost, limits[name], " ms", at_most=True)
            for name, cost in console.pages_ms.items()
        ),
        Bar(f"console: text in {console.many:,} bodies", console.search_s, 2.0, " s", at_most=True),
        Bar(
            f"console: {FEW_PAGES} open pages, share of a core",
            100 * console.open_share,
            1.0,
            " %",
            at_most=True,
        ),
        Bar(
            f"server CPU of publishing beside {PAGES} open pages and without",
            ratio(console.beside.cpu_s_per_1000, console.alone.cpu_s_per_1000),
            1.02,
            "x",
            at_most=True,
        ),
    ]


def creating_bars(creating: Creating) -> list[Bar]:
    return [
        Bar(f"creating queues through {who}", figure.rate, 1_000, "/s")
        for who, figure in creating.by_dialect.items()
    ]


def poll_bars(polls: Polls) -> list[Bar]:
    held = f"{polls.held:,} long polls"
    return [
        Bar(
            f"resident memory of {held}",
            (polls.resident_bytes - polls.idle_bytes) / MB,
            100,
            " MB",
            at_most=True,
        ),
        Bar(
            f"p99 of a publish beside {held} and without",
            ratio(polls.beside.p99_ms, polls.alone.p99_ms),
            1.5,
            "x",
            at_most=True,
        ),
        Bar(
            f"p99 of a first message to one of {held}",
            polls.first_p99_ms,
            50,
            " ms",
            at_most=True,
        ),
        *(
            Bar(
                f"{part} of a message to one of {CROWD} that wait, each its turn",
                ms,
                limit,
                " ms",
                at_most=True,
            )
            for part, ms, limit in (("p50", polls.crowd_p50_ms, 2), ("p99", polls.crowd_p99_ms, 10))
        ),
    ]


def push_bars(pushes: Pushes) -> list[Bar]:
    latency, speed = pushes.latency, pushes.speed
    return [
        *(
            Bar(
                f"p99 of a push to {WELL} listeners beside one that {dead} and alone",
                ratio(figure.p99_ms, latency["none"].p99_ms),
                1.2,
                "x",
                at_most=True,
            )
            for dead, figure in latency.items()
            if dead != "none"
        ),
        *(
            Bar(
                f"pushes to {listeners} at full speed beside a {PLAIN}",
                ratio(speed[listeners, COURIER].rate, speed[listeners, PLAIN].rate),
                1.0,
                "x",
            )
            for listeners in SENT_TO
        ),
        *(
            Bar(
                f"CPU time of a push to {listeners} at full speed beside a {PLAIN}",
                ratio(
                    speed[listeners, COURIER].cpu_s_per_1000, speed[listeners, PLAIN].cpu_s_per_1000
                ),
                1.0,
                "x",
                at_most=True,
            )
            for listeners in SENT_TO
        ),
    ]


def before_bars(found: Before) -> list[Bar]:
    """Messages per second, and per second of CPU, which a busy machine disturbs less."""
    gains = ENGINE_GAINS if found.commit.startswith(BEFORE_ENGINE) else {}
    return [
        bar
        for name, now in found.now.items()
        for before in [found.before[name]]
        for limit in [gains.get(name, 0.97)]
        for bar in (
            Bar(f"{name} beside {found.commit}", ratio(now.rate, before.rate), limit, "x"),
            Bar(
                f"{name} beside {found.commit}, per CPU time",
                ratio(before.cpu_s_per_1000, now.cpu_s_per_1000),
                0.97,
                "x",
            ),
        )
    ]


def receiver_bars(found: Receivers) -> list[Bar]:
    return [
        *(
            Bar(
                f"p99 of a push to listeners of {whose} beside {HANGING:,} that hang and without",
                ratio(found.beside[whose].p99_ms, found.alone[whose].p99_ms),
                limit,
                "x",
                at_most=True,
            )
            for whose, limit in ((OTHER, 1.5), (SAME, 3.0))
        ),
        Bar(
            "a backlog of which a listener refuses 30 % once beside one of which it takes all",
            ratio(found.some_refused_s, found.all_taken_s),
            1.5,
            "x",
            at_most=True,
        ),
    ]


def lake_bars(lakes: Lakes) -> list[Bar]:
    rates = lakes.rates
    return [
        Bar(
            f"{what} beside {whom}",
            ratio(rates[what, ARROW], rates[what, whom]),
            limit,
            "x",
        )
        for what, whom, limit in (
            (READ, PARQUET, 0.45),
            (READ, JSON, 2.0),
            (EVENTS, PARQUET, 0.75),
            (PUBLISH, RAW, 0.7),
        )
    ]


def growth_bars(growth: Growth) -> list[Bar]:
    few, many = growth.seconds
    return [
        Bar(
            f"pipeline run on {growth.new:,} events with {many:,} old ones beside {few:,}",
            growth.ratio,
            1.5,
            "x",
            at_most=True,
        )
    ]


def aging_bars(aging: Aging) -> list[Bar]:
    return [
        Bar(
            f"a batch of {aging.new:,} events after {past.name} beside {FEW_COMMITS.name}, CPU",
            aging.ratio(past),
            limit,
            "x",
            at_most=True,
        )
        for past, limit in ((MANY, 1.2), (DAY, 1.3))
    ]


def freshness_bars(found: Freshness) -> list[Bar]:
    what = f"p95 from publish to visible in events with --every {EVERY_S}s"
    return [Bar(what, found.p95_s, 15, " s", at_most=True)]


def peer_bars(comparison: Comparison) -> list[Bar]:
    ours, rate = Courier.name, comparison.rate
    beside = (
        ("publish 64x1", Bare.name, 0.8),
        ("publish 64x1", Floor.name, 0.6),
        ("cycle 64x1", Redis.name, 0.42),
        ("cycle 64x1", RedisPy.name, 2.4),
        ("cycle 16x100", Redis.name, 1.0),
        ("cycle 16x100", RedisPy.name, 4.0),
    )
    crowds = [comparison.figures.get((name, ours)) for name in ("publish 64x1", "cycle 64x1")]
    return [
        *(
            Bar(f"{name} beside {peer}", ratio(rate(name, ours), rate(name, peer)), limit, "x")
            for name, peer, limit in beside
        ),
        Bar(
            f"server CPU of cycle 16x100 beside {Redis.name}",
            ratio(comparison.cpu("cycle 16x100", ours), comparison.cpu("cycle 16x100", Redis.name)),
            1.3,
            "x",
            at_most=True,
        ),
        *(
            Bar(
                f"p99 of {name} beside its p50",
                ratio(found.p99_ms, found.p50_ms) if found else None,
                2.5,
                "x",
                at_most=True,
            )
            for name, found in zip(("publish 64x1", "cycle 64x1"), crowds, strict=True)
        ),
    ]


def backlog_bars(queues: Backlog) -> list[Bar]:
    return [
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
