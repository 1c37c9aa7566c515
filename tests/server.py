"""The real server as a process of its own, for tests that come in through the front door."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from tests import certificates

# One that has not ended is waited for: on a busy machine it loads for half a minute. This is for
# one that hangs, so that the test can say what it logged.
START_SECONDS_MAX = 200.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
# Outgoing connections get their ports from 32,768 up. One of them, of this test run or of another
# beside it, would else be given a server's port between its kill and its start.
PORTS = range(20_000, 32_768)


class Server:
    """`python -m MODULE serve` on a free port, with its data in `directory`.

    The port and the data stay the same over `restart()`, so clients may keep their addresses and
    their credentials. An `encrypted` one has a certificate that `trusted.pem` in its directory
    vouches for.
    """

    def __init__(
        self,
        directory: Path,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        module: str = "courier",
        encrypted: bool = False,
    ) -> None:
        self._module = module
        self.data = directory / "data"
        self.port = free_port()
        self.url = f"{'https' if encrypted else 'http'}://127.0.0.1:{self.port}"
        self.args = list(args)
        self._module = module
        if encrypted:
            certificates.make(directory)
            files = (str(directory / name) for name in (certificates.TRUSTED, certificates.SECRET))
            self.args += ["--tls-certificate", next(files), "--tls-key", next(files)]
        self._env = dict(env or {})
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened, no process stays behind."""
        if self.running:
            self.stop()

    def ended(self) -> int:
        """The exit status of a server that is to leave by itself."""
        status = self._running().wait(STOP_SECONDS_MAX)
        self._process = None
        return status

    def start(self, *, ready: bool = True) -> Self:
        """Start, and return once `/ready` answers 200, or at once."""
        assert self._process is None, "the server runs already"
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data)]
        # Settings of whoever runs the tests are not the server's.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COURIER_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, "serve", *address, *self.args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited, "PYTHONUNBUFFERED": "1", **self._env},
            )
        try:
            if ready:
                self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Ask it to drain. A server that does not leave with exit status 0 fails the test."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"still running {STOP_SECONDS_MAX:.0f} s after SIGTERM\n{self.log()}"
            ) from None
        self._process = None
        assert status == 0, f"exit status {status} after SIGTERM\n{self.log()}"

    def kill(self) -> None:
        """End it at once, as the loss of the machine would."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop it, if it still runs, and start it again on the same port and data."""
        if self._process is not None:
            self.stop()
        self.start()

    @property
    def running(self) -> bool:
        """Started, and neither stopped nor killed since. One that fell over still counts."""
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def credentials(self) -> dict[str, Any]:
        """What the first start wrote for its callers."""
        loaded: dict[str, Any] = json.loads((self.data / "credentials.json").read_bytes())
        return loaded

    def address(self) -> tuple[str, int]:
        """Where the next connection goes."""
        return "127.0.0.1", self.port

    def log(self) -> str:
        """Everything the server has printed, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def client(self) -> httpx.Client:
        """A client at the root of the Cloudflare account, with its token. The caller closes it."""
        return account_client(self.credentials)

    def operator(self, under: str = "/courier/v1") -> httpx.Client:
        """A client of the server's own routes, with the key that may do everything there."""
        return client_of(f"{self.url}{under}", self.credentials["admin"]["token"])

    def operate(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request with that key."""
        with self.operator("") as client:
            return client.request(method, path, **options)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was not started"
        return self._process

    def wait_until_ready(self) -> None:
        process = self._running()
        deadline = time.monotonic() + START_SECONDS_MAX
        with httpx.Client(trust_env=False, verify=False, timeout=2.0) as client:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    break
                try:
                    if client.get(f"{self.url}/ready").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(POLL_SECONDS)
        status = process.poll()
        fate = "not ready in time" if status is None else f"ended with exit status {status}"
        raise AssertionError(f"the server is {fate}\n{self.log()}")


def client_of(url: str, token: str = "", **options: Any) -> httpx.Client:
    """It checks no certificate; loading those to check with would take 20 ms each time."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    options = {"headers": headers, "timeout": 30.0, "verify": False, **options}
    return httpx.Client(base_url=url, trust_env=False, **options)


def account_client(credentials: dict[str, Any], *, token: str = "") -> httpx.Client:
    """A client at the root of the Cloudflare account these credentials are for."""
    account = credentials["cloudflare"]
    url = f"{account['base_url']}/accounts/{account['account_id']}"
    return client_of(url, token or account["api_token"])


def free_port() -> int:
    """A port that was free a moment ago, and that no connection is given while it is."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
