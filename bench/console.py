"""What the console costs: pages with many queues and messages, publishing beside open ones."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import http
from bench.client import NewScript, move
from bench.client import measure as publishing
from bench.courier import Courier, CourierServer
from bench.figure import Figure, middle
from bench.plan import Plan
from bench.table import Row

PAGES = 50
FEW_PAGES = 10
PUBLISHERS = 16
BATCH = 100
_FILLERS = 16
_ASKED = 10
_SETTLE_S = 2.0
_STREAM = "Accept: text/event-stream\r\n"


class Console(NamedTuple):
    queues: int
    many: int
    pages_ms: dict[str, float]  # CPU time of the server, by page
    search_s: float
    open_share: float  # of a core, with a few open pages
    alone: Figure  # publishing, in turns with `beside`
    beside: Figure

    def rows(self) -> list[Row]:
        publish = f"publish, {PUBLISHERS} x {BATCH}"
        return [
            *(
                Row(f"console: {name}", Courier.name, note=f"{cost:.1f} ms of CPU in the server")
                for name, cost in self.pages_ms.items()
            ),
            Row(f"console: text in {self.many:,} bodies", Courier.name,
                note=f"{self.search_s:.2f} s for all of them"),
            Row(f"console: {FEW_PAGES} open pages", Courier.name,
                note=f"{100 * self.open_share:.2f} % of a core"),
            Row(publish, Courier.name, self.alone, note="no page open"),
            Row(publish, Courier.name, self.beside, note=f"beside {PAGES} open pages, in turns"),
        ]  # fmt: skip


def measure(directory: Path, plan: Plan) -> Console:
    server = CourierServer(directory)
    try:
        for number in range(plan.console_queues):
            server.new_bare_queue(f"queue-{number:05d}")
        long = server.new_queue("long")
        fillers = [long.filling(BATCH)] * _FILLERS
        move(server.process, fillers, messages=plan.many)
        path = f"/console/queues/{long.id}"
        found = http.ask(server.port, "GET", path, token=server.admin, headers=http.JSON)
        message = found["messages"]["rows"][0]["id"]
        pages = {
            f"Queues, {plan.console_queues:,}": "/console",
            f"Queue, {plan.many:,} messages": path,
            "Message": f"/console/messages/{message}?queue={long.id}",
        }
        costs = {name: _cost_ms(server, path) for name, path in pages.items()}
        search_s = _search_s(server, path)
        # Idle is measured last: what a million messages left to do is over then.
        with _open(server, FEW_PAGES):
            busy = _share(server, plan)
        share = max(0.0, busy - _share(server, plan))
        alone, beside = _publishing(server, plan)
        return Console(plan.console_queues, plan.many, costs, search_s, share, alone, beside)
    finally:
        server.process.stop()


def _share(server: CourierServer, plan: Plan) -> float:
    """Of a core, while nothing is asked."""
    began, cpu_s = time.perf_counter(), server.process.cpu_s()
    time.sleep(plan.console_open_s)
    return (server.process.cpu_s() - cpu_s) / (time.perf_counter() - began)


def _cost_ms(server: CourierServer, path: str) -> float:
    """CPU time for one answer: the middle of several, once all is loaded."""
    costs = []
    for _ in range(_ASKED + 1):
        before = server.process.cpu_s()
        http.fetch(server.port, "GET", path, token=server.admin, headers={"Accept": "text/html"})
        costs.append(server.process.cpu_s() - before)
    return 1_000 * median(costs[1:])


def _search_s(server: CourierServer, path: str) -> float:
    """How long it takes to look through all bodies, answer by answer."""
    began, after = time.perf_counter(), ""
    while True:
        query = f"{path}?q=nowhere-to-be-found&order=oldest{after}"
        found = http.ask(server.port, "GET", query, token=server.admin, headers=http.JSON)
        if not found["messages"]["next"]:
            return time.perf_counter() - began
        after = f"&after={found['messages']['next']}"


@contextmanager
def _open(server: CourierServer, pages: int) -> Iterator[None]:
    """Pages that follow their values, as browsers have them open."""
    with ExitStack() as stack:
        for _ in range(pages):
            page = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            head = http.request("/console/live?page=queues", token=server.admin, method="GET")
            page.sendall(head.removesuffix(b"\r\n") + _STREAM.encode() + b"\r\n")
        time.sleep(_SETTLE_S)
        yield


def _publishing(server: CourierServer, plan: Plan) -> tuple[Figure, Figure]:
    scripts = [server.publish(number, BATCH) for number in range(PUBLISHERS)]
    alone, beside = [], []
    for _ in range(plan.console_rounds):
        alone.append(_published(server, scripts, plan))
        with _open(server, PAGES):
            beside.append(_published(server, scripts, plan))
    return middle(alone), middle(beside)


def _published(server: CourierServer, scripts: list[NewScript], plan: Plan) -> Figure:
    return publishing(server.process, scripts, warmup_s=plan.warmup_s, seconds=plan.seconds)
