"""Which messages of the lake are meant, and what is published in their place.

SQL that chooses or edits messages sees all columns of `messages`, with `body` as text,
`headers` as a variant, and `data`, the body as a variant where it is JSON.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import (
    coalesce,
    col,
    create_map,
    expr,
    from_json,
    lit,
    map_concat,
    map_filter,
    to_json,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
)

from courier.lake.erasure import ERASED
from courier.lake.files import File
from courier.lake.schema import ORDER, ORIGIN
from courier.lake.tables import BadRequest, Table

EDITABLE = ("body", "headers", "content_type", "delay_ms", "group")
_NESTED = (VariantType, StructType, MapType, ArrayType)
# Column -> what it may be set to, in words and in types, and the type that is published.
_TAKEN: dict[str, tuple[str, tuple[type[DataType], ...], str]] = {
    "body": ("text, bytes or what JSON can hold", (StringType, BinaryType, *_NESTED), "binary"),
    "headers": ("a map, an object or its JSON", (StringType, *_NESTED), "string"),
    "content_type": ("text", (StringType,), "string"),
    "delay_ms": ("a whole number", (IntegralType,), "bigint"),
    "group": ("text", (StringType,), "string"),
}  # fmt: skip
_OURS = re.compile(r"^courier\.lake\.\w+\.\w+: (.+)$", re.MULTILINE)
_TEXT = "if(sealed is null, try_validate_utf8(cast(body as string)), null)"


def files(table: Table, *, since_ms: int, until_ms: int) -> list[File]:
    """Those with messages that may have been published in [since_ms, until_ms)."""
    return table.files(meets=("published_at", time_of(since_ms), time_of(until_ms)))


def choose(
    messages: Table,
    spark: SparkSession,
    *,
    tenant: str,
    queue: str,
    since_ms: int,
    until_ms: int,
    where: str = "",
) -> DataFrame:
    """The messages of a queue that were published in [since_ms, until_ms) and fit `where`.

    Bodies and headers as they were stored are in `_body` and `_headers`.
    """
    rows = messages.read(spark, files(messages, since_ms=since_ms, until_ms=until_ms)).where(
        (col("tenant") == tenant)
        & (col("queue") == queue)
        & (col("published_at") >= lit(time_of(since_ms)))
        & (col("published_at") < lit(time_of(until_ms)))
        # Nothing is left of these that could be published.
        & expr(f"get_json_object(detail, '$.{ERASED}') is null")
    )
    rows = rows.withColumns({"_body": col("body"), "_headers": col("headers")})
    rows = rows.withColumns({"body": expr(_TEXT), "headers": expr("try_parse_json(headers)")})
    rows = rows.withColumn("data", expr("try_parse_json(body)"))
    if not where:
        return rows
    try:
        return rows.where(expr(where))
    except PySparkException as error:
        raise BadRequest(f"--where: {sentence(error)}") from error


def publishable(
    rows: DataFrame, *, sets: Mapping[str, str], replay: str, listener: str = ""
) -> DataFrame:
    """What is published for the chosen rows, besides the columns of ORDER."""
    columns = {
        "body": col("_body"),
        "content_type": col("content_type"),
        "headers": col("_headers"),
        "group": col("group"),
        "sealed": col("sealed"),
    }
    if "body" in sets:
        # The new body is not sealed; and one that is nobody can read here, nor edit.
        columns["sealed"] = lit(None).cast("string")
        if isinstance(_kind(rows, "body", sets["body"]), _NESTED):
            columns["content_type"] = lit("json")
    columns |= {name: _made(rows, name, sql) for name, sql in sets.items()}
    columns["headers"] = _with_origin(columns["headers"], replay, listener)
    named = [column.alias(name) for name, column in columns.items()]
    return rows.select(*ORDER, *named)


def parse_sets(given: list[str]) -> dict[str, str]:
    """`column=SQL` -> column: SQL. Raises BadRequest."""
    sets: dict[str, str] = {}
    for text in given:
        name, equals, sql = (part.strip() for part in text.partition("="))
        if not equals or not sql or name not in EDITABLE:
            raise BadRequest(
                f"--set is COLUMN=SQL for one of {', '.join(EDITABLE)}, not '{text[:100]}'"
            )
        if name in sets:
            raise BadRequest(f"--set: '{name}' is set twice")
        sets[name] = sql
    return sets


def sentence(error: Exception) -> str:
    """What the broker said to Spark, or the first line of what Spark has to say, without codes."""
    text = str(error).strip()
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if text.startswith("["):
        text = text.partition("]")[2].strip()
    text = text.partition("\n")[0].partition(" SQLSTATE:")[0].strip().rstrip(".")
    return text[:300]


def _made(rows: DataFrame, name: str, sql: str) -> Column:
    """The new value of a column, in the type that is published."""
    kind, (wanted, types, published) = _kind(rows, name, sql), _TAKEN[name]
    if not isinstance(kind, (*types, NullType)):
        raise BadRequest(f"--set: '{name}' must be {wanted}, and is {kind.simpleString()}")
    made = to_json(expr(sql)) if isinstance(kind, _NESTED) else expr(sql)
    return made.cast(published)


def _kind(rows: DataFrame, name: str, sql: str) -> DataType:
    try:
        return rows.select(expr(sql)).schema[0].dataType
    except PySparkException as error:
        raise BadRequest(f"--set: '{name}': {sentence(error)}") from error


def _with_origin(headers: Column, replay: str, listener: str) -> Column:
    """The headers and, besides, where the message comes from. Numbers in them stay numbers."""
    values = [lit(replay), col("queue"), col("message_id"), *([lit(listener)] if listener else [])]
    known = coalesce(from_json(headers, "map<string,variant>"), create_map())
    others = map_filter(known, lambda name, _: ~name.isin(*ORIGIN))
    pairs = zip(map(lit, ORIGIN), (value.cast("variant") for value in values), strict=False)
    return to_json(map_concat(others, create_map(*(part for pair in pairs for part in pair))))


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
