"""Through how many files a message goes: what there is to read of its way."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Files whose functions a later push or pull of a connection runs. The goal is 16 for a push; this
# is what was reached, and is to be lowered with every file that goes.
FILES_MAX = {"messages": 30, "messages/pull": 34}


@pytest.mark.slow
def test_a_message_goes_through_no_more_files() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "walks.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = dict(re.findall(r"^later (\S+): (\d+) files$", told, re.MULTILINE))
    assert found.keys() == FILES_MAX.keys()
    assert all(int(count) <= FILES_MAX[path] for path, count in found.items()), told
