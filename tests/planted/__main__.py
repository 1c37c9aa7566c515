"""Plant each fault of the ledger in a copy of the source, and see that its test fails.

    python -m tests.planted [WORD ...]

With words, only faults whose file or test contains one of them.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted.ledger import FAULTS, Fault

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
WORKERS = 2
# A fault may make its test wait for something that never comes, and fail by pytest's own limit. One
# that does not end by then says nothing: the machine may be busy.
TEST_S_MAX = 400
# What pytest answers when all ran and some failed.
FAILED = 1
WORDS: dict[int | None, str] = {0: "not caught", None: "not ended"}


def main(words: list[str]) -> int:
    faults = [f for f in FAULTS if not words or any(w in f.file + f.test for w in words)]
    if not faults:
        print("no fault of the ledger has one of these words in its file or test")
        return 2
    compileall.compile_dir(SOURCE, quiet=1)
    # A test that fails anyway would catch nothing.
    if _pytest(SOURCE, sorted({fault.test for fault in faults}), limit_s=None) != 0:
        print("some of these tests fail without a planted fault")
        return 1
    slipped: list[Fault] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for fault, ended in zip(faults, pool.map(_planted, faults), strict=True):
            if ended != FAILED:
                print(f"{WORDS.get(ended, ended)}: {fault.file}: {fault.old!r} -> {fault.new!r}")
                print(f"    {fault.test}", flush=True)
                slipped.append(fault)
    print(f"{len(faults)} faults planted, {len(faults) - len(slipped)} caught")
    return 1 if slipped else 0


def _planted(fault: Fault) -> int | None:
    """How its test ends with it."""
    with tempfile.TemporaryDirectory(prefix="courier-planted-") as scratch:
        source = Path(scratch, "src")
        # Compiled files are copied too; they are found to be current by times, which a copy keeps.
        shutil.copytree(SOURCE, source)
        file = source / "courier" / fault.file
        file.write_text(file.read_text().replace(fault.old, fault.new))
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
        return _pytest(source, [fault.test], limit_s=TEST_S_MAX)


def _pytest(source: Path, tests: list[str], *, limit_s: float | None) -> int | None:
    """Its exit code; None if it did not come to an end."""
    # Compiled tests are kept: to compile them takes longer than most of them.
    environ = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}
    options = ["-p", "no:cacheprovider", "--tb", "line", "-x"]
    with tempfile.TemporaryFile("w+") as output:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=ROOT,
                env=environ,
                stdout=output,
                stderr=output,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return None
        if limit_s is None and done.returncode:
            output.seek(0)
            print(output.read())
        return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
