"""The Spark programs in `examples/`, run as they are against a real server and a real lake."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.command import Command
from tests.cli.pasted import blocks, shell
from tests.lake.cluster import CONNECT_PYTHON, connect
from tests.lake.lakes import SmallLake
from tests.server import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS_MAX = 240
ORDERS = 1_000


def run(monkeypatch: pytest.MonkeyPatch, name: str, *args: str) -> None:
    """Run a program in this process, where it finds the Spark that all tests share."""
    monkeypatch.setattr(sys, "argv", [name, *args])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.fixture
def orders(server: Server, queue_name: str) -> str:
    """The name of an empty queue."""
    Command("--data", str(server.data))("queue", "create", queue_name)
    return queue_name


def test_a_dataframe_is_published_once_and_counted_by_a_streaming_job(
    spark: SparkSession,
    server: Server,
    orders: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    data, out = str(server.data), tmp_path / "out"
    for _ in range(2):
        run(monkeypatch, "publish_dataframe.py", data, orders)
    assert f"published {ORDERS} orders to {orders}" in capfd.readouterr().out

    counted = []
    for _ in range(2):
        run(monkeypatch, "streaming_job.py", data, orders, str(out))
        [file] = (out / "result").glob("*.json")
        counted.append([json.loads(line) for line in file.read_text().splitlines()])
    assert "|country|orders|" in capfd.readouterr().out
    for rows in counted:
        assert sum(row["orders"] for row in rows) == ORDERS
        assert {row["country"] for row in rows} == {"DE", "NL", "PT"}
        assert sum(row["total"] for row in rows) == sum(n * 7 % 500 for n in range(ORDERS))


def test_the_job_of_the_page_runs_as_it_is_printed(
    spark: SparkSession,
    fresh_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The address is another one, and so are the folders, which Spark has where it was started."""
    (tmp_path / "courier-data").symlink_to(fresh_server.data)
    shell(tmp_path, blocks("README.md", "sh")[1], blocks("docs/spark.md", "sh")[1])
    job = blocks("docs/spark.md", "python")[0].replace("http://127.0.0.1:8787", fresh_server.url)
    job = job.replace('"tokenFile": "token"', f'"tokenFile": "{tmp_path}/token"')
    for option in ("path", "checkpointLocation"):
        job = job.replace(f'.option("{option}", "', f'.option("{option}", "{tmp_path}/')
    monkeypatch.chdir(tmp_path)
    exec(compile(job, "docs/spark.md", "exec"), {"__name__": "__main__"})
    assert "queue_created" in capfd.readouterr().out
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 1
    courier = Command("--data", str(fresh_server.data))
    answers = courier("pull", "answers", "--count", "100", "--ack", "--json").json
    assert sorted(each["body"] for each in answers) == [f'{{"ID":{n}}}' for n in range(10)]


def test_the_questions_on_the_life_of_messages_have_answers(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "life_of_messages.py", str(small.root))
    said = capfd.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()]
    assert ["orders", "buried", "3"] in [row[:3] for row in rows]
    lived = [row[2] for row in rows if len(row) == 6 and row[0].isdecimal()]
    assert lived[0] == "published" and {"leased", "acked", "buried"} & {*lived}
    assert sum(int(row[2]) for row in rows if row[:1] == ["orders"] and row[1] in ("eu", "us")) == 3
    assert ["orders", "40", "25", "3", "0", "0", "0", "12", "0"] in rows


def test_a_declarative_pipeline_makes_its_tables(
    spark: SparkSession, fresh_server: Server, tmp_path: Path
) -> None:
    home = tmp_path / "declarative_pipeline"
    shutil.copytree(EXAMPLES / "declarative_pipeline", home)
    spec = home / "spark-pipeline.yml"
    storage = "file:///tmp/orders-pipeline"
    assert storage in spec.read_text()
    spec.write_text(spec.read_text().replace(storage, f"file://{tmp_path}/storage"))
    token = tmp_path / "token"
    token.write_text(fresh_server.credentials["admin"]["token"])
    courier = Command("--data", str(fresh_server.data))
    courier("queue", "create", "orders")
    for total in (5, 7):
        courier("publish", "orders", f'{{"country": "NL", "total": {total}}}', "--type", "json")
    with connect(spark) as remote:
        done = subprocess.run(
            [Path(sys.executable).parent / "spark-pipelines", "--remote", remote, "run"],
            cwd=home,
            env={
                **os.environ,
                "PYSPARK_PYTHON": str(CONNECT_PYTHON),
                "COURIER_URL": fresh_server.url,
                "COURIER_TOKEN_FILE": str(token),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            text=True,
        )
    assert done.returncode == 0, done.stdout
    assert "Run is COMPLETED" in done.stdout
    tables = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    files = Path(tables, "countries").glob("*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert rows == [{"country": "NL", "orders": 2, "total": 12.0}]
