"""Small replays without Spark: DuckDB chooses, and this process publishes.

A condition is Spark's SQL. What of it means the same to DuckDB, value by value, is translated; for
everything else, and whenever DuckDB meets a value of which that is not sure, Spark is asked.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from courier.lake import query, views
from courier.lake.catalog import Lake
from courier.lake.erasure import ERASED
from courier.lake.schema import ORDER, ORIGIN

# More than this is published by Spark.
ROWS_MAX = 10_000
BYTES_MAX = 64 << 20
SAMPLES = 3
# Within these, what is JSON to Python is JSON to DuckDB and to Spark.
BRACKETS_MAX = 500
DIGITS_MAX = 500
NAME_CHARACTERS_MAX = 1_000
_TEXTS = (
    *("tenant", "queue_id", "queue", "message_id", "dialect", "actor", "outcome", "content_type"),
    *("last_leased_by", "sealed", "body", "ended"),
)
_NUMBERS = (
    *("seq", "attempts", "wait_ms", "work_ms", "total_ms", "size", "published_offset"),
    "done_offset",
)
_TIMES = ("published_at", "first_leased_at", "last_leased_at", "done_at")
_WORDS = ("and", "or", "not", "in", "like", "is", "null", "between", "true", "false")
_WHOLE = "'BIGINT', 'UBIGINT'"
# Type of a cast -> what it is in DuckDB, and the types of JSON of which it is the same in both.
_CASTS = {
    "string": ("VARCHAR", f"'VARCHAR', {_WHOLE}, 'BOOLEAN'"),
    "int": ("INTEGER", _WHOLE),
    "bigint": ("BIGINT", _WHOLE),
    "double": ("DOUBLE", f"'DOUBLE', {_WHOLE}"),
}
_PATH = r"(?:data|headers):[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*"
_KINDS = "|".join(_CASTS)
_TOKEN = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<tried>try_cast\(\s*(?P<inner>{_PATH})\s+as\s+(?P<to>{_KINDS})\s*\))"
    rf"|(?P<field>(?P<path>{_PATH})::(?P<kind>{_KINDS})\b)"
    r"|(?P<text>'[^'\\]*')"
    r"|(?P<number>\d+(?:\.\d+)?)(?![\w.])"
    r"|(?P<word>[A-Za-z_]\w*)(?![\w(:])"
    r"|(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)",
    re.IGNORECASE,
)
_MEANT = """
FROM messages
WHERE tenant = {tenant} AND queue = {queue} AND detail->>'{erased}' IS NULL
  AND published_at >= make_timestamptz({since_ms} * 1000)
  AND published_at < make_timestamptz({until_ms} * 1000)
"""
# Columns of text, and what its JSON is called in a condition.
_JSON = {"body": "data", "headers": "headers"}
_TOTALS = "SELECT count(*), sum(octet_length(bytes)), min(published_at), max(published_at), "
_TOTALS += "count(*) FILTER (bytes IS NULL) "
# Values that a replay adds, in the order of their headers; the last one is for listeners.
_HEADERS = (
    "json_merge_patch(coalesce(TRY_CAST(headers AS JSON), '{{}}'), json_object("
    f"'{ORIGIN[0]}', {{replay}}, '{ORIGIN[1]}', queue, '{ORIGIN[2]}', message_id, "
    f"'{ORIGIN[3]}', NULL))::VARCHAR"
)
_ROWS = (
    f"SELECT {', '.join(ORDER)}, bytes AS body, content_type, {_HEADERS} AS headers, "
    '"group", sealed '
)
_SCHEMA = pa.schema(
    {
        "published_at": pa.timestamp("us", tz="UTC"),
        "queue_id": pa.string(),
        "seq": pa.int64(),
        "body": pa.binary(),
        "content_type": pa.string(),
        "headers": pa.string(),
        "group": pa.string(),
        "sealed": pa.string(),
    }
)
Found = tuple[pa.Table, int, int, datetime | None, datetime | None]


def condition(where: str) -> str | None:
    """A condition as DuckDB has it; None unless it surely means the same there."""
    made: list[str] = []
    kinds: list[str] = []
    place = depth = 0
    while place < len(where):
        token = _TOKEN.match(where, place)
        if token is None:
            return None
        place = token.end()
        if token["space"]:
            made.append(" ")
            continue
        sql, kind = _translated(token)
        depth += {"(": 1, ")": -1}.get(sql, 0)
        if not kind or depth < 0:
            return None
        # Two texts in a row are one to Spark.
        if kind == "text" and kinds[-1:] == ["text"]:
            return None
        made.append(sql)
        kinds.append(kind)
    # Text that has to become a number, or the other way round, does not do so in the same way.
    return None if not kinds or depth or _mixes(kinds) else "".join(made)


def _mixes(kinds: list[str]) -> bool:
    """Whether a part between and/or has texts and numbers; `between` has an `and` of its own."""
    part: set[str] = set()
    parts = [part]
    for kind in kinds:
        if kind == "or" or (kind == "and" and "between" not in part):
            part = set()
            parts.append(part)
        elif kind == "and":
            part.discard("between")
        else:
            part.add(kind)
    return any("number" in part and part & {"text", "texts"} for part in parts)


def _translated(token: "re.Match[str]") -> tuple[str, str]:
    """What a token is in DuckDB, and its kind; none if it is not known."""
    if path := token["path"] or token["inner"]:
        kind = (token["kind"] or token["to"]).lower()
        return _field(path, kind), "texts" if kind == "string" else "number"
    if token["word"]:
        word = token["word"].lower()
        if word in _WORDS:
            return token[0], word
        if word in _TIMES:
            return word, "time"
        if word in _TEXTS:
            return word, "texts"
        return word, "number" if word in _NUMBERS else ""
    for kind in ("text", "number", "sign"):
        if token[kind]:
            return token[0], kind
    return "", ""


def _field(path: str, kind: str) -> str:
    """A field of JSON in a type; an error where Spark might make something else of it."""
    column, _, inside = path.partition(":")
    name = column.lower() if column.lower() == "data" else "TRY_CAST(headers AS JSON)"
    to, same = _CASTS[kind]
    where = f"json_type({name}, '$.{inside}')"
    return (
        f"(CASE WHEN coalesce({where}, 'NULL') = 'NULL' THEN NULL WHEN {where} IN ({same}) "
        f"THEN CAST(json_extract_string({name}, '$.{inside}') AS {to}) "
        "ELSE error('ask Spark') END)"
    )


def is_same_json(text: str) -> bool:
    """Whether a text surely is the same object to DuckDB and to Spark, or to both none.

    One of them takes NaN, a comma too many and names that are there twice, the other what stands
    behind the object.
    """
    if text.count("[") + text.count("{") > BRACKETS_MAX:
        return False
    try:
        json.loads(
            text, object_pairs_hook=_pairs, parse_int=_digits, parse_float=_digits,
            parse_constant=_refuse,
        )  # fmt: skip
    except ValueError:
        return not text.lstrip().startswith("{")
    return True


def _is_sure(connection: duckdb.DuckDBPyConnection, where: str, meant: str) -> bool:
    """Whether all JSON that a condition looks into is the same to both."""
    for column, name in _JSON.items():
        if re.search(rf"\b{name}:", where, re.IGNORECASE):
            batches = connection.sql(f"SELECT {column} {meant}").to_arrow_reader()
            if not all(is_same_json(text.as_py() or "") for each in batches for text in each[0]):
                return False
    return True


def _pairs(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs) or max(map(len, names), default=0) > NAME_CHARACTERS_MAX:
        raise ValueError


def _digits(text: str) -> None:
    if len(text) > DIGITS_MAX:
        raise ValueError


def _refuse(text: str) -> None:
    raise ValueError(text)


def choose(
    lake: Lake,
    *,
    tenant: str,
    queue: str,
    since_ms: int,
    until_ms: int,
    where: str,
    replay: str,
    only_samples: bool,
) -> Found | None:
    """What a replay publishes, how many and how large that is, from when and to when.

    None if Spark must be asked: there is too much, or the condition may mean something else here.
    """
    condition_here = condition(where) if where else "true"
    if condition_here is None:
        return None
    meant = _MEANT.format(
        tenant=views.quoted(tenant),
        queue=views.quoted(queue),
        since_ms=since_ms,
        until_ms=until_ms,
        erased=ERASED,
    )
    sql = f"{meant} AND ({condition_here})"
    try:
        with query.connected(lake) as connection:
            if not _is_sure(connection, where, meant):
                return None
            totals: pa.Table = connection.sql(_TOTALS + sql).to_arrow_table()
            count, size, first, last, empty = (column[0].as_py() for column in totals.columns)
            if empty or (not only_samples and (count > ROWS_MAX or (size or 0) > BYTES_MAX)):
                return None
            limit = SAMPLES if only_samples else ROWS_MAX
            chosen = _ROWS.format(replay=views.quoted(replay)) + sql
            ordered = f"{chosen} ORDER BY {', '.join(ORDER)} LIMIT {limit}"
            rows: pa.Table = connection.sql(ordered).to_arrow_table()
    except (duckdb.Error, pa.ArrowException):
        return None
    return rows.cast(_SCHEMA), count, int(size or 0), utc(first), utc(last)


def utc(at: datetime | None) -> datetime | None:
    """DuckDB and Spark give times in the zone of this process."""
    return None if at is None else at.astimezone(UTC)
