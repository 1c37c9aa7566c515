"""The whole of Courier in two minutes: traffic through three APIs, the lake, a replay, a report.

`make demo` runs it. Everything it makes is in one folder, which can be looked at and removed.
"""

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import traffic

START_S_MAX = 60.0
COMMAND_S_MAX = 600.0
MARK = "made-by-the-demo"
# What the packers refused; those of one country get a second chance.
BURIED = "outcome = 'buried' AND data:country::string = 'NL'"
QUESTION = (
    "SELECT queue, outcome, count(*) AS messages, max(attempts) AS attempts, "
    "round(avg(total_ms)) AS mean_ms FROM messages GROUP BY ALL ORDER BY ALL"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/demo"), help="default build/demo")
    place = parser.parse_args().dir
    if place.exists() and not (place / MARK).exists():
        print(f"demo: {place} is there already, and not of a demo", file=sys.stderr)
        return 2
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / MARK).touch()
    # Each line when it is known, also through a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Whoever ends the demo ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    try:
        _demo(place)
    except (Failed, RuntimeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"\nDone in {time.monotonic() - began:.0f} s. `rm -r {place}` removes all of it.")
    return 0


class Failed(Exception):
    """A step did not do what it should."""


def _demo(place: Path) -> None:
    data = place / "data"
    print(f"A demo of Courier, in {place}")
    with _server(place, data) as url:
        print(f"\nTraffic for some {traffic.SECONDS} seconds, through three APIs at {url}")
        orders = _traffic(data)
        _courier(data, "pipeline", "run", "--once")
        _courier(data, "replay", "--queue", "orders", "--where", BURIED, "--id", "second-chance")
        orders.again()
        _courier(data, "pipeline", "run", "--once")
    report = place / "report.html"
    _courier(data, "report", "--out", str(report))
    _courier(data, "lake", "query", QUESTION)
    print(f"""
Where to look
  the report      {report}
  the lake        {data / "lake"}: Delta tables events, messages, queue_minutes,
                  consumers_hours and audit
  ask it          {_shown(data, ["lake", "query", "SELECT * FROM consumers_hours"])}
  more questions  docs/lake.md
  run it again    {_shown(data, ["up", "--port", url.rpartition(":")[2]])}
                  then {url}/client/v4/docs, /api/v1/docs and /v1/docs""")


def _traffic(data: Path) -> traffic.Orders:
    credentials = json.loads((data / "credentials.json").read_text())
    _quietly(data, "queue", "create", "orders-failed")
    _quietly(
        data, *("queue", "create", "orders", "--dead-letter", "orders-failed"),
        *("--max-retries", "2", "--lease", "3s"),
    )  # fmt: skip
    tokens = {}
    for name in ("packer-1", "packer-2"):
        made = _quietly(data, "key", "create", name, "--scope", "write", "--json")
        tokens[name] = json.loads(made)["token"]
    orders = traffic.Orders(credentials["cloudflare"], tokens)
    payments = traffic.Payments(credentials["anypoint"])
    signups = traffic.Signups(credentials["discue"])
    try:
        traffic.run(orders, payments, signups)
    finally:
        signups.close()
    print(
        f"  orders     Cloudflare  {traffic.ORDERS} published, {orders.done['acked']} acked, "
        f"{orders.done['retried']} given back\n"
        f"  payments   Anypoint    {payments.done} in order, customer by customer\n"
        f"  signups    Discue      {traffic.SIGNUPS} pushed to a listener that refused "
        f"{signups.refused} at first"
    )
    return orders


@contextmanager
def _server(place: Path, data: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "courier", "serve", "--port", str(port), "--data", str(data)),
        # The listener is on this machine, and need not wait long for what it refused.
        *("--push-networks", "127.0.0.0/8", "--push-delay-percent", "5"),
    ]
    with (place / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait(url, server, place / "server.log")
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(START_S_MAX)
        except subprocess.TimeoutExpired:
            server.kill()


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S_MAX
    while server.poll() is None and time.monotonic() < deadline:
        try:
            direct.open(f"{url}/ready", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise Failed(f"the server did not start; see {log}")


def _courier(data: Path, *words: str) -> None:
    """Run a command as a user would, with what it prints below it."""
    print(f"\n$ {_shown(data, words)}")
    done = _run(data, words, stderr=subprocess.STDOUT)
    for line in done.stdout.splitlines():
        print(f"  {line}")
    if done.returncode:
        raise Failed(f"`courier {words[0]}` ended with exit status {done.returncode}")


def _quietly(data: Path, *words: str) -> str:
    done = _run(data, words, stderr=subprocess.PIPE)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return done.stdout


def _run(data: Path, words: Sequence[str], *, stderr: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "courier", *words, "--data", str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=COMMAND_S_MAX,
        text=True,
    )


def _shown(data: Path, words: Sequence[str]) -> str:
    """A command to paste."""
    shown = [f'"{word}"' if " " in word else word for word in words]
    return " ".join([".venv/bin/courier", *shown, "--data", str(data)])


if __name__ == "__main__":
    sys.exit(main())
