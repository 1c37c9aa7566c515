"""How long and how much."""

from typing import NamedTuple


class Plan(NamedTuple):
    warmup_s: float
    seconds: float
    rounds: int
    many: int  # messages in the long queue
    crowd: int  # delayed and leased messages, each, in front of the crowded one
    pulls: int
    space: int  # messages in each half of the space measurement


FULL = Plan(
    warmup_s=1.0,
    seconds=6.0,
    rounds=3,
    many=1_000_000,
    crowd=100_000,
    pulls=300,
    space=300_000,
)
QUICK = Plan(
    warmup_s=0.3,
    seconds=1.0,
    rounds=1,
    many=50_000,
    crowd=5_000,
    pulls=50,
    space=20_000,
)
