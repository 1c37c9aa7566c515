"""Questions to the lake without Spark: DuckDB, in this process, over the tables' own file lists.

Who asks in SQL can read the five tables and nothing else: no file, no network, no extension.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from courier.lake import archive, journals, views
from courier.lake.catalog import Lake
from courier.lake.files import File
from courier.lake.journals import Lakes
from courier.lake.storage import filesystem
from courier.lake.tables import LakeError, Table

# In this order: the last line forbids to change any of them.
_LOCKS = (
    "SET TimeZone = 'UTC'",
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


@dataclass(frozen=True)
class Answer:
    """The first rows of a result; `more` when it has others."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: bool


@dataclass(frozen=True)
class Size:
    """What a table holds; `upto` is the last offset of the journal that it knows of.

    `missing` events up to there were never in the lake: see `archive.gaps`.
    """

    table: str
    rows: int
    bytes: int
    files: int
    changed_ms: int
    upto: int
    missing: int


@contextmanager
def connected(
    lake: Lake | Lakes, *, tenant: str = "", settings: Sequence[str] = ()
) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the lake's views, and nothing else that it could reach.

    With a `tenant` (id), rows of others are left out before DuckDB sees them.
    """
    with duckdb.connect() as connection:
        for statement in (*settings, *views.MACROS):
            connection.execute(statement)
        for name, tables in journals.tables(lake).items():
            sources = {}
            for number, (journal, table) in enumerate(tables.items()):
                rows = dataset(table)
                if tenant:
                    rows = rows.filter(ds.field("tenant") == ds.scalar(tenant))
                sources[journal] = f"_{name}_{number}"
                connection.register(sources[journal], rows)
            connection.execute(f"CREATE VIEW {name} AS {views.view(table, sources)}")
        for statement in _LOCKS:
            connection.execute(statement)
        yield connection


def ask(
    lake: Lake | Lakes,
    sql: str,
    *,
    limit: int,
    tenant: str = "",
    settings: Sequence[str] = (),
) -> Answer:
    """The answer to one question, see `connected`. Raises LakeError with a sentence."""
    with connected(lake, tenant=tenant, settings=settings) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _READING:
                raise LakeError("the lake takes one SELECT at a time, and nothing that changes it")
            batches = connection.sql(sql).to_arrow_reader()
            columns, rows = batches.schema.names, _first(batches, limit + 1)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            one = next(iter(journals.each(lake).values()))
            words = _reserved(connection, one)
            known = [table.name for table in one.tables]
            raise LakeError(_sentence(error) + _hint(error, sql, words, known)) from error
        except (OverflowError, ValueError) as error:  # such as times after the year 9999
            raise LakeError(f"a value of the answer cannot be shown: {error}") from error
    return Answer(columns, rows[:limit], more=len(rows) > limit)


def check_condition(lake: Lake, sql: str) -> None:
    """Raises LakeError unless it is one condition: no bracket of its own ends what it stands in."""
    try:
        duckdb.SQLExpression(sql)
    except duckdb.Error as error:
        with duckdb.connect() as connection:
            hint = _hint(error, sql, _reserved(connection, lake), [])
        raise LakeError(_sentence(error) + hint) from error


def dataset(table: Table) -> ds.Dataset:
    """The table as its own file list has it: files and columns that nobody needs stay unread.

    Not delta-rs' own dataset: that takes a column without statistics for one without values.
    """
    delta = table.open()
    assert delta is not None
    system, root = filesystem(table.uri)
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    files = [
        form.make_fragment(f"{root}/{file.path}", system, partition_expression=_known(file))
        for file in table.files()
    ]
    return ds.FileSystemDataset(files, pa.schema(delta.schema().to_arrow()), form, system)


def _known(file: File) -> ds.Expression:
    """What is true of every row of a file."""
    known = ds.scalar(True)
    for name, value in file.partition.items():
        known &= ds.field(name) == ds.scalar(value)
    for name in file.low.keys() & file.high.keys():
        # In two parts: a range and its nulls in one is more than Arrow sees through.
        column, low, high = ds.field(name), ds.scalar(file.low[name]), ds.scalar(file.high[name])
        known &= ((column >= low) | column.is_null()) & ((column <= high) | column.is_null())
    return known


def _first(batches: pa.RecordBatchReader, count: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.slice(0, count - len(rows)).columns]
        rows += map(list, zip(*columns, strict=True))
        if len(rows) >= count:
            break
    return rows


def sizes(lake: Lake) -> list[Size]:
    """Every table of the lake that there is."""
    found = []
    gaps = archive.gaps(lake.events)
    for table in lake.tables:
        opened = table.open()
        if opened is None:
            continue
        files = table.files()
        (last,) = opened.history(1)
        upto = archive.last(table)
        found.append(
            Size(
                table=table.name,
                rows=sum(file.rows for file in files),
                bytes=sum(file.size for file in files),
                files=len(files),
                changed_ms=int(last["timestamp"]),
                upto=upto,
                missing=sum(gap.rows for gap in gaps if gap.upto <= upto),
            )
        )
    return found


def plain(value: Any) -> Any:
    """A value of an answer as JSON has it: times in UTC, bytes as the text that they are."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Decimal):  # what sums of whole numbers come as, among others
        return int(value) if value == int(value) else float(value)
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):  # JSON has none of these
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _text(value: bytes) -> str:
    """Text where it is text; else in hexadecimal digits, as SQL writes bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _sentence(error: Exception) -> str:
    """DuckDB's first line, without the class of the error and without the picture below it."""
    text = str(error).strip().partition("\n\nLINE ")[0]
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def _reserved(connection: duckdb.DuckDBPyConnection, lake: Lake) -> set[str]:
    """Names of columns that are words of SQL."""
    told = connection.execute(
        "SELECT keyword_name FROM duckdb_keywords() "
        "WHERE keyword_category IN ('reserved', 'type_function')"
    )
    columns = {name for table in lake.tables for name in table.schema.names}
    return columns & {word for (word,) in told.fetchall()}


def _hint(error: Exception, sql: str, words: Collection[str], tables: Sequence[str]) -> str:
    """The tables, if another was meant; or what to do about a word of SQL that was meant as a
    column: it, or the next word, fails.
    """
    if isinstance(error, duckdb.CatalogException) and "Table with name" in str(error):
        return f"; the lake's tables are {', '.join(tables[:-1])} and {tables[-1]}"
    if not isinstance(error, duckdb.ParserException):
        return ""
    near = re.search(r'at or near "([^"]*)"', str(error))
    failed = near[1].lower() if near else ""
    starts = [place for place, _ in duckdb.tokenize(sql)]
    ends = [*starts[1:], len(sql)]
    tokens = [sql[low:high].strip().lower() for low, high in zip(starts, ends, strict=True)]
    before = [one for one, two in pairwise([*tokens, ""]) if two == failed]
    for word in (failed, *before):
        if word in words:
            return f"; '{word}' is a word of SQL: as a column it needs quotes, \"{word}\""
    return ""
