"""How long and how much."""

from typing import NamedTuple


class Plan(NamedTuple):
    warmup_s: float
    seconds: float
    rounds: int
    before_rounds: int  # of this tree and of an earlier commit
    many: int  # messages in the long queue
    crowd: int  # delayed and leased messages, each, in front of the crowded one
    pulls: int
    space: int  # messages in each half of the space measurement
    polls: int
    hold_s: float  # how long they are held before the memory is read
    poll_rounds: int
    poll_seconds: float
    firsts: int  # messages to those who wait
    push_rounds: int
    push_seconds: float
    receiver_rounds: int  # beside listeners that hang, and without
    receiver_seconds: float
    pushes: int  # to each listener, when only speed counts
    lake_rows: int  # events in the journal that Spark reads
    lake_published: int  # messages that Spark publishes
    lake_new: int  # events of the run whose cost is measured
    lake_few: int  # and of one where what is not of its events weighs most
    lake_old: tuple[int, int]  # and how many there were before: few, many
    fresh_seconds: float
    console_queues: int
    console_rounds: int
    console_open_s: float


FULL = Plan(
    warmup_s=1.0,
    seconds=6.0,
    rounds=3,
    before_rounds=6,
    many=1_000_000,
    crowd=100_000,
    pulls=300,
    space=300_000,
    polls=2_000,
    hold_s=25.0,
    poll_rounds=8,
    poll_seconds=5.0,
    firsts=2_000,
    push_rounds=10,
    push_seconds=3.0,
    receiver_rounds=5,
    receiver_seconds=25.0,
    pushes=5_000,
    lake_rows=2_000_000,
    lake_published=200_000,
    lake_new=100_000,
    lake_few=90,
    lake_old=(100_000, 10_000_000),
    fresh_seconds=90.0,
    # With the two of the bench itself, as many as a tenant may have.
    console_queues=9_998,
    console_rounds=10,
    console_open_s=20.0,
)
QUICK = Plan(
    warmup_s=0.3,
    seconds=1.0,
    rounds=1,
    before_rounds=2,
    many=50_000,
    crowd=5_000,
    pulls=50,
    space=20_000,
    polls=2_000,
    hold_s=1.0,
    poll_rounds=3,
    poll_seconds=2.0,
    firsts=200,
    push_rounds=2,
    push_seconds=3.0,
    receiver_rounds=1,
    receiver_seconds=12.0,
    pushes=1_000,
    lake_rows=100_000,
    lake_published=20_000,
    lake_new=20_000,
    lake_few=90,
    lake_old=(20_000, 200_000),
    fresh_seconds=30.0,
    console_queues=300,
    console_rounds=2,
    console_open_s=3.0,
)
