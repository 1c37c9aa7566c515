"""Fixtures shared by every test that talks to a running server."""

import asyncio
import inspect
import os
import re
import uuid
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.report import TOLD
from tests.server import Server

LOG_LINES_SHOWN = 100
# How long an example takes is up to whoever else uses the machine.
settings.register_profile("courier", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("courier")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole run. Tests share it: each works on queues of its own. `SERVERS=two`:
    two on one PostgreSQL, behind a balancer that takes them in turns."""
    place = tmp_path_factory.mktemp("server")
    if os.environ.get("SERVERS") == "two":
        from tests.outside.balancer import TwoServers

        made: Server = TwoServers(place)
    else:
        made = Server(place)
    with made.start() as server:
        yield server


@pytest.fixture
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the test's own, with nothing in it; the test may stop, kill or restart it."""
    with Server(tmp_path_factory.mktemp("fresh-server")).start() as server:
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    """The shared server at the root of its Cloudflare account: `http.get("/queues")`."""
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def operator(server: Server) -> Iterator[httpx.Client]:
    """The shared server's own routes, with the key that may do everything there."""
    with server.operator() as client:
        yield client


@pytest.fixture
def queue_name() -> str:
    """A name no other test uses."""
    return f"q-{uuid.uuid4().hex[:16]}"


def marks_of(folder: Path, config: pytest.Config) -> list[pytest.MarkDecorator]:
    """Those that the `pytestmark` of its `__init__.py` gives to all that is in it."""
    if not (folder / "__init__.py").is_file():
        return []
    package = import_module(".".join(folder.relative_to(config.rootpath).parts))
    marks = getattr(package, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What will be left out is not loaded either: every worker would load all of it."""
    unwanted = set(re.findall(r"not (\w+)", config.option.markexpr))
    if not unwanted or not collection_path.is_dir():
        return None
    return True if unwanted & {mark.name for mark in marks_of(collection_path, config)} else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_directory(
    path: Path, parent: pytest.Collector
) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
    folder = yield
    if folder is not None:
        for mark in marks_of(path, parent.config):
            folder.add_marker(mark)
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An async test has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the server printed below the failure of a test that used one."""
    report = yield
    used: dict[str, object] = getattr(item, "funcargs", {})
    if report.failed:
        for name, value in used.items():
            if isinstance(value, Server):
                lines = value.log().splitlines()[-LOG_LINES_SHOWN:]
                report.sections.append((f"log of {name}", "\n".join(lines)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests had to tell; what a worker process prints itself is seen by nobody."""
    for report in terminalreporter.getreports("passed"):
        for name, told in report.user_properties:
            if name == TOLD:
                terminalreporter.write_line(f"{report.location[2]}: {told}")
