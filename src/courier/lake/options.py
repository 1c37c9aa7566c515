"""The options of `format("courier")`: read once, checked at once, refused by name."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from courier.lake.client import AWAY_S_MAX, CourierError, Place

PAGE_ROWS = 16_384
LEASE_MS = 300_000
# The name of the pipeline into the lake, unless it is given another.
LAKE_PIPELINE = "lake"
_PLACE = ("url", "token", "tokenFile", "tenant", "awaySeconds")
_RANGE = (
    "mode", "queue", "kinds", "columns", "startingOffset", "numPartitions", "pageRows",
    "failOnDataLoss",
)  # fmt: skip
BATCH = (*_PLACE, *_RANGE, "endingOffset", "pushFilters")
STREAM = (*_PLACE, *_RANGE, "maxRowsPerTrigger", "pipeline")
CONSUME = (
    *_PLACE, "mode", "queue", "columns", "maxRowsPerTrigger", "numPartitions", "pageRows",
    "leaseMs",
)  # fmt: skip
READ = tuple(dict.fromkeys((*BATCH, *STREAM, *CONSUME)))
BATCH_WRITE = (*_PLACE, "queue", "contentType", "writeId", "rowsPerSecond", "listener")
STREAM_WRITE = (*_PLACE, "queue", "contentType", "rowsPerSecond", "listener")
# What Spark itself adds to the options of a stream's writer; they are not meant for the source.
SPARKS = ("checkpointLocation", "queryName")
CONTENT_TYPES = ("text", "json", "bytes")
# The part of a key that is left for batch and partition must fit too.
WRITE_ID = r"[A-Za-z0-9._:-]{1,100}"


class BadOption(CourierError):
    """An option cannot be used; the message names it."""


@dataclass(frozen=True)
class Options:
    """What a reader or writer was asked for. Times are in ms, offsets as given."""

    place: Place
    mode: str
    queue: str
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    starting: str
    ending: str
    rows_max: int | None
    partitions: int | None
    page_rows: int
    pipeline: str
    lease_ms: int
    content_type: str
    write_id: str
    rate: int | None
    listener: str
    filters: bool
    fail_on_loss: bool


def parse(given: Mapping[str, str], known: Collection[str], use: str = "reading") -> Options:
    """Raises BadOption. Names are compared without regard to case, as Spark does."""
    values = {name.lower(): value for name, value in given.items()}
    _check(values, known, use)
    return Options(
        place=Place(
            url=values["url"].rstrip("/"),
            token=_token(values),
            tenant=values.get("tenant", "default"),
            away_s_max=_number(values, "awaySeconds", low=0, high=86_400) or AWAY_S_MAX,
        ),
        mode=values.get("mode", "journal"),
        queue=values.get("queue", ""),
        kinds=_names(values.get("kinds", "")),
        columns=_names(values.get("columns", "")),
        starting=values.get("startingoffset", "earliest"),
        ending=values.get("endingoffset", "latest"),
        rows_max=_number(values, "maxRowsPerTrigger", low=1, high=1 << 40),
        partitions=_number(values, "numPartitions", low=1, high=10_000),
        page_rows=_number(values, "pageRows", low=1, high=1_000_000) or PAGE_ROWS,
        pipeline=values.get("pipeline", ""),
        lease_ms=_number(values, "leaseMs", low=1_000, high=43_200_000) or LEASE_MS,
        content_type=values.get("contenttype", ""),
        write_id=values.get("writeid", ""),
        rate=_number(values, "rowsPerSecond", low=1, high=1_000_000),
        listener=values.get("listener", ""),
        filters=_truth(values, "pushFilters", default=False),
        fail_on_loss=_truth(values, "failOnDataLoss", default=True),
    )


def _check(values: Mapping[str, str], known: Collection[str], use: str) -> None:
    """Raises BadOption for what is wrong with names, and with texts that are one of some."""
    if "provider" in values:
        raise BadOption(
            "Spark does not tell a source the options of a table: use CREATE TEMPORARY VIEW ... "
            "USING courier OPTIONS (...)"
        )
    lower = {name.lower() for name in (*known, *SPARKS)}
    # This also refuses `load(path)` and `save(path)`, which would otherwise be ignored silently.
    for name in values:
        if name not in lower:
            raise BadOption(
                f"unknown option '{name}' for {use} with format courier; "
                f"known options: {', '.join(sorted(known))}"
            )
    if not values.get("url"):
        raise BadOption("option 'url' is missing: the address of the broker")
    mode = values.get("mode", "journal")
    if mode not in ("journal", "consume"):
        raise BadOption(f"option 'mode' must be journal or consume, not '{mode}'")
    if mode == "consume" and not values.get("queue"):
        raise BadOption("option 'queue' is missing: the queue to consume")
    content_type = values.get("contenttype", "")
    if content_type and content_type not in CONTENT_TYPES:
        raise BadOption(
            f"option 'contentType' must be one of {', '.join(CONTENT_TYPES)}, not '{content_type}'"
        )
    write_id = values.get("writeid", "")
    if write_id and not re.fullmatch(WRITE_ID, write_id):
        raise BadOption("option 'writeId' must be up to 100 letters, digits and . _ : -")
    if values.get("pipeline") == LAKE_PIPELINE:
        raise BadOption(
            f"option 'pipeline' cannot be '{LAKE_PIPELINE}': the lake's own pipeline has that "
            "name, and the journal would drop what it has not read"
        )


def offset_or_ms(text: str, option: str) -> tuple[int | None, int | None]:
    """A place in the journal: an offset, or a time in ms; both None for earliest and latest."""
    if text in ("earliest", "latest"):
        return None, None
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text), None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"option '{option}' must be earliest, latest, an offset or a time such as "
            f"2026-01-31T12:00:00Z, not '{text}'"
        ) from None
    return None, at_ms(at if at.tzinfo else at.replace(tzinfo=UTC))


def at_ms(at: datetime) -> int:
    """The first millisecond that is not before a time; never below 0."""
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    whole_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return max(0, -(-whole_us // 1000))


def _token(values: Mapping[str, str]) -> str:
    if values.get("token") and values.get("tokenfile"):
        raise BadOption("give option 'token' or 'tokenFile', not both")
    if values.get("token"):
        return values["token"]
    if not values.get("tokenfile"):
        raise BadOption("option 'token' is missing: a key of the broker (or 'tokenFile')")
    try:
        token = Path(values["tokenfile"]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not text"
        raise BadOption(f"option 'tokenFile': {values['tokenfile']}: {why}") from None
    if not token:
        raise BadOption(f"option 'tokenFile': {values['tokenfile']} is empty")
    return token


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _truth(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise BadOption(f"option '{name}' must be true or false, not '{text}'")
    return text == "true"


def _number(values: Mapping[str, str], name: str, *, low: int, high: int) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    if not (re.fullmatch(r"[0-9]{1,18}", text) and low <= int(text) <= high):
        raise BadOption(
            f"option '{name}' must be a whole number from {low} to {high}, not '{text}'"
        )
    return int(text)
