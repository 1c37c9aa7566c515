"""An Iceberg catalog beside the Delta logs, for tools that read Iceberg: the same files, no copies.

Every table of the lake has an Iceberg table that names the files which its Delta log has now. The
values of partition columns, which no file holds, are in Iceberg's manifests, as its specification
has it for files of Hive. `sync` may run at any time and as often as one likes: what is added to an
Iceberg table, and what goes out of it, is one snapshot of it. Only the last snapshot is kept: files
of earlier ones are removed by compaction, erasure and `vacuum`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from courier import files
from courier.clock import SystemClock
from courier.lake.catalog import Lake
from courier.lake.files import File
from courier.lake.storage import filesystem, iceberg_options, is_elsewhere
from courier.lake.tables import LakeError, Table

# An optional package, and slow to load.
if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table import Table as IcebergTable

FOLDER = "_iceberg"
FILE = "catalog.db"
NAME = "courier"
# How long earlier metadata is kept for readers that have begun with it.
KEPT = timedelta(hours=1)
TRIES = 5
_PARTITION_ID = 1000
_EPOCH_DAY = date(1970, 1, 1)
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}


@dataclass(frozen=True)
class Synced:
    """Files that an Iceberg table gained and lost, and the rows it has."""

    added: int
    removed: int
    rows: int


def default_file(lake: Lake) -> Path:
    """Where the catalog of a lake on a disk is. That of a bucket is where the user wants it."""
    if is_elsewhere(lake.root):
        raise LakeError("the catalog of a lake in a bucket is a file on a disk: name it with --out")
    return Path(lake.root, FOLDER, FILE)


def sync(lake: Lake, file: Path) -> dict[str, Synced]:
    """Make the catalog, or bring it in step with the lake."""
    files.make_directory(file.parent)
    catalog = opened(lake, file)
    catalog.create_namespace_if_not_exists(NAME)
    return {
        table.name: _tried(catalog, table, lake)
        for table in lake.tables
        if table.open() is not None
    }


def refresh(lake: Lake) -> None:
    """Bring the lake's own catalog in step, if there is one and this process can."""
    if is_elsewhere(lake.root) or not default_file(lake).exists():
        return
    try:
        sync(lake, default_file(lake))
    except ModuleNotFoundError:
        return


def opened(lake: Lake, file: Path) -> "Catalog":
    """As any user of the catalog opens it."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        NAME,
        uri=f"sqlite:///{file.resolve()}",
        warehouse=f"{_address(lake.root)}/{FOLDER}",
        **iceberg_options(lake.root),
    )


def _address(path: str) -> str:
    return path if is_elsewhere(path) else f"file://{path}"


def _tried(catalog: "Catalog", table: Table, lake: Lake) -> Synced:
    """Another process may do the same meanwhile: then what it left is looked at."""
    from pyiceberg.exceptions import CommitFailedException

    for left in reversed(range(TRIES)):
        try:
            return _sync(catalog, table, lake)
        except CommitFailedException as error:
            if not left:
                raise LakeError(f"the catalog is being written by others: {error}") from error
    raise AssertionError


def _sync(catalog: "Catalog", table: Table, lake: Lake) -> Synced:
    made = _table(catalog, table, lake)
    there = {task.file.file_path: task.file for task in made.scan().plan_files()}
    wanted = {f"{_address(table.uri)}/{file.path}": file for file in table.files()}
    added = [path for path in wanted if path not in there]
    removed = [path for path in there if path not in wanted]
    if added or removed:
        with made.transaction() as transaction, transaction.update_snapshot().overwrite() as step:
            for path in removed:
                step.delete_data_file(there[path])
            for path in added:
                step.append_data_file(_data_file(made, table, path, wanted[path]))
        _forget(made)
    return Synced(len(added), len(removed), sum(file.rows for file in wanted.values()))


def _table(catalog: "Catalog", table: Table, lake: Lake) -> "IcebergTable":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    name, columns = (NAME, table.name), _columns(table)
    if not catalog.table_exists(name):
        (by,) = table.partition_by
        field = columns.find_field(by)
        spec = PartitionSpec(PartitionField(field.field_id, _PARTITION_ID, IdentityTransform(), by))
        names = {"schema.name-mapping.default": columns.name_mapping.model_dump_json()}
        catalog.create_table(
            name,
            columns,
            location=f"{_address(lake.root)}/{FOLDER}/{table.name}",
            partition_spec=spec,
            properties={**_PROPERTIES, **names},
        )
    made = catalog.load_table(name)
    if not set(columns.column_names) <= set(made.schema().column_names):
        with made.update_schema() as update:
            update.union_by_name(columns)
    return made


def _columns(table: Table) -> "IcebergSchema":
    from pyiceberg import types
    from pyiceberg.schema import Schema

    kinds = {
        "string": types.StringType(),
        "bigint": types.LongType(),
        "int": types.IntegerType(),
        "timestamp": types.TimestamptzType(),
        "date": types.DateType(),
        "binary": types.BinaryType(),
        "double": types.DoubleType(),
    }
    # No file holds a column of the partition, so readers would miss it if it were required.
    required = {*table.schema.required} - {*table.partition_by}
    return Schema(
        *(
            types.NestedField(number, name, kinds[kind], required=name in required)
            for number, (name, kind) in enumerate(table.schema.kinds.items(), 1)
        )
    )


def _data_file(made: "IcebergTable", table: Table, path: str, file: File) -> "DataFile":
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    (by,) = table.partition_by
    value: Any = file.partition[by]
    if value is not None and table.schema.kinds[by] == "date":
        value = (date.fromisoformat(value) - _EPOCH_DAY).days
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        lower_bounds=_bounds(made, file.low),
        upper_bounds=_bounds(made, file.high),
        spec_id=made.metadata.default_spec_id,
    )


def _bounds(made: "IcebergTable", values: Mapping[str, Any]) -> dict[int, bytes]:
    """Of the columns that files are chosen by, so that others are left unread."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import PrimitiveType

    found = {}
    for name, value in values.items():
        field = made.schema().find_field(name)
        if isinstance(field.field_type, PrimitiveType):
            found[field.field_id] = to_bytes(field.field_type, value)
    return found


def _forget(made: "IcebergTable") -> None:
    """Keep the last snapshot alone, and no metadata that only earlier ones need."""
    current = made.current_snapshot()
    assert current is not None
    earlier = [each.snapshot_id for each in made.snapshots() if each != current]
    if earlier:
        made.maintenance.expire_snapshots().by_ids(earlier).commit()
    system, folder = filesystem(made.location().removeprefix("file://") + "/metadata")
    needed = {made.metadata_location, current.manifest_list}
    needed |= {each.metadata_file for each in made.metadata.metadata_log}
    needed |= {each.manifest_path for each in current.manifests(made.io)}
    names = {os.path.basename(each) for each in needed}
    before = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC) - KEPT
    for info in system.get_file_info(pafs.FileSelector(folder)):
        if info.base_name not in names and info.mtime < before:
            system.delete_file(info.path)
