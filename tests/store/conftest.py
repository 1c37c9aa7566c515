"""The stores on disk, one at a time."""

import pytest

from courier.store.engine import EngineStore
from courier.store.sqlite import SqliteStore

StoreClass = type[SqliteStore] | type[EngineStore]


@pytest.fixture(params=[SqliteStore, EngineStore])
def store_class(request: pytest.FixtureRequest) -> StoreClass:
    found: StoreClass = request.param
    return found
