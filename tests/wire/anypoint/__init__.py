"""Anypoint's APIs from outside."""

import pytest

pytestmark = pytest.mark.slow
