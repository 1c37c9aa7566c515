"""A whole cluster on this machine: traffic, kills, and a check that nothing was lost or doubled.

    python -m tests.cluster [--rounds N]

Three servers behind HAProxy, three PostgreSQL under Patroni (a standby confirms each commit), and a
Spark cluster on which the pipeline runs. In each round a server and the primary are killed with
SIGKILL, in the first a Spark worker too. It ends by itself, with status 1 if anything was lost or
done twice.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests import postgres
from tests.cluster.parts import Databases, Failed, Process, Servers, wait_until
from tests.cluster.traffic import Traffic
from tests.lake.cluster import cluster as spark_cluster
from tests.lake.cluster import settings

BACK_S_MAX = 30.0
COMMAND_S_MAX = 300.0
SETTLE_S = 3.0
_BEGAN_S = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN_S:6.1f} s  {text}", flush=True)


class Pipeline:
    """From the journal to a lake, on the Spark cluster, through the balancer."""

    def __init__(self, place: Path, master: str, url: str, token: str) -> None:
        (place / "token").write_text(token)
        (place / "token").chmod(0o600)
        self._lake = place / "lake"
        given = settings(place / "driver")
        more = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
        self._command = [
            sys.executable, "-m", "courier", "pipeline", "run", "--master", master,
            "--url", url, "--token-file", place / "token", "--lake", self._lake, *more,
        ]  # fmt: skip
        self._process = Process(self._command, place / "pipeline.log")

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.end()

    def finish(self) -> dict[str, int]:
        """Read what is left, and count what is in the lake."""
        self._process.end()
        # One worker is left.
        _run([*self._command, "--conf", "spark.cores.max=1", "--once"])
        question = (
            'SELECT count(*) AS events, count(DISTINCT e."offset") AS offsets, '
            'max(e."offset") AS last, (SELECT count(*) FROM messages) AS messages, '
            "(SELECT count(*) FROM messages WHERE outcome = 'acked') AS acked FROM events e"
        )
        asked = ["-m", "courier", "lake", "query", question, "--lake", self._lake, "--json"]
        told = json.loads(_run([sys.executable, *asked]))
        row: dict[str, int] = told[0] if isinstance(told, list) else told
        return row


def _run(command: list[Any]) -> str:
    name = " ".join(str(part) for part in command[2:6])
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{name}: still at work after {COMMAND_S_MAX:.0f} s") from None
    if done.returncode:
        raise Failed(f"{name}: {done.stderr[-2_000:]}")
    return done.stdout


def kill_server(servers: Servers, number: int, traffic: Traffic) -> None:
    node = servers.nodes[number % len(servers.nodes)]
    node.kill()
    gone_s = time.monotonic()
    say(
        f"killed a server; the next publisher was answered {traffic.stood_still_s(gone_s):.2f} s on"
    )
    time.sleep(SETTLE_S)
    node.start()


def kill_primary(databases: Databases, traffic: Traffic) -> float:
    """How long nobody could publish."""
    before = databases.primary()
    if before is None:
        raise Failed("there is no primary to kill")
    gone_s = time.monotonic()
    before.kill()
    wait_until(
        lambda: databases.primary() not in (None, before), "no standby took over", seconds=120
    )
    after = databases.primary()
    assert after is not None
    led_s = time.monotonic() - gone_s
    away_s = traffic.stood_still_s(gone_s + 1) + 1
    say(
        f"killed the primary {before.name}; {after.name} took over after {led_s:.1f} s, "
        f"the next publisher was answered after {away_s:.1f} s"
    )
    before.start()
    databases.wait_until_whole()
    say(f"{before.name} is back, as a standby")
    return away_s


def kill_worker() -> None:
    """One of Spark's, with its executor; it does not come back."""
    found = []
    for pid in postgres.children(os.getpid()):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"worker.Worker" in line:
            found.append(pid)
    if len(found) > 1:
        os.killpg(found[0], signal.SIGKILL)
        say("killed a Spark worker with its executor")


@contextmanager
def folder() -> Iterator[Path]:
    """Where the user that PostgreSQL runs as can go; kept if something failed."""
    place = Path(tempfile.mkdtemp(prefix="courier-cluster-"))
    place.chmod(0o755)
    try:
        yield place
    except BaseException:
        print(f"What is left is in {place}", file=sys.stderr)
        raise
    shutil.rmtree(place, ignore_errors=True)


def run(rounds: int) -> None:
    with folder() as place, ExitStack() as started:
        databases = Databases(place)
        started.callback(databases.stop)
        databases.start()
        say(f"three PostgreSQL: {databases.roles()}")
        servers = Servers(place, databases.url())
        started.callback(servers.stop)
        credentials = servers.start()
        say(f"three servers, behind HAProxy at {servers.url}")
        master = started.enter_context(spark_cluster(place / "spark"))
        pipeline = Pipeline(place, master, servers.url, credentials["admin"]["token"])
        started.callback(pipeline.stop)
        pipeline.start()
        say(f"a Spark cluster at {master}, with the pipeline on it")
        traffic = Traffic(servers.url, credentials)
        time.sleep(SETTLE_S)
        away_s = []
        for number in range(rounds):
            kill_server(servers, number, traffic)
            away_s.append(kill_primary(databases, traffic))
            if number == 0:
                kill_worker()
            time.sleep(SETTLE_S)
            traffic.check()
        say(f"{len(traffic.answered)} messages answered; waiting until all are consumed")
        traffic.finish()
        told = traffic.judge()
        say("journal: " + ", ".join(f"{count} {what}" for what, count in told.items()))
        lake = pipeline.finish()
        say("lake: " + ", ".join(f"{count} {what}" for what, count in lake.items()))
        if not lake["events"] == lake["offsets"] == lake["last"] >= told["events"]:
            raise Failed("the lake's events are not the journal's")
        if not lake["messages"] == lake["acked"] == told["messages"]:
            raise Failed("the lake's messages are not those that were published")
        doubts = servers.log().count("commit_in_doubt")
        say(f"{doubts} commits were in doubt, and decided; nothing was lost, nothing done twice")
        longest_s = max(away_s, default=0.0)
        say(f"{len(away_s)} primaries killed; writes were away for {longest_s:.1f} s at most")
        if longest_s > BACK_S_MAX:
            raise Failed(f"writes were to be back within {BACK_S_MAX:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="of kills; default 2")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        run(parser.parse_args().rounds)
    except (Failed, AssertionError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
