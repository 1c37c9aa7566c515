"""Journals of earlier releases, whose times step back with the clock; lakes hold such, too."""

from typing import Any

from courier.core.store import Store
from courier.store.embedded import EmbeddedStore
from tests.oracle.journal import Journal
from tests.oracle.store import Oracle


class OlderJournal(Journal):
    def append(self, *event: Any) -> None:
        self.last_ms = 0
        super().append(*event)


def older_store() -> Oracle:
    store = Oracle()
    store._journal.__class__ = OlderJournal
    return store


def step_back(store: Store) -> None:
    """Let the next events be earlier than the last ones."""
    assert isinstance(store, EmbeddedStore)
    store.book._runs_ms = 0
