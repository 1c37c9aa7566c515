"""The ledger of planted faults fits the source, so that `make faults` plants what it says."""

from pathlib import Path

import pytest

from tests.planted.ledger import FAULTS, Fault

SOURCE = Path(__file__).parents[2] / "src" / "courier"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}:{fault.old[:30]!r}")
def test_a_planted_fault_is_in_one_place(fault: Fault) -> None:
    assert (SOURCE / fault.file).read_text().count(fault.old) == 1
    assert fault.new != fault.old
