"""Servers that share a database are killed again and again, and so is the database."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster
from tests.faults.test_kill import PullTrial
from tests.faults.test_kill_fifo import QUEUES, FifoTrial
from tests.faults.trial import CALLERS, KILLS, SEED, TIMEOUT_SECONDS
from tests.report import TOLD


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_nothing_answered_is_undone_by_killing_servers_or_their_database(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with Cluster(tmp_path, seed=SEED).start() as cluster, closing(PullTrial(cluster)) as trial:
        trial.run([trial.caller(f"caller{n}", SEED * 1_000 + n) for n in range(CALLERS)])
        for queue in trial.ids:
            trial.drain(queue)
        trial.ledger.read(trial.connection)
        crashes = cluster.crashes
        assert "Traceback" not in cluster.log()
    fates = Counter(life.closed for life in trial.ledger.lives.values())
    assert set(fates) == {"acked", "buried"}, fates
    history = trial.history
    record_property(
        TOLD,
        f"{KILLS} kills, {crashes} of the database, {history.operations} operations, "
        f"{history.in_doubt} in doubt, {fates['acked']} messages acked, {fates['buried']} buried",
    )
    assert crashes and history.in_doubt > 0, "every kill missed"


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_groups_keep_their_order_over_kills_of_servers_and_their_database(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with (
        Cluster(tmp_path, seed=SEED).start() as cluster,
        closing(FifoTrial(cluster)) as trial,
    ):
        trial.run([trial.caller(f"caller{n}", SEED * 1_000 + n) for n in range(CALLERS)])
        for queue in QUEUES:
            trial.drain(queue)
        trial.check()
        trial.history.check_delivered()
        assert "Traceback" not in cluster.log()
    history = trial.history
    record_property(
        TOLD,
        f"{trial.kills} kills, {history.operations} operations, {history.in_doubt} in doubt",
    )
    assert history.in_doubt > 0, "every kill missed"
