"""Settings over a store, at the time of a clock that moves when told to."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from courier.clock import ManualClock
from courier.core.admin import Admin
from courier.core.limits import Limits
from courier.core.records import decided
from courier.core.types import Actor, AnyRecord
from tests.core import tenants
from tests.oracle.store import Oracle

T = TypeVar("T")

TENANT = "c0" + "7" * 30
OTHER = "c0" + "8" * 30
CALLER = Actor("caller", "test")


class CoreDesk:
    """A test module's own `Desk` says what is done there."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.store = Oracle()
        self.store.records.apply(puts=tenants(TENANT, OTHER))
        self.clock = ManualClock()
        self.restart()

    def restart(self) -> None:
        """Forget what is not in the store."""
        self.admin = Admin(self.store, self.clock, Limits())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def put(self, *records: AnyRecord) -> None:
        now_ms = self.clock.now_ms()
        self.run(self.store.change(decided(puts=records), actor=CALLER, now_ms=now_ms))


@pytest.fixture
def desk(request: pytest.FixtureRequest) -> Iterator[CoreDesk]:
    """The `Desk` of the test's module."""
    with asyncio.Runner() as runner:
        yield request.module.Desk(runner)
