"""Fixtures shared by every test that talks to a running server."""

import asyncio
import inspect
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.report import TOLD
from tests.server import Server

LOG_LINES_SHOWN = 100
# Thousands of requests each, or seconds of waiting: whole folders that are not for every minute.
SLOW_FOLDERS = (
    "tests/attack",
    "tests/conformance/cross",
    "tests/delivery/listeners",
    "tests/private",
    "tests/wire/anypoint",
    "tests/wire/discue",
)
# Each takes half a minute, which the others would wait for at the end.
LONGEST = "tests/attack/every/test_descriptions.py::test_every_request"
# Every process that runs some of these starts a Spark of its own.
SPARK_FOLDER = "tests/lake"
# Where tests are that need Spark.
SPARK_PLACES = (SPARK_FOLDER, "tests/cli")
# Those that have Sparks of their own, and never need the one that the others share: a worker that
# runs them all does not start it. They take it as long as the others take the rest.
APART = (
    "test_pipeline_run.py",
    "test_cluster.py",
    "test_up.py",
    "test_demo.py",
    "test_pipeline_kill.py",
    "test_source_kill.py",
)

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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What will be left out is not loaded either: every worker would load all of it."""
    place, wanted = collection_path.relative_to(config.rootpath).as_posix(), config.option.markexpr
    if wanted == "spark" and collection_path.is_dir() and place.startswith("tests/"):
        return None if place.startswith(SPARK_PLACES) else True
    unwanted = [SPARK_FOLDER] if "not spark" in wanted else []
    unwanted += SLOW_FOLDERS if "not slow" in wanted else ()
    return True if place in unwanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.nodeid.startswith(SPARK_PLACES):
            raise pytest.UsageError(f"{item.nodeid} would not be found by `-m spark`")
        if item.nodeid.startswith(SLOW_FOLDERS):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith(SPARK_FOLDER):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # it tells no types
    """Two workers: one runs what is apart, the other all that shares a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return "apart" if nodeid.partition("::")[0].endswith(APART) else "shared"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    return Scheduling(config, log) if config.option.dist == "loadfile" else None


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
