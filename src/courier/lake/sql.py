"""The tables' SQL is written once, in Spark's words: Spark runs it on many rows, DuckDB on few.

For a few rows Spark plans longer than DuckDB takes for everything, in this process. Of the words
in which the two differ, those that the tables' SQL has are translated; `tests/lake` compares what
comes out of both.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

# What only looks at tables does without DuckDB, which takes longer to import than that takes.
if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame

    Rows: TypeAlias = DataFrame | pa.Table

# Functions that DuckDB does not have, or has under another name.
_MACROS = (
    "CREATE MACRO unix_millis(t) AS epoch_ms(t)",
    "CREATE MACRO timestamp_micros(n) AS make_timestamptz(n)",
    "CREATE MACRO to_date(t) AS t::DATE",
    "CREATE MACRO date_format(t, form) AS "
    "strftime(t, replace(replace(replace(form, 'yyyy', '%Y'), 'MM', '%m'), 'dd', '%d'))",
    "CREATE MACRO try_element_at(list, place) AS list_extract(list, place)",
    "CREATE MACRO slice(list, start, length) AS list_slice(list, start, start + length - 1)",
    "CREATE MACRO array_max(list) AS list_max(list)",
    "CREATE MACRO array_size(list) AS len(list)",
)
_SETTINGS = ("SET GLOBAL TimeZone = 'UTC'", "SET threads = 1")
_WORDS = {
    # To DuckDB these are words of SQL, and a timestamp has no zone.
    "offset": '"offset"',
    "at": '"at"',
    "timestamp": "timestamptz",
    "array": "list_value",
    # Its own leave out rows of which the value is null.
    "max_by": "arg_max_null",
    "min_by": "arg_min_null",
    "collect_list": "list",
    "transform": "list_transform",
}
_STRUCT = "struct("
# A function of a list and what it does with each element.
_LAMBDA = re.compile(r"\bfilter\(|\b(\w+) -> ")
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|\b\d+L\b|\b[A-Za-z_]\w*\b")
_NAMED = re.compile(r"(.+)\sas\s+(\w+)", re.DOTALL)


def run(sql: str, **rows: "Rows") -> Any:
    """The rows that SQL makes of others, which it names in braces: all of Spark's, or all here."""
    first: Any = next(iter(rows.values()))
    if not isinstance(first, pa.Table):
        return first.sparkSession.sql(sql, **rows)
    with _duckdb().cursor() as connection:
        for name, table in rows.items():
            connection.register(f"_{name}", table)
        made = connection.sql(_translated(sql.format_map({name: f"_{name}" for name in rows})))
        return _whole(made.to_arrow_table())


def where(rows: "Rows", condition: str) -> Any:
    """Those of the rows that a condition is true of."""
    if isinstance(rows, pa.Table):
        return run(f"select * from {{rows}} where {condition}", rows=rows)
    return rows.where(condition)


def completed(rows: pa.Table, made: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    """The rows in a schema whose columns in `made` are what SQL makes of the others."""
    for name, of in made.items():
        column = run(f"select {of} as {name} from {{rows}}", rows=rows)[name]
        place = rows.schema.get_field_index(name)
        add = rows.append_column if place < 0 else partial(rows.set_column, place)
        rows = add(name, column)
    return rows.select(schema.names).cast(schema)


@lru_cache(maxsize=1)
def _duckdb() -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect()
    for statement in (*_SETTINGS, *_MACROS):
        connection.execute(statement)
    return connection


def _whole(rows: pa.Table) -> pa.Table:
    """Sums of whole numbers as whole numbers: DuckDB's have more digits."""
    fields = [
        pa.field(each.name, pa.int64() if pa.types.is_decimal(each.type) else each.type)
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))


@lru_cache(maxsize=64)
def _translated(sql: str) -> str:
    """Spark's SQL in DuckDB's words."""

    def word(token: "re.Match[str]") -> str:
        text = token[0]
        if text[0] == "`":
            return f'"{text[1:-1]}"'
        if text[0].isdigit():
            return text.removesuffix("L")
        return _WORDS.get(text, text)

    def each(part: "re.Match[str]") -> str:
        return f"lambda {part[1]}: " if part[1] else "list_filter("

    return _TOKEN.sub(word, _LAMBDA.sub(each, _with_packed(sql)))


def _with_packed(sql: str) -> str:
    """With every `struct(a, b as c)` as `struct_pack(a := a, c := b)`."""
    before, found, rest = sql.partition(_STRUCT)
    if not found:
        return sql
    *parts, after = _parts(rest)
    made = []
    for part in parts:
        named = _NAMED.fullmatch(part)
        value, name = (named[1], named[2]) if named else (part, part.rpartition(".")[2])
        made.append(f'"{name.strip("`")}" := {_with_packed(value)}')
    return f"{before}struct_pack({', '.join(made)}){_with_packed(after)}"


def _parts(text: str) -> Iterator[str]:
    """What is between commas up to the bracket that closes, and then all that is behind it."""
    depth = start = 0
    for place, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]" and depth:
            depth -= 1
        elif character in ",)" and not depth:
            yield text[start:place].strip()
            start = place + 1
            if character == ")":
                break
    yield text[start:]
