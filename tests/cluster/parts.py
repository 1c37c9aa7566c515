"""What a cluster is made of, each part a process of its own: etcd, Patroni, servers, a balancer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any

from courier.sealing import new_key
from tests import postgres
from tests.server import Server, free_port

FILES = Path(__file__).parents[2] / "deploy" / "cluster"
MEMBERS = 3
SERVERS = 3
START_S_MAX = 180.0
STOP_S_MAX = 20.0
POLL_S = 0.1


class Failed(Exception):
    """The cluster did not do what it should."""


def wait_until(true: Callable[[], object], otherwise: str, *, seconds: float = START_S_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise Failed(otherwise)
        time.sleep(POLL_S)


def fetched(url: str) -> Any:
    """The JSON at an address; None if nobody answers or the answer is a refusal."""
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())
    return None


class Process:
    """A program that runs until it is ended, with its output in a file."""

    def __init__(self, command: Sequence[object], log: Path) -> None:
        self._command = [str(part) for part in command]
        self._log = log
        self.started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.started = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/"
            )

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.started is None:
            return
        with suppress(ProcessLookupError):
            self.started.send_signal(how)
        try:
            self.started.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.started.kill()
            self.started.wait()
        self.started = None


class Member:
    """A PostgreSQL, and the Patroni that looks after it."""

    def __init__(self, directory: Path, number: int, *, etcd_port: int) -> None:
        self.name = f"db{number}"
        self.port, self.api_port = free_port(), free_port()
        self._directory = directory / self.name
        self._directory.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self._directory, "postgres", "postgres")
        values = {
            "name": self.name,
            "port": self.port,
            "api_port": self.api_port,
            "etcd_port": etcd_port,
            "directory": self._directory,
            "programs": Path(postgres.program("pg_controldata")).resolve().parent,
        }
        settings = directory / f"{self.name}.yaml"
        settings.write_text(filled("patroni.yaml", **values))
        command = [*postgres.as_postgres(), "patroni", settings]
        self._patroni = Process(command, directory / f"{self.name}.log")

    def start(self) -> None:
        self._patroni.start()

    def kill(self) -> None:
        """As if its machine was gone."""
        self._patroni.end(signal.SIGKILL)
        with suppress(OSError, ValueError):
            postmaster = int((self._directory / "data" / "postmaster.pid").read_text().split()[0])
            for pid in (postmaster, *postgres.children(postmaster)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self._patroni.end()
        self.kill()


class Databases:
    """PostgreSQL three times, one of them the primary."""

    def __init__(self, directory: Path) -> None:
        client, peer = free_port(), free_port()
        here = f"http://127.0.0.1:{client}"
        among = f"http://127.0.0.1:{peer}"
        self._etcd = Process(
            ["etcd", "--name", "one", "--data-dir", directory / "etcd",
             "--listen-client-urls", here, "--advertise-client-urls", here,
             "--listen-peer-urls", among, "--initial-advertise-peer-urls", among,
             "--initial-cluster", f"one={among}"],
            directory / "etcd.log",
        )  # fmt: skip
        self._health = f"{here}/health"
        self.members = [Member(directory, n, etcd_port=client) for n in range(1, MEMBERS + 1)]

    def start(self) -> None:
        self._etcd.start()
        wait_until(lambda: fetched(self._health), "etcd does not start")
        for member in self.members:
            member.start()
        self.wait_until_whole()

    def roles(self) -> dict[str, str]:
        """What Patroni says of each member that runs."""
        for member in self.members:
            if told := fetched(f"http://127.0.0.1:{member.api_port}/cluster"):
                return {
                    each["name"]: each["role"]
                    for each in told["members"]
                    if each["state"] in ("running", "streaming")
                }
        return {}

    def primary(self) -> Member | None:
        leaders = [name for name, role in self.roles().items() if role == "leader"]
        return next((member for member in self.members if member.name in leaders), None)

    def wait_until_whole(self) -> None:
        """A primary, a standby that confirms, and one more."""
        whole = ["leader", "replica", "sync_standby"]
        wait_until(lambda: sorted(self.roles().values()) == whole, "the databases do not form")

    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://courier@{places}/postgres"

    def stop(self) -> None:
        for member in self.members:
            member.stop()
        self._etcd.end()


class Servers:
    """Courier three times, and a balancer before them."""

    def __init__(self, directory: Path, store: str) -> None:
        self.directory = directory
        self._args = ["--store", store]
        self._env = {"COURIER_ENCRYPTION_KEYS": new_key()}
        self.nodes: list[Server] = []
        for number in range(1, SERVERS + 1):
            place = directory / f"server{number}"
            place.mkdir()
            self.nodes.append(Server(place, args=self._args, env=self._env))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        listed = [f"    server s{n} 127.0.0.1:{each.port}" for n, each in enumerate(self.nodes)]
        settings = directory / "haproxy.cfg"
        settings.write_text(filled("haproxy.cfg", port=self.port, servers="\n".join(listed)))
        path = f"{os.environ['PATH']}:/usr/sbin"
        program = shutil.which("haproxy", path=path)
        self._balancer = Process([program, "-db", "-f", settings], directory / "haproxy.log")

    def start(self) -> dict[str, Any]:
        """The credentials of the first tenant."""
        init = [sys.executable, "-m", "courier", "init", *self._args]
        done = subprocess.run(
            [*init, "--data", self.directory / "init"],
            env={**os.environ, **self._env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(done.stderr)
        for node in self.nodes:
            node.start()
        self._balancer.start()
        wait_until(lambda: fetched(f"{self.url}/health"), "the balancer does not start", seconds=20)
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    def stop(self) -> None:
        self._balancer.end()
        for node in self.nodes:
            if node.running:
                node.stop()

    def log(self) -> str:
        return "".join(node.log() for node in self.nodes)


def filled(file: str, **values: object) -> str:
    text = (FILES / file).read_text()
    # Only what stands in braces; comments hold dollars, too.
    return Template(text).safe_substitute(values)
