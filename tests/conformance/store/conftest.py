"""A store of each kind, on an event loop that outlives the single call."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from courier.clock import ManualClock
from courier.core.store import Store
from courier.core.types import Listener, Queue
from courier.core.waiters import Waiters
from courier.store.embedded import EmbeddedStore
from courier.store.shared import SharedStore
from tests import postgres
from tests.conformance.store.driver import SEALER, Driver
from tests.conformance.store.reopened import Reopened
from tests.oracle.store import Oracle


async def open_oracle(path: Path) -> Store:
    return Oracle()


async def open_engine(path: Path) -> Store:
    return await EmbeddedStore.open(path, sealer=SEALER)


async def open_engine_with_small_blocks(
    path: Path, waiters: Waiters | None = None
) -> EmbeddedStore:
    """Every edge of a block is met soon, and nothing is found in memory. Every commit is waited for
    on the writer's thread, while further calls come in."""
    return await EmbeddedStore.open(
        path,
        waiters=waiters,
        sealer=SEALER,
        commit_inline_ms_max=0,
        block_messages=3,
        block_cache_bytes=0,
    )


async def open_engine_before_every_verb(path: Path) -> Any:
    return Reopened(path, await open_engine_with_small_blocks(path), open_engine_with_small_blocks)


async def open_engine_in_memory(path: Path) -> Store:
    return await EmbeddedStore.open(None)


async def open_postgres(path: Path) -> Store:
    store = await SharedStore.open(postgres.url_of(path), sealer=SEALER)
    postgres.believe_alone(store)
    return store


async def open_postgres_twice(path: Path) -> Store:
    url = postgres.url_of(path)
    return postgres.InTurn([await SharedStore.open(url, sealer=SEALER) for _ in range(2)])


OPENERS: dict[str, Callable[[Path], Coroutine[Any, Any, Store]]] = {
    "oracle": open_oracle,
    "engine": open_engine,
    "engine-reopened": open_engine_before_every_verb,
    "engine-memory": open_engine_in_memory,
    "postgres": open_postgres,
    "postgres-two": open_postgres_twice,
}
# Disks that differ from the usual one below the engine.
ONE_VALUE = ("engine-memory", "postgres", "postgres-two")

Opener = Callable[[Path], Coroutine[Any, Any, Store]]
# Stores that outlive their process.
ON_DISK: dict[str, Opener] = {"engine": open_engine, "engine-small": open_engine_with_small_blocks}


@pytest.fixture(params=ON_DISK)
def opener(request: pytest.FixtureRequest) -> Opener:
    return ON_DISK[request.param]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every store. Two servers stand for one as well, but for tests marked `one_node`: of hints
    that come at once, and of callers who are served in the order in which they call. Those marked
    `one_process` ask for what a process remembers."""
    if "store" not in metafunc.fixturenames:
        return
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    left_out = {"postgres-two" if "one_node" in marks else "postgres"}
    if "one_process" in marks:
        left_out.add("engine-reopened")
    slow = {name: [pytest.mark.slow] for name in ("postgres", "postgres-two")}
    names = [
        pytest.param(name, marks=slow.get(name, ())) for name in OPENERS if name not in left_out
    ]
    metafunc.parametrize("store", names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every value of a test is for the embedded disk and the oracle. The engine is the same on the
    others, so there one value will do, unless how values are kept is what is asked (`every_value`).
    """
    seen: set[tuple[str, object]] = set()
    more: list[pytest.Item] = []
    for item in items:
        store = item.callspec.params.get("store") if hasattr(item, "callspec") else None
        if store in ONE_VALUE and not item.get_closest_marker("every_value"):
            once = (item.nodeid.partition("[")[0], store)
            if once in seen:
                more.append(item)
            seen.add(once)
    if more:
        config.hook.pytest_deselected(items=more)
        left_out = set(more)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def store(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path
) -> Iterator[Store]:
    async def opened() -> Store:
        return await OPENERS[request.param](tmp_path / "courier.db")

    store = runner.run(opened())
    yield store
    runner.run(store.close())


@pytest.fixture
def driver(store: Store, clock: ManualClock, runner: asyncio.Runner) -> Driver:
    return Driver(store, clock, runner)


@pytest.fixture
def queue(driver: Driver) -> Queue:
    """A queue with the default settings."""
    return driver.queue()


@pytest.fixture
def listener(driver: Driver, queue: Queue) -> Listener:
    """A listener of that queue."""
    return driver.listener(queue)
