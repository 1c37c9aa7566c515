"""`courier` that is killed at a chosen point: python -m tests.lake.killed POINT TABLE ARGUMENTS.

`written`: the files of a batch are there, and not committed. `committed`: they just were. `told`:
all tables have the batch, or only `events`, and Spark's checkpoint does not know of it.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from courier.cli.main import main
from courier.lake.client import Client
from courier.lake.derived import Derived
from courier.lake.tables import Table


def die_after(owner: type, name: str, wanted: Callable[..., bool]) -> None:
    real = getattr(owner, name)

    def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(self, *args, **kwargs)
        if wanted(self, *args, **kwargs):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def arm(point: str, table: str) -> None:
    if point == "written":
        die_after(Table, "write", lambda self, *_, **__: self.name == table)
    elif point == "committed":
        die_after(Table, "commit", lambda self, *_, **__: self.name == table)
    elif table == "events":
        die_after(Client, "commit", lambda _self, _name, offset: offset > 0)
    else:
        die_after(Derived, "catch_up", lambda *_, **__: True)


if __name__ == "__main__":
    arm(sys.argv[1], sys.argv[2])
    sys.exit(main(sys.argv[3:]))
