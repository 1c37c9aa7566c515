"""Fixtures of the tests of delivery."""

from collections.abc import Iterator

import pytest

from tests.delivery.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver
