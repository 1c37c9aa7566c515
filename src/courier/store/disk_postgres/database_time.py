"""The database's clock, measured against time since boot.

An answer says what the clock was at some moment between question and answer; what came back
fastest of the last answers says it best.
"""

from collections import deque
from typing import Any

from courier.clock import elapsed_ns

SAMPLES = 8
_READ = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class DatabaseTime:
    def __init__(self) -> None:
        # Time from question to answer, and by how much the database's clock was ahead.
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)

    def ahead_ns(self) -> int:
        return min(self._samples)[1]

    def answered(self, database_us: int, *, asked_ns: int) -> None:
        """It was that late when it was asked then and has answered now."""
        took_ns = elapsed_ns() - asked_ns
        self._samples.append((took_ns, database_us * 1_000 - asked_ns - took_ns // 2))

    async def measure(self, connection: Any) -> None:
        """Ask again: this may be another database server than before."""
        asked_ns = elapsed_ns()
        database_us: int = await connection.fetchval(_READ)
        self._samples.clear()
        self.answered(database_us, asked_ns=asked_ns)
