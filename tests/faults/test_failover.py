"""The primary of the servers' database is killed again and again, and its standby takes over."""

import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.cluster import FailoverCluster
from tests.faults.test_kill import PullTrial
from tests.faults.trial import CALLERS, KILLS, SEED, TIMEOUT_SECONDS
from tests.report import TOLD

IN_DOUBT = r'"commit_in_doubt".*?"calls":(\d+)'
# Answers that a promotion leaves in doubt, at least, over many of them; in a short run some.
DOUBTS_EACH, MANY = 2.5, 30
# So that there are several calls in a commit.
CALLERS_TIMES = 4


class FailoverTrial(PullTrial):
    # Each takes some seconds: a standby is made of a whole copy.
    kills = KILLS if "KILLS" in os.environ else 3


@pytest.mark.slow
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_nothing_answered_is_undone_when_a_standby_takes_over(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with (
        FailoverCluster(tmp_path, seed=SEED).start() as cluster,
        closing(FailoverTrial(cluster)) as trial,
    ):
        many = range(CALLERS_TIMES * CALLERS)
        trial.run([trial.caller(f"caller{n}", SEED * 1_000 + n) for n in many])
        for queue in trial.ids:
            trial.drain(queue)
        trial.ledger.read(trial.connection)
        log = cluster.log()
        assert "Traceback" not in log
    fates = Counter(life.closed for life in trial.ledger.lives.values())
    assert set(fates) == {"acked", "buried"}, fates
    history = trial.history
    doubts = [int(calls) for calls in re.findall(IN_DOUBT, log)]
    record_property(
        TOLD,
        f"{cluster.crashes} failovers, {history.operations} operations, {history.in_doubt} in "
        f"doubt for callers, {len(doubts)} commits with {sum(doubts)} calls in doubt, "
        f"{fates['acked']} messages acked, {fates['buried']} buried",
    )
    assert cluster.crashes >= FailoverTrial.kills
    assert sum(doubts) >= (DOUBTS_EACH * cluster.crashes if cluster.crashes >= MANY else 1), doubts
