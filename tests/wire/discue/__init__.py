"""Discue's API from outside."""

import pytest

pytestmark = pytest.mark.slow
