"""The stores on disk, one at a time."""

import pytest

from courier.store.embedded import EmbeddedStore
from courier.store.sqlite import SqliteStore

StoreClass = type[SqliteStore] | type[EmbeddedStore]


@pytest.fixture(params=[SqliteStore, EmbeddedStore])
def store_class(request: pytest.FixtureRequest) -> StoreClass:
    found: StoreClass = request.param
    return found
