"""Attacks: thousands of requests each."""

import pytest

pytestmark = pytest.mark.slow
