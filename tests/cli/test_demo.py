"""`make demo`, as a stranger runs it."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Command, clean_environ

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"
SECONDS_MAX = 280


LINK = re.compile(r"^  (http://\S+)/console/enter\?code=\S+$", re.MULTILINE)


def run(place: Path, look: Callable[[str], None] | None = None) -> tuple[int, str]:
    """Its exit status, and what it said; `look` is called with the link that it ends with."""
    command = [sys.executable, str(DEMO), "--dir", str(place), "--look", str(SECONDS_MAX)]
    demo = subprocess.Popen(
        command,
        env=clean_environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    said = ""
    try:
        for line in demo.stdout:
            said += line
            if look is not None and LINK.search(line):
                look(line.strip())
                demo.send_signal(signal.SIGINT)
        return demo.wait(SECONDS_MAX), said
    finally:
        demo.kill()


def full_of_life(link: str) -> None:
    """A queue that grows, a listener that fails, dead letters and a finished replay."""
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=30) as http:
        assert http.get(link).status_code == 200
        http.headers["Accept"] = "application/json"
        at = link.partition("/enter")[0]
        waiting: list[int] = []
        until_s = time.monotonic() + 60
        states: set[str] = set()
        while not {"listener fails", "dead letters"} <= states or waiting[-1] <= waiting[0]:
            assert time.monotonic() < until_s, (states, waiting)
            rows = {row["name"]: row for row in http.get(at).json()["rows"]}
            states = {row["state"] for row in rows.values()}
            waiting.append(rows["orders"]["waiting"])
            time.sleep(0.5)
        plans = http.get(f"{at}/plans").json()["rows"]
        assert [(row["title"], row["state"]) for row in plans] == [
            ("Replay 12 messages into orders", "done")
        ]


def test_the_demo_ends_by_saying_where_to_look(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    status, said = run(place, full_of_life)
    assert status == 0, said
    assert len(said.splitlines()) < 60, said
    assert str(place / "report.html") in said
    assert LINK.search(said)
    page = (place / "report.html").read_text()
    assert "Everything adds up" in page
    courier = Command("--data", str(place / "data"))

    def ask(sql: str) -> list[list[str]]:
        return courier("lake", "query", sql).rows

    used = "SELECT DISTINCT dialect FROM events WHERE queue IN ('orders', 'payments', 'signups')"
    assert {"anypoint", "cloudflare", "courier", "discue"} <= {name for [name] in ask(used)}
    again = "headers->>'courier-replay-id' = 'second-chance' AND outcome = 'acked'"
    counts = f"count_if(outcome = 'buried'), count_if({again})"
    [[buried, replayed]] = ask(f"SELECT {counts} FROM messages")
    assert 0 < int(replayed) < int(buried)


def test_the_demo_leaves_a_folder_alone_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    status, said = run(tmp_path)
    assert status == 2
    assert "not of a demo" in said
    assert (tmp_path / "mine").exists()
