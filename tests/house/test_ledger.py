"""The ledger of planted faults fits the source, so that `make faults` plants what it says."""

from pathlib import Path

from tests.planted.ledger import FAULTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "courier"


def test_a_planted_fault_is_in_one_place() -> None:
    for fault in FAULTS:
        file = SOURCE / fault.file
        assert file.is_file() and file.read_text().count(fault.old) == 1, fault
        assert fault.new != fault.old, fault


def test_the_test_that_notices_is_there() -> None:
    """Its values are not looked at; `make faults` runs it without a fault first."""
    for test in {fault.test.partition("[")[0] for fault in FAULTS}:
        file, _, name = test.rpartition("::")
        file = file.partition("::")[0]
        assert (ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text(), test
