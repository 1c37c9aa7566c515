"""The lake, and what else starts a Spark."""

import pytest

pytestmark = pytest.mark.spark
