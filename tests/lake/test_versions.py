"""The oldest and the newest PySpark that Courier works with, and what others are told."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from courier.lake import versions
from tests.cli.command import clean_environ

HERE = Path(__file__).resolve().parents[2]
OLDEST_PYTHON = HERE / ".tools" / "oldest" / "bin" / "python"
SECONDS_MAX = 600
SLICE = (
    # Every method of readers and writers; options, schemas, registration and gaps of the source.
    "tests/lake/test_source_methods.py",
    "tests/lake/test_source_journal.py",
    # The pipeline with every table, a gap, an erasure and the audit.
    "tests/lake/test_recomputed.py",
    # Executors write and read a bucket, and `courier.lake.read`.
    "tests/lake/test_bucket.py::test_tasks_write_and_read_a_bucket_too",
)
LOOK = "import pyspark; print(pyspark.__version__)"


@pytest.mark.parametrize(
    ("version", "is_good"),
    [
        ("4.2.0", True), ("4.2.1", True), ("4.3.0", True), ("4.10.0.dev1", True),
        ("4.1.4", False), ("3.5.9", False), ("5.0.0", False), ("", False),
    ],
)  # fmt: skip
def test_versions(version: str, is_good: bool) -> None:
    wrong = versions.problem(version)
    assert (wrong == "") == is_good
    assert is_good or f"needs PySpark 4.2 or newer, below 5, and this is {version}:" in wrong
    assert "\n" not in wrong


def test_these_tests_run_with_the_newest() -> None:
    declared = (HERE / "pyproject.toml").read_text()
    assert f'"pyspark=={pyspark.__version__}"' in declared
    assert f'"pyspark>={versions.OLDEST[0]}.{versions.OLDEST[1]},<{versions.NEXT[0]}"' in declared


def test_the_source_can_be_imported_with_a_spark_that_is_too_old(tmp_path: Path) -> None:
    """It says in one sentence what it needs when it is used."""
    (tmp_path / "pyspark.py").write_text("__version__ = '4.1.4'")
    code = "import pyspark_courier as it; print(it.DefaultSource.name()); it.DefaultSource({})"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean_environ(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ran.stdout == "courier\n"
    assert ran.stderr.splitlines()[-1] == f"RuntimeError: {versions.problem('4.1.4')}"


@pytest.mark.timeout(SECONDS_MAX)
def test_the_oldest_spark_runs_the_source_and_makes_the_same_tables(tmp_path: Path) -> None:
    """In an environment whose python is run by its path: nothing on the PATH is of it."""
    environ = {**clean_environ(), "PATH": os.defpath, "TMPDIR": str(tmp_path)}
    environ.pop("PYSPARK_PYTHON", None)
    found = subprocess.run(
        [OLDEST_PYTHON, "-c", LOOK], env=environ, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(f"{versions.OLDEST[0]}.{versions.OLDEST[1]}.0")
    ran = subprocess.run(
        [OLDEST_PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *SLICE],
        cwd=HERE,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout and "skipped" not in ran.stdout
