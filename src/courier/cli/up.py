"""`up`: the server and the pipeline beside it, each started again whenever it ends."""

import argparse
import asyncio
import http.client
import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from courier.cli import pipeline, serve
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.errors import Failed, Misused, Stop
from courier.cli.lakes import lake_root
from courier.cli.parser import DURATION, Commands, command, milliseconds
from courier.config import Config
from courier.lake.end import EndRequest

PACKAGES = ("pyspark", "deltalake", "pyarrow")
READY_S_MAX = 2.0
POLL_S = 0.2
LOOK_S = 1.0
# How soon a process that ended is started again; twice as late each time, until it has run a while.
AGAIN_S = 1.0
AGAIN_S_MAX = 30.0
STEADY_S = 60.0
# How long each may take to end by itself.
END_S_MAX = 90.0
QUESTION = "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY events DESC"


def add(commands: Commands) -> None:
    parser = command(commands, "up", "run the server and the pipeline into the lake", _up)
    parser.add_argument(
        "--every",
        type=milliseconds,
        default=5_000,
        metavar="TIME",
        help=f"interval between batches of the pipeline ({DURATION}); default 5s",
    )
    parser.add_argument("--lake", metavar="PATH", help="default: lake in the data directory")
    serve.add_settings(parser)


def _up(args: argparse.Namespace) -> None:
    settings = serve.load(args)
    _require_spark()
    asyncio.run(Supervisor(args, settings).run())


def _require_spark() -> None:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise Misused(
                f"the lake needs {package}: install Courier with its extra, `courier-mq[spark]`, "
                "or run the server alone with `courier serve`"
            )
    from courier.lake import java

    if java.find() is None:
        raise Misused(f"{java.MISSING}; `courier serve` runs the server alone")


class Supervisor:
    """Keeps both processes running until it is told to end."""

    def __init__(self, args: argparse.Namespace, settings: Config) -> None:
        port = settings.port or _free_port(settings.host)
        # What others call it may lead round a corner.
        self._url = Config(host=settings.host).url(port)
        self._data = str(settings.data)
        self._lake = lake_root(argparse.Namespace(lake=args.lake, data=self._data))
        place = ["--data", self._data, "--url", self._url, "--lake", self._lake]
        self._broker = Process("server", ["serve", *serve.given(args), f"--port={port}"])
        self._pipeline = Process(
            "pipeline", ["pipeline", "run", "--every", f"{args.every}ms", *place]
        )
        self._was_ready = False
        self._request = EndRequest()
        self._end = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        work = [
            asyncio.create_task(work)
            for work in (
                self._keep(self._broker, _at_once),
                self._keep(self._pipeline, self._ready),
                self._tell_first(),
                self._end.wait(),
            )
        ]
        running = set(work)
        try:
            while not self._end.is_set():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in work:
                task.cancel()
            await self._pipeline.stop()
            await self._broker.stop()

    def _on_signal(self, number: int) -> None:
        """Asked once, both end in order; asked again, at once."""
        if self._request.again(number):
            self._pipeline.kill()
            self._broker.kill()
        self._end.set()

    async def _keep(self, process: "Process", before: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        again_s = AGAIN_S
        while True:
            await before()
            started_s = loop.time()
            status = await process.run()
            if process is self._broker and not self._was_ready:
                raise Failed("the server did not start")
            if loop.time() - started_s >= STEADY_S:
                again_s = AGAIN_S
            _say(f"the {process.name} ended ({_told(status)}); again in {again_s:.0f} s")
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_S_MAX)

    async def _ready(self) -> None:
        """Wait until the server can be used."""
        while not await asyncio.to_thread(_answers, self._url):
            await asyncio.sleep(POLL_S)
        self._was_ready = True

    async def _tell_first(self) -> None:
        """Once the first events are in the lake, say where it is and how to look at it."""
        await self._ready()
        while not await asyncio.to_thread(self._written):
            await asyncio.sleep(LOOK_S)
        question = ["courier", "lake", "query", QUESTION, "--lake", self._lake]
        _say(f"the lake is in {self._lake}, and has its first events; ask it:\n")
        _say(f"  {shlex.join(question)}\n")

    def _written(self) -> bool:
        """Whether the pipeline has told the server of a batch."""
        place = {"data": self._data, "url": self._url}
        nobody = {"tenant": None, "token": None, "account": None}
        try:
            readers = ApiClient(access(argparse.Namespace(**place, **nobody))).pipelines()
        except Stop:
            return False
        return any(each["name"] == pipeline.NAME and each["offset"] > 0 for each in readers)


class Process:
    """A `courier` command beside this one, in a session of its own so that no key press ends it."""

    def __init__(self, name: str, args: list[str]) -> None:
        self.name = name
        self._command = [sys.executable, "-u", "-m", "courier.cli.tether", *args]
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self) -> int:
        """Start it, wait for its end and return its status."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, start_new_session=True
        )
        return await asyncio.to_thread(self._process.wait)

    async def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), b"\n")
        try:
            await asyncio.to_thread(self._process.wait, END_S_MAX)
        except subprocess.TimeoutExpired:
            _say(f"the {self.name} did not end within {END_S_MAX:.0f} s, and is killed")
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


async def _at_once() -> None:
    """Nothing has to be waited for."""


def _answers(url: str) -> bool:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=READY_S_MAX)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as one:
        one.bind((host, 0))
        port: int = one.getsockname()[1]
        return port


def _told(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def _say(line: str) -> None:
    print(line, flush=True)
