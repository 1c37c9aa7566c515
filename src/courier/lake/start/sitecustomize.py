"""What Python does first in the workers of a local Spark: it looks for pyspark as it is installed.

Spark would have them take it from an archive of sources, which every one of them compiles again.
"""

import importlib
import sys
from contextlib import suppress
from pathlib import Path

HERE = str(Path(__file__).parent)
ARCHIVES = "/pyspark/python/lib/"

sys.path[:] = [path for path in sys.path if path != HERE and ARCHIVES not in path]
# One of the user's own has its turn, too.
sys.modules.pop("sitecustomize", None)
with suppress(ModuleNotFoundError):
    importlib.import_module("sitecustomize")
