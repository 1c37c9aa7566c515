"""How the workers of a local Spark start."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from courier.lake.session import START

SECONDS_MAX = 60


def test_workers_begin_with_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    def look(_: int) -> tuple[str, list[str]]:
        import sys

        import pyspark

        return pyspark.__file__, sys.path

    [(file, path)] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert file == pyspark.__file__
    assert not [each for each in path if each.endswith(".zip") and "pyspark" in each]
    # Nothing of that is left for others that this process starts.
    assert str(START) not in os.environ.get("PYTHONPATH", "")


@pytest.mark.parametrize("said", [["mine"], []])
def test_what_a_user_has_python_do_first_is_done_too(tmp_path: Path, said: list[str]) -> None:
    if said:
        (tmp_path / "sitecustomize.py").write_text("print('mine')")
    ran = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"],
        env={"PYTHONPATH": os.pathsep.join([str(START), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    told = ran.stdout.splitlines()
    assert told[: len(said)] == said and not ran.stderr
    assert str(tmp_path) in told and str(START) not in told


@pytest.mark.parametrize(("given", "told"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_threads_for_algebra_are_as_many_as_the_user_wants_or_one(
    given: dict[str, str], told: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['OPENBLAS_NUM_THREADS'])"],
        env={"PYTHONPATH": str(START), **given},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    assert ran.stdout.strip() == told


def test_what_workers_have_in_common_is_loaded_before_they_are_forked(spark: SparkSession) -> None:
    def look(_: int) -> tuple[int, set[str]]:
        import os
        import sys

        return os.getppid(), {*sys.modules}

    [(daemon, loaded)] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert {"pyspark.worker", "pyarrow", "courier.lake.source"} <= loaded
    # A fork takes one thread along, and what others held would be held for ever.
    assert len(os.listdir(f"/proc/{daemon}/task")) == 1
