"""Listeners of a running server: seconds of waiting each."""

import pytest

pytestmark = pytest.mark.slow
