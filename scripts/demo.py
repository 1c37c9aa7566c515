"""The whole of Courier in two minutes: traffic through three APIs, the lake, a replay, a report.

`make demo` runs it. Everything it makes is in one folder, which can be looked at and removed.
"""

import argparse
import io
import json
import multiprocessing
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import traffic

from courier.cli.main import main as courier

START_S_MAX = 60.0
COMMAND_S_MAX = 600.0
LOOK_S_MAX = 12 * 3_600.0
MARK = "made-by-the-demo"
# What the packers refused; those of one country get a second chance.
BURIED = "outcome = 'buried' AND data:country::string = 'NL'"
# What the console replays by a plan, while the dead letters stay where they are.
ONCE_MORE = "SELECT queue_id, seq FROM messages WHERE outcome = 'buried' ORDER BY seq LIMIT 12"
PLAN_S_MAX = 60.0
QUESTION = (
    "SELECT queue, outcome, count(*) AS messages, max(attempts) AS attempts, "
    "round(avg(total_ms)) AS mean_ms FROM messages GROUP BY ALL ORDER BY ALL"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/demo"), help="default build/demo")
    parser.add_argument(
        "--look",
        type=float,
        default=LOOK_S_MAX if sys.stdin.isatty() else 0.0,
        metavar="SECONDS",
        help="how long the console stays open at the end; on a terminal until Ctrl-C",
    )
    options = parser.parse_args()
    place = options.dir
    if place.exists() and not (place / MARK).exists():
        print(f"demo: {place} is there already, and not of a demo", file=sys.stderr)
        return 2
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / MARK).touch()
    # Each line when it is known, also through a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Ending the demo ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    try:
        _demo(place)
        if options.look:
            _look(place, place / "data", options.look)
    except (Failed, RuntimeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"\nDone in {time.monotonic() - began:.0f} s. `rm -r {place}` removes all of it.")
    return 0


class Failed(Exception):
    """A step did not do what it should."""


def _demo(place: Path) -> None:
    data = place / "data"
    report = place / "report.html"
    print(f"A demo of Courier, in {place}")
    with Commands(data) as commands:
        with _server(place, data) as url:
            print(
                f"\nTraffic for some {traffic.SECONDS} seconds, through three APIs at {url}\n"
                "(meanwhile the pipeline starts, and brings the first of it into the lake)"
            )
            orders = _traffic(data, commands)
            commands.show("pipeline", "run", "--once")
            chosen = ("--queue", "orders", "--where", BURIED)
            commands.show("replay", *chosen, "--id", "second-chance")
            orders.again()
            commands.show("pipeline", "run", "--once")
        commands.show("report", "--out", str(report))
        commands.show("lake", "query", QUESTION)
    print(f"""
Where to look
  the report      {report}
  the lake        {data / "lake"}: Delta tables events, messages, queue_minutes,
                  consumers_hours and audit
  ask it          {_shown(data, ["lake", "query", "SELECT * FROM consumers_hours"])}
  more questions  docs/lake.md
  run it again    {_shown(data, ["up", "--port", url.rpartition(":")[2]])}
                  then {url}/client/v4/docs, /api/v1/docs and /v1/docs""")


def _look(place: Path, data: Path, seconds: float) -> None:
    """Serve it again, with a console full of life: orders that nobody packs, a failing listener.

    The dead letters are there from before, and so is what the command replayed.
    """
    with _server(place, data) as url:
        credentials = json.loads((data / "credentials.json").read_text())
        _replay(url, credentials["admin"]["token"])
        account = credentials["cloudflare"]
        base = f"{url}/client/v4/accounts/{account['account_id']}"
        api = traffic.Api(base, Authorization=f"Bearer {account['api_token']}")
        listed = api.ask("GET", "/queues")["result"]
        queues = {each["queue_name"]: each["queue_id"] for each in listed}
        command = [sys.executable, "-m", "courier", "console", "--print", "--data", str(data)]
        link = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        print(f"\nLook at it in a browser, with this link, once:\n  {link}\nCtrl-C ends it.")
        until_s = time.monotonic() + seconds
        number = 0
        try:
            while time.monotonic() < until_s:
                for queue in ("orders", "orders", "signups"):
                    body = {"body": {"number": number, "country": "NL"}, "content_type": "json"}
                    api.ask("POST", f"/queues/{queues[queue]}/messages", body)
                    number += 1
                time.sleep(0.5)
        except KeyboardInterrupt:
            print()


def _replay(url: str, token: str) -> None:
    """A plan of the console, made and run as its pages do; its receipt has the undo."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    api = traffic.Api(f"{url}/console", **headers)
    asked = {"action": "replay", "sql": ONCE_MORE, "which": "all"}
    plan = "/plans/" + api.ask("POST", "/plans", asked).rpartition("/")[2]
    until_s = time.monotonic() + PLAN_S_MAX
    for state in ("planned", "done"):
        while api.ask("GET", plan)["state"] != state:
            if time.monotonic() > until_s:
                raise Failed(f"the console's replay is not {state} in time")
            time.sleep(0.1)
        if state == "planned":
            api.ask("POST", f"{plan}/run", {})


def _traffic(data: Path, commands: "Commands") -> traffic.Orders:
    credentials = json.loads((data / "credentials.json").read_text())
    commands.run("queue", "create", "orders-failed")
    commands.run(
        *("queue", "create", "orders", "--dead-letter", "orders-failed"),
        *("--max-retries", "2", "--lease", "3s"),
    )
    tokens = {}
    for name in ("packer-1", "packer-2"):
        made = commands.run("key", "create", name, "--scope", "write", "--json")
        tokens[name] = json.loads(made)["token"]
    orders = traffic.Orders(credentials["cloudflare"], tokens)
    payments = traffic.Payments(credentials["anypoint"])
    signups = traffic.Signups(credentials["discue"])
    # Spark takes longest when it starts, and traffic leaves it much of the machine.
    brought = commands.begin("pipeline", "run", "--once")
    try:
        traffic.run(orders, payments, signups)
    finally:
        signups.close()
    brought()
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


class Commands:
    """Commands as a user gives them, one after the other in a process: Java starts once in it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        fresh = multiprocessing.get_context("spawn")
        self._pool = fresh.Pool(1, signal.signal, (signal.SIGINT, signal.SIG_IGN))

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def show(self, *words: str) -> None:
        """Run it, with what it prints below it."""
        print(f"\n$ {_shown(self._data, words)}")
        for line in self.run(*words).splitlines():
            print(f"  {line}")

    def run(self, *words: str) -> str:
        return self.begin(*words)()

    def begin(self, *words: str) -> Callable[[], str]:
        """Run it beside whatever comes next; the call that this returns waits for its end."""
        given = [*words, "--data", str(self._data)]
        begun = self._pool.apply_async(_run, (given,))

        def end() -> str:
            status, told = begun.get(COMMAND_S_MAX)
            if status:
                name = words[0]
                raise Failed(f"`courier {name}` ended with exit status {status}: {told.strip()}")
            return told

        return end


def _run(words: Sequence[str]) -> tuple[int, str]:
    """In the other process: a command's exit status, and what it has printed."""
    told = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(told), redirect_stderr(told):
        status = courier(words)
    told.seek(0)
    return status, told.read()


def _shown(data: Path, words: Sequence[str]) -> str:
    """A command to paste."""
    shown = [f'"{word}"' if " " in word else word for word in words]
    return " ".join([".venv/bin/courier", *shown, "--data", str(data)])


if __name__ == "__main__":
    sys.exit(main())
