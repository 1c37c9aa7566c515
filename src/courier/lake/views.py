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
from courier.lake import archive, journals
from courier.lake.catalog import Lake
from courier.lake.journals import Lakes
from courier.lake.storage import bucket_for_duckdb, is_elsewhere
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


def view(table: Table, sources: Mapping[str, str]) -> str:
    """SQL for the rows of sources that have the columns of a table, each by its journal's name.

    With a name, rows have it in a column.
    """
    return " UNION ALL BY NAME ".join(
        f"SELECT {_named(journal)}{_shown(table)} FROM {source}"
        for journal, source in sources.items()
    )


def _named(journal: str) -> str:
    return f"{quoted(journal)} AS journal, " if journal else ""


def _shown(table: Table) -> str:
    if "body" not in table.schema.names:
        return "*"
    return f"* REPLACE ({_TEXT} AS body), TRY_CAST({_TEXT} AS JSON) AS data, body AS bytes"


def quoted(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def write(lake: Lake | Lakes, file: Path, *, relative: bool = False) -> dict[str, int]:
    """Make the file, or replace it at once; the rows of each table.

    Its paths are absolute, or relative to the folder of the file: clients must then run there.
    """
    in_bucket = is_elsewhere(lake.root)
    if in_bucket and relative:
        raise LakeError("--relative does not work for a lake in a bucket: leave it out")
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="courier-views-") as folder:
        new = Path(folder, file.name)
        try:
            # DuckDB looks at the files of a view when it is made, from where it is.
            if relative:
                files.make_directory(file.parent)
                os.chdir(file.parent)
            with duckdb.connect() as connection:
                if in_bucket:
                    connection.register_filesystem(bucket_for_duckdb())
                made = f"ATTACH {quoted(str(new))} AS made (STORAGE_VERSION '{FORMAT}')"
                connection.execute(made)
                connection.execute("USE made")
                rows = _fill(connection, lake, file.parent if relative else None)
        finally:
            os.chdir(before)
        files.make_directory(file.parent)
        files.write(file, new.read_bytes())
    return rows


def default_file(lake: Lake | Lakes) -> Path:
    """Where the file of a lake on a disk is. That of a bucket is where the user wants it."""
    if is_elsewhere(lake.root):
        raise LakeError("the views of a lake in a bucket are a file on a disk: name it with --out")
    return Path(lake.root, FILE)


def refresh(lake: Lake) -> None:
    """Write the lake's own file again, if there is one."""
    if not is_elsewhere(lake.root) and default_file(lake).exists():
        write(lake, default_file(lake))


def _fill(
    connection: duckdb.DuckDBPyConnection, lake: Lake | Lakes, base: Path | None
) -> dict[str, int]:
    rows: dict[str, int] = {}
    for statement in MACROS:
        connection.execute(statement)
    connection.execute(
        'CREATE TABLE tables ("table" VARCHAR, "rows" BIGINT, upto BIGINT, missing BIGINT, '
        "journal VARCHAR)"
    )
    for name, tables in journals.tables(lake).items():
        sources = {}
        for journal, table in tables.items():
            found = table.files()
            if len(found) > FILES_MAX:
                raise LakeError(
                    f"table {table.name} has {len(found)} files, and a view can have {FILES_MAX}: "
                    "compact it first"
                )
            paths = [f"{table.uri}/{each.path}" for each in found]
            if base is not None:
                paths = [os.path.relpath(path, base) for path in paths]
            sources[journal] = f"({_source(connection, table, paths)})"
            count = sum(each.rows for each in found)
            rows[name] = rows.get(name, 0) + count
            upto = archive.last(table)
            gaps = archive.gaps(journals.each(lake)[journal].events)
            missing = sum(gap.rows for gap in gaps if gap.upto <= upto)
            about = [name, count, upto, missing, journal]
            connection.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?)", about)
        connection.execute(f"CREATE VIEW {name} AS {view(table, sources)}")
    return rows


def _source(connection: duckdb.DuckDBPyConnection, table: Table, paths: Iterable[str]) -> str:
    """SQL that has every column of a table in its type, whatever its files have."""
    delta = table.open()
    assert delta is not None
    connection.register("columns", pa.schema(delta.schema().to_arrow()).empty_table())
    told = connection.execute("DESCRIBE columns").fetchall()
    types = {name: kind for name, kind, *_ in told}
    empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in types.items())
    source = f"SELECT {empty} WHERE false"
    if named := ", ".join(map(quoted, paths)):
        hive = "true" if table.partition_by else "false"
        source += f" UNION ALL BY NAME SELECT * FROM {_READ.format(files=named, hive=hive)}"
    columns = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in types.items())
    return f"SELECT {columns} FROM ({source})"
