"""One tenant with something of every kind, for requests that must change none of it."""

import pytest

from tests.conformance.reach.conftest import world
from tests.conformance.reach.world import Side, World

__all__ = ["world"]


@pytest.fixture(scope="session")
def side(world: World) -> Side:
    return world.side("aimed")


@pytest.fixture(autouse=True)
def watched() -> None:
    """`world` looks at its own log in the end."""
