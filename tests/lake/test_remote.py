"""The commands on a Spark that runs already, through Spark Connect."""

import signal
import socket
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from courier.lake import archive
from courier.lake.audit import FINDINGS
from courier.lake.catalog import Lake
from tests.cli.command import Command
from tests.clients.cloudflare import CloudflareClient
from tests.lake.brokers import bodies, last_offset
from tests.lake.cluster import CONNECT_PYTHON, connect
from tests.lake.commands import commands
from tests.lake.lakes import rows
from tests.lake.running import wait_for
from tests.server import Server, free_port


@pytest.mark.timeout(1800)
def test_it_does_what_a_spark_of_our_own_does(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with (
        Server(tmp_path).start() as server,
        server.client() as http,
        connect(spark) as remote,
        commands(tmp_path / "commands", CONNECT_PYTHON) as courier,
    ):
        work = CloudflareClient(http, "work")
        work.publish_batch([f"body {n}" for n in range(30)])
        work.ack([each.lease for each in work.pull(20)])
        CloudflareClient(http, "again")
        place = ("--lake", str(root), "--data", str(server.data), "--remote", remote)

        # It goes on with what comes, and ends when it is told to.
        courier.begin("pipeline", "run", "--every", "200ms", "--max-rows", "50", *place)
        courier.wait("batch 0: 50 events")
        work.publish("late")
        last = last_offset(server)
        lake = Lake(str(root))
        wait_for(lambda: archive.last(lake.consumers_hours) >= last, courier.said)
        courier.process.send_signal(signal.SIGTERM)
        status, shown, said = courier.end()
        assert (status, shown) == (0, ""), said
        [upto] = {archive.last(table) for table in lake.tables}
        assert sorted(row["offset"] for row in rows(lake.events)) == [*range(1, upto + 1)]
        ended = Counter(row["outcome"] for row in rows(lake.messages) if row["queue"] == "work")
        assert ended == {"acked": 20, "live": 11}
        for row in rows(lake.audit):
            assert not any(row[name] for name in ("difference", "gaps", *FINDINGS)), row

        before = [rows(table) for table in lake.tables]
        status, shown, said = courier("pipeline", "rebuild", *place)
        assert (status, said) == (0, "")
        assert [rows(table) for table in lake.tables] == before

        chosen = ("--queue", "work", "--into", "again", "--where", "outcome = 'acked'")
        status, shown, said = courier("replay", *chosen, "--id", "there", *place)
        assert (status, shown) == (0, "20 messages published to 'again', replay 'there'\n"), said
        assert sorted(bodies(server, "again")) == sorted(f"body {n}" for n in range(20))


def test_a_client_that_is_not_installed_is_told_in_one_line(server: Server) -> None:
    """It is not where these tests run; whether anybody serves there is looked at before."""
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        url = f"sc://127.0.0.1:{somebody.getsockname()[1]}"
        once = ("pipeline", "run", "--once", "--data", str(server.data))
        ran = Command().attempt(*once, "--remote", url)
    assert (ran.status, ran.err.count("\n")) == (1, 1), ran.err
    assert "install `courier-mq[connect]`" in ran.err


def test_one_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    nobody = f"sc://127.0.0.1:{free_port()}"
    with Server(tmp_path).start() as server:
        once = ("pipeline", "run", "--once", "--data", str(server.data))
        for url, reason in (
            (nobody, f"Spark at {nobody} cannot be reached: "),
            ("spark://here:7077", "--remote is an address such as sc://host:15002, not 'spark://"),
            ("sc://here:port", "Spark at sc://here:port cannot be reached: Port could not be"),
        ):
            ran = Command().attempt(*once, "--remote", url)
            assert (ran.status, ran.err.count("\n")) == (1, 1), ran.err
            assert ran.err.startswith(f"courier: {reason}"), ran.err
    both = Command().attempt(*once, "--remote", nobody, "--master", "local[2]")
    assert both.status == 2
    assert "cannot be used with" in both.err
