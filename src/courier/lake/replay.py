"""Messages of the lake, published again as new messages: chosen once, each published once.

The plan of a replay is what was asked for, and the very rows that were chosen then. It lies in the
lake under `_replays`, and is carried out to its end however often that is interrupted. Its rows are
cut into pieces in the order in which they are published; the broker knows each piece by a key, and
how many of its rows it has. Spark chooses, unless that is little; publishing takes none.
"""

import fcntl
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from courier import files, ids
from courier.clock import SystemClock
from courier.lake import archive, bulk, erasure, options, small
from courier.lake.catalog import Lake
from courier.lake.client import Client, Place
from courier.lake.parts import Parts
from courier.lake.schema import ORDER, ORIGIN, PUBLISHED
from courier.lake.storage import filesystem, put
from courier.lake.tables import BadRequest, LakeError

# Small replays do without Spark.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    # What only hands Spark on needs no other name of it.
    Spark: TypeAlias = SparkSession

PIECE_ROWS = 100_000
PAGE_ROWS = 10_000
# As long as the broker remembers how many rows of a key it has.
KEY_MS = 24 * 3_600_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_AGO = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?")
# DuckDB's way into JSON, which Spark's SQL does not have. Texts are passed over.
_ARROW = re.compile(r"'[^']*'|->>")
_UNIT_MS = {"ms": 1, "s": 1_000, None: 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Asked:
    """What a replay is of, as it was written; times are read when the plan is made."""

    queue: str = ""
    since: str = ""
    until: str = ""
    where: str = ""
    into: str = ""
    sets: tuple[str, ...] = ()
    listener: str = ""

    def told(self) -> dict[str, Any]:
        """What was said, for comparing: nothing means the same as before."""
        given = asdict(self)
        given["set"] = list(given.pop("sets"))
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True)
class Chosen:
    """The rows that were chosen, what is published for them, and how much that is."""

    rows: "DataFrame | pa.Table"
    count: int
    bytes: int
    first: datetime | None
    last: datetime | None

    def samples(self) -> list[dict[str, Any]]:
        """The first few, as they would be published."""
        if isinstance(self.rows, pa.Table):
            few: list[dict[str, Any]] = self.rows.slice(0, small.SAMPLES).to_pylist()
            return few
        return [row.asDict() for row in self.rows.orderBy(*ORDER).limit(small.SAMPLES).collect()]


@dataclass(frozen=True)
class ReplayPlan:
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

    def find(self, id: str) -> ReplayPlan | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{id}.json") as file:
                known = json.loads(file.read())
        except FileNotFoundError:
            return None
        several = {name: tuple(known.get(name, ())) for name in ("rows", "files")}
        return ReplayPlan(**{**known, **several})

    def keep(self, plan: ReplayPlan) -> ReplayPlan:
        """From now on the plan is this; not before it is on the disk."""
        put(f"{self._uri}/{plan.id}.json", json.dumps(asdict(plan), indent=2).encode())
        return plan

    def add(self, plan: ReplayPlan, rows: "DataFrame | pa.Table", *, count: int) -> ReplayPlan:
        """Write the plan's rows, as many as there are, and keep it; those here are one piece."""
        self.forget_rows(plan)  # of a run that was killed here before
        folder = f"{self._uri}/{self._place(plan)}"
        if isinstance(rows, pa.Table):
            here = Parts(folder, "piece", rows.schema)
            here.add(rows)
            parts = here.close()
        else:
            from courier.lake.tasks import write_by_tasks

            pieces = max(1, -(-count // self._piece_rows))
            cut = rows.repartitionByRange(pieces, *ORDER).sortWithinPartitions(*ORDER)
            parts = write_by_tasks(cut, folder, "piece")
        sizes, names = (part.rows for part in parts), (part.path for part in parts)
        return self.keep(replace(plan, rows=tuple(sizes), files=tuple(names)))

    def piece(self, plan: ReplayPlan, number: int) -> Iterator[pa.RecordBatch]:
        """What is published of a piece, in its order."""
        place = self._place(plan)
        # A plan of an earlier release does not name its files; its place has no others.
        name = plan.files[number] if plan.files else self._written(place)[number]
        with self._files.open_input_file(f"{self._root}/{place}/{name}") as source:
            file = pq.ParquetFile(source)
            names = [each for each in PUBLISHED if each in file.schema_arrow.names]
            yield from file.iter_batches(PAGE_ROWS, columns=names)

    def forget_rows(self, plan: ReplayPlan) -> None:
        """Once they are published nobody needs them here: the lake has them anyway."""
        with suppress(FileNotFoundError):
            self._files.delete_dir(f"{self._root}/{plan.id}")

    def _place(self, plan: ReplayPlan) -> str:
        return f"{plan.id}/{plan.key}"

    def _written(self, place: str) -> list[str]:
        """Spark numbers files by partition, and a partition is a piece."""
        found = self._files.get_file_info(pafs.FileSelector(f"{self._root}/{place}"))
        return sorted(each.base_name for each in found if each.path.endswith(".parquet"))


def choose(
    spark: "SparkSession", lake: Lake, asked: Asked, *, tenant: str, replay: str, now_ms: int
) -> Chosen:
    """Raises BadRequest for what cannot be chosen, or not published."""
    from courier.lake import selection

    if lake.messages.open() is None:
        raise LakeError(
            f"there is no table 'messages' in {lake.root}: `courier pipeline run` makes it"
        )
    chosen = selection.choose(
        lake.messages,
        spark,
        tenant=tenant,
        queue=asked.queue,
        since_ms=since_ms(asked, now_ms=now_ms),
        until_ms=until_ms(asked, now_ms=now_ms),
        where=asked.where,
    )
    return measure(chosen, asked, replay=replay)


def check_language(asked: Asked) -> None:
    """Raises BadRequest for a condition as `lake query` takes it, before Spark starts."""
    if "->>" in _ARROW.findall(asked.where):
        raise BadRequest(
            "--where: '->>' is known to `lake query` and `lake erase`; this condition is Spark's "
            "SQL, in which data->>'total' is data:total::string"
        )


def choose_few(
    lake: Lake, asked: Asked, *, tenant: str, replay: str, now_ms: int, only_samples: bool
) -> Chosen | None:
    """The same without Spark; None if there are too many, or only Spark understands what is asked.

    With `only_samples` there may be any number, of which the first few are at hand.
    """
    if asked.sets or asked.listener or lake.messages.open() is None:
        return None
    found = small.choose(
        lake,
        tenant=tenant,
        queue=asked.queue,
        since_ms=since_ms(asked, now_ms=now_ms),
        until_ms=until_ms(asked, now_ms=now_ms),
        where=asked.where,
        replay=replay,
        only_samples=only_samples,
    )
    return None if found is None else Chosen(*found)


def measure(chosen: "DataFrame", asked: Asked, *, replay: str) -> Chosen:
    """How much the chosen messages are, and what is published for them."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    from courier.lake import selection

    sets = selection.parse_sets(list(asked.sets))
    rows = selection.publishable(chosen, sets=sets, replay=replay, listener=asked.listener)
    totals = rows.agg(
        functions.count("*"),
        functions.sum(functions.length("body")),
        functions.min("published_at"),
        functions.max("published_at"),
        functions.count_if(functions.col("body").isNull()),
    )
    try:
        ((number, size, first, last, empty),) = totals.collect()
    except PySparkException as error:
        raise BadRequest(f"--where or --set: {selection.sentence(error)}") from error
    if empty:
        raise BadRequest(
            f"--set: 'body' is null for {empty} of the {number} chosen messages; bodies that are "
            'sealed or no text cannot be read here: leave them out with --where "body is not null"'
        )
    return Chosen(rows, number, size or 0, small.utc(first), small.utc(last))


def find(plans: Plans, id: str, asked: Asked) -> ReplayPlan | None:
    """The plan with this id, if it was made before, and for the same."""
    plan = plans.find(id)
    if plan is None:
        return None
    for name, value in asked.told().items():
        if plan.asked.get(name, "") != value:
            raise BadRequest(
                f"replay '{id}' was begun with another --{name}: "
                f"{plan.asked.get(name) or 'none'!r}; continue it with --id alone, or use "
                "another id"
            )
    return plan


def make(plans: Plans, id: str, asked: Asked, chosen: Chosen) -> ReplayPlan:
    """Choose for good: what is chosen now is what will be published."""
    plan = ReplayPlan(
        id=id,
        key=ids.new_id(),
        asked=asked.told(),
        queue=asked.into or asked.queue,
        listener=asked.listener,
        rows=(),
        bytes=chosen.bytes,
    )
    return plans.add(plan, chosen.rows, count=chosen.count)


def publish(
    plans: Plans,
    plan: ReplayPlan,
    place: Place,
    *,
    rate: int | None = None,
    report: Callable[[int], None] = lambda rows: None,
) -> ReplayPlan:
    """Publish what of the plan is not published yet; `report` is told how many rows are.

    It takes no Spark: rows come one after the other, in their order, under the key of their piece.
    """
    clock = SystemClock()
    while not plan.done:
        if plan.began_ms is None:
            plan = plans.keep(replace(plan, began_ms=clock.now_ms()))
        elif clock.now_ms() - plan.began_ms > KEY_MS:
            _still_known(plan, place)
        _publish_piece(plans, plan, _options(plan, place, rate), report)
        plan = plans.keep(replace(plan, published=plan.published + 1, began_ms=None))
    report(plan.total)
    plans.forget_rows(plan)
    return plan


def _publish_piece(
    plans: Plans, plan: ReplayPlan, asked: options.Options, report: Callable[[int], None]
) -> None:
    run, before = plan.write_id(plan.published), plan.before(plan.published)
    count = bulk.publish(
        asked,
        run,
        plans.piece(plan, plan.published),
        partition=0,
        report=lambda rows: report(before + rows),
    )
    bulk.none_beside(asked, run, rows=count)


def _options(plan: ReplayPlan, place: Place, rate: int | None) -> options.Options:
    given = {"url": place.url, "token": place.token, "tenant": place.tenant, "queue": plan.queue}
    if plan.listener:
        given["listener"] = plan.listener
    if rate is not None:
        given["rowsPerSecond"] = str(rate)
    return options.parse(given, options.BATCH_WRITE)


def check(place: Place, queue: str) -> None:
    """See that broker and queue are there, before anything is begun."""
    with Client(place.first_asked()) as broker:
        broker.published(queue, once="check")


def lag(lake: Lake, place: Place, asked: Asked, *, now_ms: int) -> int:
    """How many events that may be about chosen messages are not in `messages` yet."""
    with Client(place.first_asked()) as broker:
        head = broker.head(at_ms=until_ms(asked, now_ms=now_ms))
    if lake.messages.epoch not in ("", head.epoch):
        return 0  # another store than the one that the lake was made of
    return max(0, head.last - archive.last(lake.messages))


def erased(lake: Lake, asked: Asked, *, tenant: str, now_ms: int) -> int:
    """How many messages of the queue and time were erased, and cannot be published any more."""
    low, high = since_ms(asked, now_ms=now_ms), until_ms(asked, now_ms=now_ms)
    return erasure.count(lake, tenant=tenant, queue=asked.queue, since_ms=low, until_ms=high)


def since_ms(asked: Asked, *, now_ms: int) -> int:
    return instant(asked.since, now_ms=now_ms) if asked.since else 0


def until_ms(asked: Asked, *, now_ms: int) -> int:
    return instant(asked.until, now_ms=now_ms) if asked.until else now_ms


def new_id() -> str:
    return ids.new_id()[-12:]


def now_ms() -> int:
    return SystemClock().now_ms()


def instant(text: str, *, now_ms: int) -> int:
    """A time such as 2026-01-31T12:00:00Z, or so long ago: 30s, 5m, 2h, 7d. Raises BadRequest."""
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"'{text[:100]}' is neither a time such as 2026-01-31T12:00:00Z nor so long ago: "
            "30s, 5m, 2h or 7d"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1_000))


def _still_known(plan: ReplayPlan, place: Place) -> None:
    """Refuse to go on with a piece that the broker may have forgotten."""
    with Client(place) as broker:
        if broker.published(plan.queue, once=f"{plan.write_id(plan.published)}/0"):
            return
    first = plan.before(plan.published)
    raise LakeError(
        f"replay '{plan.id}' was interrupted more than a day ago, and the broker has forgotten "
        f"which of its messages {first + 1} to {first + plan.rows[plan.published]} it has: look "
        f"in queue '{plan.queue}' for the header {ORIGIN[0]} before you replay them "
        "under another id"
    )
