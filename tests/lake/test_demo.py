"""`make demo`, as a stranger runs it."""

import subprocess
import sys
from pathlib import Path

from tests.cli.command import Command, clean_environ

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"
SECONDS_MAX = 280


def run(place: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(DEMO), "--dir", str(place), "--look", "2"],
        env=clean_environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS_MAX,
        text=True,
    )


def test_the_demo_ends_by_saying_where_to_look(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    done = run(place)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) < 60, done.stdout
    assert str(place / "report.html") in done.stdout
    assert "/console/enter?code=" in done.stdout
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
    done = run(tmp_path)
    assert done.returncode == 2
    assert "not of a demo" in done.stdout
    assert (tmp_path / "mine").exists()
