"""Files of a table as Spark's tasks write and read them: `format("courier_lake")`.

Rows of a DataFrame come to a task from Java. Events of the journal need not: a task reads pages
from the broker and writes them as they come, which takes half the time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from courier.lake import client
from courier.lake.client import Place, Slice
from courier.lake.options import PAGE_ROWS
from courier.lake.parts import DATA, Part, Parts, fitted
from courier.lake.schema import EVENTS_TABLE
from courier.lake.storage import filesystem, put

FORMAT = "courier_lake"
READ_ROWS = 16_384


@dataclass(frozen=True)
class JournalPages:
    """Events of the journal that tasks read themselves."""

    spark: SparkSession
    place: Place
    part: Slice


@dataclass
class Finished(WriterCommitMessage):
    """What one task wrote. Those of tasks that failed are reported to nobody."""

    parts: list[Part]


class PartsWriter(DataSourceArrowWriter):
    """Writes rows into files of a table, then lists them for the commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._uri = options["path"]
        self._name = options["name"]
        self._partition_by = json.loads(options["partitionby"])
        self._rows_max = json.loads(options["rowsmax"])
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        parts = Parts(
            self._uri,
            self._name,
            self._schema,
            partition_by=self._partition_by,
            rows_max=self._rows_max,
        )
        for batch in iterator:
            parts.add(pa.Table.from_batches([batch]))
        return Finished(parts.close())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [part for each in messages if isinstance(each, Finished) for part in each.parts]
        content = json.dumps([asdict(part) for part in found]).encode()
        put(f"{self._uri}/{_list(self._name)}", content)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written belongs to no table, and goes with the next vacuum."""


def write_by_tasks(
    rows: DataFrame,
    uri: str,
    name: str,
    *,
    partition_by: Sequence[str] = (),
    rows_max: int | None = None,
) -> list[Part]:
    """Have Spark's tasks write rows; the files are in the order of Spark's partitions."""
    (
        rows.write.format(FORMAT)
        .option("path", uri)
        .option("name", name)
        .option("partitionBy", json.dumps(list(partition_by)))
        .option("rowsMax", json.dumps(rows_max))
        .option("columns", rows.schema.json())
        .mode("append")
        .save()
    )
    return take(uri, name)


def copy_by_tasks(pages: JournalPages, uri: str, name: str, *, files_max: int) -> list[Part]:
    """Have Spark's tasks write pages of the journal, each a range of offsets, in their order."""
    place, part = pages.place, pages.part
    slices = [(each.after, each.upto) for each in client.split(part, files_max)]
    made = (
        pages.spark.read.format(FORMAT)
        .schema("part string")
        .option("path", uri)
        .option("name", name)
        .option("url", place.url)
        .option("token", place.token)
        .option("awaySeconds", place.away_s_max)
        .option("epoch", part.epoch)
        .option("slices", json.dumps(slices))
        .load()
    )
    return [Part(**json.loads(row["part"])) for row in made.collect()]


def read_by_tasks(
    spark: SparkSession, uri: str, tasks: Sequence[Sequence[str]], schema: StructType
) -> DataFrame:
    """Have Spark's tasks read files, each task some of them."""
    reader = spark.read.format(FORMAT).option("path", uri)
    return reader.option("files", json.dumps(tasks)).schema(schema).load()


def take(uri: str, name: str) -> list[Part]:
    """The files that a write under this name has left, each once."""
    system, root = filesystem(uri)
    path = f"{root}/{_list(name)}"
    with system.open_input_stream(path) as file:
        found = json.loads(file.read())
    system.delete_file(path)
    return [Part(**each) for each in found]


def _list(name: str) -> str:
    return f"{DATA}/{name}.json"


class PartsReader(DataSourceReader):
    """Reads files of a table that Spark itself has no file system for."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._uri = options["path"]
        self._tasks: list[list[str]] = json.loads(options["files"])
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        system, root = filesystem(self._uri)
        for path in partition.value:
            with system.open_input_file(f"{root}/{path}") as source:
                file = pq.ParquetFile(source, page_checksum_verification=True)
                names = [each for each in self._schema.names if each in file.schema_arrow.names]
                for batch in file.iter_batches(READ_ROWS, columns=names):
                    yield from fitted(pa.Table.from_batches([batch]), self._schema).to_batches()


class PagesCopier(DataSourceReader):
    """Writes slices of the journal into files of a table; a row for each file tells of it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._uri, self._name = options["path"], options["name"]
        away_s_max = float(options["awayseconds"])
        self._place = Place(options["url"], options["token"], away_s_max=away_s_max)
        self._slices = [Slice(options["epoch"], *each) for each in json.loads(options["slices"])]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in self._slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        parts = Parts(self._uri, self._name, EVENTS_TABLE.arrow(), partition_by=["date"])
        for page in client.read(self._place, partition.value, rows=PAGE_ROWS):
            # Executors need not have DuckDB: this is what `to_date(at)` gives.
            days = page.column("at").cast(pa.date32())
            parts.add(pa.Table.from_batches([page]).append_column("date", days))
        told = [json.dumps(asdict(part)) for part in parts.close()]
        yield pa.RecordBatch.from_pydict({"part": pa.array(told, pa.string())})


class LakeFiles(DataSource):
    """`format("courier_lake")`: files of one table. Not for users: see `courier.lake.read`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["columns"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        if "slices" in self.options:
            return PagesCopier(self.options)
        return PartsReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return PartsWriter(self.options, schema)
