"""Every call to the disk fails once, in turn: what was answered is there, what was refused is not.

The store runs in this process, so that thousands of runs take seconds; `test_lying_server.py` does
the same to a server from outside.
"""

import asyncio
import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.faults.disk_run import Run, judge, killed, small_store
from tests.faults.disk_story import SECOND_STORY, STORY, Step
from tests.faults.lying import Fault, lying_disk

pytestmark = pytest.mark.slow
CALLS_MAX = 5_000


def run_with(root: Path, fault: Fault, story: list[Step] = STORY) -> bool:
    """One run, killed right after the fault was answered and once more a little later.

    False: the story has no such call.
    """
    root.mkdir()
    told = f"{fault}"
    left: list[tuple[Path, list[object]]] = []

    def at_mark(run: Run) -> None:
        settled = len(run.model.maybe) == 1 or run.model.unknown
        if run.disk.failed and settled:
            left.append((killed(run.data, root / f"left-{len(left)}"), list(run.model.maybe)))

    with lying_disk(root, fault) as disk:
        asyncio.run(Run(disk, at_mark, story).go())
    for data, maybe in left:
        asyncio.run(judge(data, maybe, f"{told} {disk.failed}"))  # type: ignore[arg-type]
    shutil.rmtree(root)
    return bool(disk.failed)


@pytest.mark.parametrize(
    ("kinds", "error"),
    [
        (("write",), "EIO"),
        (("write",), "ENOSPC"),
        (("write",), "short"),
        (("sync", "truncate", "open", "delete"), "EIO"),
        (("sync", "truncate", "open", "delete"), "ENOSPC"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_call_to_the_disk_that_fails_once_breaks_no_promise(
    tmp_path: Path, kinds: tuple[str, ...], error: str
) -> None:
    with small_store():
        for number in count(1):
            assert number < CALLS_MAX
            if not run_with(tmp_path / f"{number}", Fault(kinds, number, error)):
                break
    assert number > 30, "the story has more calls than that"


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_call_that_fails_once_breaks_no_promise_of_lines_claims_and_the_journal(
    tmp_path: Path, kind: str
) -> None:
    with small_store():
        for number in count(1):
            assert number < CALLS_MAX
            fault = Fault((kind,), number, "EIO")
            if not run_with(tmp_path / f"{number}", fault, SECOND_STORY):
                break
    assert number > 30, "the story has more calls than that"


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_disk_that_stays_broken_breaks_no_promise(tmp_path: Path, error: str) -> None:
    """Callers of a commit that is in doubt get no answer, and nobody after them a good one."""
    with small_store():
        for number in count(1):
            assert number < CALLS_MAX
            fault = Fault(("sync",), number, error, times=CALLS_MAX)
            if not run_with(tmp_path / f"{number}", fault):
                break
