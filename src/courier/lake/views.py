"""The tables as people ask them in SQL: bodies as text and as JSON, in DuckDB.

`query` offers these views of the tables as they are now. `write` puts them into a DuckDB file that
any client opens without Courier: they show the tables as they were when it was written.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from courier import files
from courier.lake import archive
from courier.lake.catalog import Lake
from courier.lake.tables import LakeError, Table

# The file that the pipeline keeps up to date if it is there.
FILE = "views.duckdb"
# Clients often come with a DuckDB of years ago, which cannot open the format of the newest.
FORMAT = "v1.0.0"
# A view names each of its files; compact and retain less when there are more.
FILES_MAX = 100_000
_TEXT = "CASE WHEN sealed IS NULL THEN TRY(decode(body)) END"
# What is in no other SQL: text and JSON of bytes or text, and a field of text that may not be JSON.
MACROS = (
    "CREATE MACRO text(x) AS CASE typeof(x) WHEN 'BLOB' THEN TRY(decode(x::BLOB)) "
    "ELSE x::VARCHAR END",
    "CREATE MACRO data(x) AS TRY_CAST(text(x) AS JSON)",
    'CREATE MACRO "->>"(x, path) AS json_extract_string(TRY_CAST(x AS JSON), path)',
)
_READ = "read_parquet([{files}], union_by_name = true, hive_partitioning = {hive})"


def view(table: Table, source: str) -> str:
    """SQL for the rows of a source that has the columns of a table."""
    if "body" not in table.schema.names:
        return f"SELECT * FROM {source}"
    return (
        f"SELECT * REPLACE ({_TEXT} AS body), TRY_CAST({_TEXT} AS JSON) AS data, body AS bytes "
        f"FROM {source}"
    )


def write(lake: Lake, file: Path, *, relative: bool = False) -> dict[str, int]:
    """Make the file, or replace it at once; the rows of each table.

    Its paths are absolute, or relative to the folder of the file: clients must then run there.
    """
    if "://" in lake.root:
        raise LakeError(
            "DuckDB alone cannot open a bucket: see `courier lake catalog`, or `courier lake query`"
        )
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="courier-views-") as folder:
        new = Path(folder, file.name)
        try:
            # DuckDB looks at the files of a view when it is made, from where it is.
            if relative:
                files.make_directory(file.parent)
                os.chdir(file.parent)
            with duckdb.connect() as connection:
                named = str(new).replace("'", "''")
                connection.execute(f"ATTACH '{named}' AS made (STORAGE_VERSION '{FORMAT}')")
                connection.execute("USE made")
                rows = _fill(connection, lake, file.parent if relative else None)
        finally:
            os.chdir(before)
        files.make_directory(file.parent)
        files.write(file, new.read_bytes())
    return rows


def refresh(lake: Lake) -> None:
    """Write the lake's own file again, if there is one."""
    file = Path(lake.root, FILE)
    if "://" not in lake.root and file.exists():
        write(lake, file)


def _fill(connection: duckdb.DuckDBPyConnection, lake: Lake, base: Path | None) -> dict[str, int]:
    rows = {}
    for statement in MACROS:
        connection.execute(statement)
    connection.execute(
        'CREATE TABLE tables ("table" VARCHAR, "rows" BIGINT, upto BIGINT, missing BIGINT)'
    )
    gaps = archive.gaps(lake.events)
    for table in lake.tables:
        delta = table.open()
        if delta is None:
            continue
        found = table.files()
        if len(found) > FILES_MAX:
            raise LakeError(
                f"table {table.name} has {len(found)} files, and views can name {FILES_MAX}: "
                "compact it first"
            )
        paths = [f"{table.uri}/{each.path}" for each in found]
        if base is not None:
            paths = [os.path.relpath(path, base) for path in paths]
        connection.register("columns", pa.schema(delta.schema().to_arrow()).empty_table())
        told = connection.execute("DESCRIBE columns").fetchall()
        source = _source(table, {name: kind for name, kind, *_ in told}, paths)
        connection.execute(f"CREATE VIEW {table.name} AS {view(table, f'({source})')}")
        rows[table.name] = sum(each.rows for each in found)
        upto = archive.last(table)
        missing = sum(gap.rows for gap in gaps if gap.upto <= upto)
        about = [table.name, rows[table.name], upto, missing]
        connection.execute("INSERT INTO tables VALUES (?, ?, ?, ?)", about)
    return rows


def _source(table: Table, types: Mapping[str, str], paths: Iterable[str]) -> str:
    """SQL that has every column of a table in its type, whatever its files have."""
    empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in types.items())
    source = f"SELECT {empty} WHERE false"
    if named := ", ".join("'" + path.replace("'", "''") + "'" for path in paths):
        hive = "true" if table.partition_by else "false"
        source += f" UNION ALL BY NAME SELECT * FROM {_READ.format(files=named, hive=hive)}"
    columns = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in types.items())
    return f"SELECT {columns} FROM ({source})"
