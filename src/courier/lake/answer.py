"""One question to the lake, in a process of its own: `python -m courier.lake.answer`.

It gets a line of JSON on its standard input and writes one to its standard output. It ends after
TIME_S_MAX, above MEMORY_BYTES_MAX, and as soon as its standard input is closed, whatever DuckDB is
doing: who asked is gone then.
"""

import json
import os
import resource
import sys
import threading
import time
from base64 import b64encode
from datetime import datetime
from typing import Any

from courier.lake import query
from courier.lake.catalog import Lake
from courier.lake.tables import LakeError

TIME_S_MAX = 30.0
MEMORY_BYTES_MAX = 512 << 20
# What DuckDB takes for itself; the rest is the interpreter's and Arrow's.
_SETTINGS = ("SET memory_limit = '256MB'", "SET threads = 1")
# Messages that a question names by `queue_id` and `seq`, whole; not those that were erased.
_MESSAGES = """SELECT m.queue_id, m.queue, m.seq, m.message_id, m.size, m.content_type, m.sealed,
  epoch_ms(m.published_at) AS published_ms, m.bytes AS body, m.headers, m."group"
FROM messages AS m JOIN (SELECT DISTINCT queue_id, seq FROM (
{sql}
)) USING (queue_id, seq) WHERE m.bytes IS NOT NULL ORDER BY m.published_at, m.queue_id, m.seq"""
_WATCH_S = 0.05
# ru_maxrss is in bytes there, elsewhere in units of 1,024.
_UNIT = 1 if sys.platform == "darwin" else 1_024


def main() -> None:
    begun = time.monotonic()
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_without_asker, daemon=True).start()
    threading.Thread(target=_end_beyond_limits, args=(begun,), daemon=True).start()
    try:
        answer = _answer(asked)
    except LakeError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def _end_without_asker() -> None:
    sys.stdin.read()
    os._exit(1)


def _end_beyond_limits(begun: float) -> None:
    while True:
        time.sleep(_WATCH_S)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
        if time.monotonic() - begun > TIME_S_MAX:
            _give_up(f"it took longer than {TIME_S_MAX:.0f} s")
        if used > MEMORY_BYTES_MAX:
            _give_up(f"it took more than {MEMORY_BYTES_MAX >> 20} MiB of memory")


def _give_up(why: str) -> None:
    """At once: the other thread may be deep in DuckDB."""
    os.write(1, json.dumps({"error": f"the question was stopped: {why}"}).encode())
    os._exit(0)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    lake = Lake(asked["root"])
    if not asked["sql"]:
        return {"tables": {table.name: table.schema.names for table in lake.tables}}
    if lake.events.open() is None:
        raise LakeError("the lake has no events yet")
    whole = asked.get("messages", False)
    sql = _MESSAGES.format(sql=asked["sql"].strip().rstrip(";")) if whole else asked["sql"]
    found = query.ask(lake, sql, limit=asked["limit"], tenant=asked["tenant"], settings=_SETTINGS)
    if whole:
        return {"rows": [[_carried(value) for value in row] for row in found.rows],
                "columns": [*found.columns], "more": found.more}  # fmt: skip
    kinds = [_kind([row[place] for row in found.rows]) for place in range(len(found.columns))]
    rows = [[query.plain(value) for value in row] for row in found.rows]
    return {"columns": [*found.columns], "kinds": kinds, "rows": rows, "more": found.more}


def _carried(value: Any) -> Any:
    """Bytes as they are, in base64; all else as it is shown."""
    return b64encode(value).decode() if isinstance(value, bytes) else query.plain(value)


def _kind(values: list[Any]) -> str:
    """What a chart makes of a column: a time, a number or neither."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, datetime) for value in known):
        return "time"
    plain = [query.plain(value) for value in known]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in plain)
    return "number" if known and numbers else ""


if __name__ == "__main__":
    main()
