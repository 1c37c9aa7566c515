"""The Parquet files that a table is made of, and what is known of each without reading it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from courier.lake.parts import Part


@dataclass(frozen=True)
class File:
    """One data file of a table. `low` and `high` bound its columns, as stats write them."""

    path: str
    rows: int
    size: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Any]
    high: Mapping[str, Any]

    def meets(self, column: str, low: Any, high: Any) -> bool:
        """Whether rows with a value from `low` to `high` may be in it."""
        if column not in self.low or column not in self.high:
            return True
        return bool(self.low[column] <= high and self.high[column] >= low)


class Written:
    """Files of a table that are not yet part of it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.rows = sum(part.rows for part in parts)
        self._stats = [part.stats for part in parts]
        self.actions = [
            AddAction(
                path=part.path,
                size=part.size,
                partition_values=part.partition,
                modification_time=part.at_ms,
                data_change=True,
                stats=json.dumps(part.stats),
            )
            for part in parts
        ]

    def range(self, column: str) -> tuple[Any, Any]:
        """The least and the greatest value of a column of numbers."""
        return (
            min(stats["minValues"][column] for stats in self._stats),
            max(stats["maxValues"][column] for stats in self._stats),
        )


def removed(file: File, at_ms: int, *, data_change: bool) -> RemoveAction:
    """What takes a file out of its table."""
    return RemoveAction(
        path=file.path,
        data_change=data_change,
        deletion_timestamp=at_ms,
        size=file.size,
        partition_values=dict(file.partition),
    )


def adds_of(table: DeltaTable) -> pa.Table:
    """What the log says of each file of a table as it is open."""
    return pa.table(table.get_add_actions(flatten=False))


def files_in(
    adds: pa.Table,
    *,
    partition: str | None = None,
    meets: tuple[str, Any, Any] | None = None,
) -> list[File]:
    """All of them, those of one partition, or those that may have values in a range.

    They are chosen as Arrow's columns: a lake of years has many thousands.
    """
    if partition is not None or meets is not None:
        adds = _filtered(adds, partition, meets)
    return [
        File(
            path=row["path"],
            rows=row.get("num_records") or 0,
            size=row.get("size_bytes") or 0,
            partition={k: None if v is None else str(v) for k, v in row["partition"].items()},
            low={k: v for k, v in (row.get("min") or {}).items() if v is not None},
            high={k: v for k, v in (row.get("max") or {}).items() if v is not None},
        )
        for row in adds.to_pylist()
    ]


def _filtered(
    adds: pa.Table, partition: str | None, meets: tuple[str, Any, Any] | None
) -> pa.Table:
    # What only lists files does without it: it takes longer to load than that takes.
    import pyarrow.compute as pc

    if partition is not None and adds.num_rows:
        (values,) = adds.column("partition").combine_chunks().flatten()
        adds = adds.filter(pc.equal(values.cast(pa.string()), partition))
    if meets is not None:
        column, low, high = meets
        for bounds, fits, bound in (("min", pc.less_equal, high), ("max", pc.greater_equal, low)):
            known = _bounds(adds, bounds, column)
            if known is not None:
                adds = adds.filter(pc.fill_null(fits(known, pa.scalar(bound, known.type)), True))
    return adds


def least(adds: pa.Table, column: str) -> Any:
    """The least value of a column in any file; None if it is not known."""
    import pyarrow.compute as pc

    known = _bounds(adds, "min", column)
    return None if known is None else pc.min(known).as_py()


def has_all(adds: pa.Table, files: Sequence[File]) -> bool:
    """Whether a table has all of these files."""
    import pyarrow.compute as pc

    wanted = pa.array([file.path for file in files], pa.string())
    return bool(pc.all(pc.is_in(wanted, value_set=adds["path"].cast(pa.string()))).as_py())


def _bounds(adds: pa.Table, name: str, column: str) -> pa.ChunkedArray | None:
    """The least or greatest values of a column, if any file has some."""
    if name not in adds.column_names:
        return None
    kind = adds.schema.field(name).type
    if not pa.types.is_struct(kind) or kind.get_field_index(column) < 0:
        return None
    import pyarrow.compute as pc

    return pc.struct_field(adds[name], column)
