"""What others on the machine can see: a server or a command each."""

import pytest

pytestmark = pytest.mark.slow
