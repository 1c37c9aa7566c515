"""What Python does first in the workers of a local Spark: it looks for pyspark as it is installed.

Spark would have them take it from an archive of sources, which every one of them compiles again.
And what workers have in common is loaded once, by the process that forks them.
"""

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

HERE = str(Path(__file__).parent)
ARCHIVES = "/pyspark/python/lib/"
FORKS = ["-m", "courier.lake.daemon"]

sys.path[:] = [path for path in sys.path if path != HERE and ARCHIVES not in path]
# pyarrow loads numpy, and that a library of which each thread spins for as long as a third of all
# that a worker does until it works. Nobody here has use for the threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# One of the user's own has its turn, too; where there is none, this one stays what it is.
_own = sys.modules.pop(__name__)
try:
    importlib.import_module(__name__)
except ModuleNotFoundError:
    sys.modules[__name__] = _own
if sys.orig_argv[1:3] == FORKS:
    # Spark leaves this to each worker, because some of it starts threads, and a fork takes none
    # along. With this and the setting above there are none.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for _module in (*sys.orig_argv[3:4], "pyarrow", "courier.lake.source"):
        # What needs a missing module reports it.
        with suppress(ImportError):
            importlib.import_module(_module)
