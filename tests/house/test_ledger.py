"""The ledger of planted faults fits the source, so that `make faults` plants what it says."""

from pathlib import Path

import pytest

from tests.planted.ledger import FAULTS, Fault

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "courier"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}:{fault.old[:30]!r}")
def test_a_planted_fault_is_in_one_place(fault: Fault) -> None:
    assert (SOURCE / fault.file).read_text().count(fault.old) == 1
    assert fault.new != fault.old


@pytest.mark.parametrize("test", sorted({fault.test.partition("[")[0] for fault in FAULTS}))
def test_the_test_that_notices_is_there(test: str) -> None:
    """Its values are not looked at; `make faults` runs it without a fault first."""
    file, _, name = test.rpartition("::")
    assert f"def {name}(" in (ROOT / file.partition("::")[0]).read_text()
