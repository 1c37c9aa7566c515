"""The plan of a replay: what was asked for, and the very rows that were chosen then.

It is made once, lies in the lake under `_replays`, and is carried out to its end however often
that is interrupted. Its rows are cut into pieces in the order in which they are published; the
broker knows each piece by a key, and how many of its rows it has.
"""

import fcntl
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from courier import files
from courier.lake.parts import Parts
from courier.lake.storage import filesystem, put
from courier.lake.tables import BadRequest, LakeError

# Small replays do without Spark.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE_ROWS = 100_000
# Who replays wants the order in which they were published; no two messages are equal in these.
ORDER = ("published_at", "queue_id", "seq")
# Headers that tell where a replayed message comes from, and for whom alone it is.
MESSAGE, LISTENER = "courier-replay-message", "courier-replay-listener"
ORIGIN = ("courier-replay-id", "courier-replay-queue", MESSAGE, LISTENER)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Plan:
    """`rows` and `files` say of each piece how many rows it has, and in which file.

    `published` pieces are done with.

    `key` is the plan's own: another plan with the same id publishes other rows.
    `began_ms` is when the piece in work was begun.
    """

    id: str
    key: str
    asked: dict[str, Any]
    queue: str
    listener: str
    rows: tuple[int, ...]
    bytes: int
    published: int = 0
    began_ms: int | None = None
    files: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.rows)

    @property
    def done(self) -> bool:
        return self.published == len(self.rows)

    def before(self, piece: int) -> int:
        """How many rows come before those of a piece."""
        return sum(self.rows[:piece])

    def write_id(self, piece: int) -> str:
        return f"replay:{self.key}:{piece}"


class Plans:
    """The plans of one lake."""

    def __init__(self, root: str, *, piece_rows: int = PIECE_ROWS) -> None:
        self._piece_rows = piece_rows
        self._uri = f"{root.rstrip('/')}/_replays"
        self._local = "://" not in root
        self._files, self._root = filesystem(self._uri)

    @contextmanager
    def alone(self, id: str) -> Iterator[None]:
        """Nobody else on this machine works on the plan meanwhile."""
        if not _ID.fullmatch(id):
            raise BadRequest(
                f"--id is 1 to 64 letters, digits, dashes and underscores, not '{id[:100]}'"
            )
        if not self._local:
            yield
            return
        file = Path(self._uri, f"{id}.lock")
        files.make_directory(file.parent)
        files.create(file)
        with file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeError(f"replay '{id}' is being run by another process") from None
            yield

    def find(self, id: str) -> Plan | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{id}.json") as file:
                known = json.loads(file.read())
        except FileNotFoundError:
            return None
        several = {name: tuple(known.get(name, ())) for name in ("rows", "files")}
        return Plan(**{**known, **several})

    def keep(self, plan: Plan) -> Plan:
        """From now on the plan is this; not before it is on the disk."""
        put(f"{self._uri}/{plan.id}.json", json.dumps(asdict(plan), indent=2).encode())
        return plan

    def add(self, plan: Plan, rows: "DataFrame", *, count: int) -> Plan:
        """Write the plan's rows, as many as there are, and keep it."""
        from courier.lake.tasks import write_by_tasks

        self.forget_rows(plan)  # of a run that was killed here before
        pieces = max(1, -(-count // self._piece_rows))
        cut = rows.repartitionByRange(pieces, *ORDER).sortWithinPartitions(*ORDER)
        parts = write_by_tasks(cut, f"{self._uri}/{self._place(plan)}", "piece")
        found = tuple(part.rows for part in parts)
        names = tuple(part.path for part in parts)
        return self.keep(replace(plan, rows=found, files=names))

    def add_few(self, plan: Plan, rows: pa.Table) -> Plan:
        """The same with rows that are here, in their order and in one piece."""
        self.forget_rows(plan)
        parts = Parts(f"{self._uri}/{self._place(plan)}", "piece", rows.schema)
        parts.add(rows)
        found = parts.close()
        sizes, names = (part.rows for part in found), (part.path for part in found)
        return self.keep(replace(plan, rows=tuple(sizes), files=tuple(names)))

    def piece_here(self, plan: Plan, number: int) -> pa.Table:
        """The rows of a piece, in their order, without Spark."""
        place, name = self._named(plan, number)
        with self._files.open_input_file(f"{self._root}/{place}/{name}") as source:
            rows = pq.ParquetFile(source).read()
        return rows.sort_by([(column, "ascending") for column in ORDER])

    def _named(self, plan: Plan, number: int) -> tuple[str, str]:
        place = self._place(plan)
        # A plan of an earlier release does not name its files; its place has no others.
        return place, plan.files[number] if plan.files else self._written(place)[number]

    def piece(self, spark: "SparkSession", plan: Plan, number: int) -> "DataFrame":
        """The rows of a piece."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from courier.lake.tasks import read_by_tasks

        place, name = self._named(plan, number)
        with self._files.open_input_file(f"{self._root}/{place}/{name}") as source:
            columns = from_arrow_schema(pq.read_schema(source))
        return read_by_tasks(spark, f"{self._uri}/{place}", [[name]], columns)

    def forget_rows(self, plan: Plan) -> None:
        """Once they are published nobody needs them here: the lake has them anyway."""
        with suppress(FileNotFoundError):
            self._files.delete_dir(f"{self._root}/{plan.id}")

    def _place(self, plan: Plan) -> str:
        return f"{plan.id}/{plan.key}"

    def _written(self, place: str) -> list[str]:
        """Spark numbers files by partition, and a partition is a piece."""
        found = self._files.get_file_info(pafs.FileSelector(f"{self._root}/{place}"))
        return sorted(each.base_name for each in found if each.path.endswith(".parquet"))
