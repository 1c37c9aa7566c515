"""Two dialects over one core: what is done through one, seen through the other."""

import pytest

pytestmark = pytest.mark.slow
