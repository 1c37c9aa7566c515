"""What a message costs on the hot path: instructions, which a busy machine does not change.

The budgets are a tenth above what was reached with CPython 3.11. `python -m bench instructions`
prints the figures; docs/ARCHITECTURE.md says where they go.
"""

from pathlib import Path

import pytest
from bench import instructions

BUDGETS = {
    "publish 64x1": 128_200,
    "cycle 64x1": 452_500,
    "publish 16x100": 17_100,
    "cycle 16x100": 50_800,
    "publish 16x10": 32_000,
    "cycle 16x10": 96_500,
    "anypoint publish 64x1": 156_000,
    "anypoint cycle 64x1": 518_000,
    "anypoint publish 16x10": 35_500,
    "anypoint cycle 16x10": 118_600,
    "discue publish 64x1": 161_800,
}


@pytest.mark.slow
def test_no_message_costs_more_instructions_than_its_budget(tmp_path: Path) -> None:
    assert instructions.installed(), "valgrind is missing: scripts/counter installs it"
    counts = {count.load.name: count.per_message for count in instructions.count(tmp_path)}
    assert counts.keys() == BUDGETS.keys()
    over = {name: count for name, count in counts.items() if count > BUDGETS[name]}
    assert not over
    # Far below, the count itself is wrong, or the budget is to be lowered.
    assert not {name: count for name, count in counts.items() if count < BUDGETS[name] * 0.6}
