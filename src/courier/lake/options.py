"""The options of `format("courier")`: read once, checked at once, refused by name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from courier.lake.client import CourierError, Place

PAGE_ROWS = 16_384
READ = {
    "url", "token", "tokenfile", "tenant", "mode", "queue", "kinds", "columns", "startingoffset",
    "endingoffset", "maxrowspertrigger", "numpartitions", "pagerows", "pipeline", "leasems",
    "awayseconds", "path",
}  # fmt: skip
WRITE = {
    "url", "token", "tokenfile", "tenant", "queue", "contenttype", "writeid", "awayseconds",
    "checkpointlocation", "path",
}  # fmt: skip


class BadOption(CourierError):
    """An option cannot be used; the message names it."""


@dataclass(frozen=True)
class Options:
    """What a reader or writer was asked for. Times are in ms, offsets as given."""

    place: Place
    mode: str = "journal"
    queue: str = ""
    kinds: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    starting: str = "earliest"
    ending: str = "latest"
    rows_max: int | None = None
    partitions: int | None = None
    page_rows: int = PAGE_ROWS
    pipeline: str = ""
    lease_ms: int = 300_000
    content_type: str = ""
    write_id: str = field(default="")


def parse(given: Mapping[str, str], *, known: set[str]) -> Options:
    """Raises BadOption. Names are compared without regard to case, as Spark does."""
    values = {name.lower(): value for name, value in given.items()}
    for name in values:
        if name not in known:
            raise BadOption(f"'{name}' is no option of format courier; known are {_listed(known)}")
    if "url" not in values:
        raise BadOption("option 'url' is missing: the address of the broker")
    place = Place(
        url=values["url"].rstrip("/"),
        token=_token(values),
        tenant=values.get("tenant", "default"),
        away_s_max=_number(values, "awayseconds", 120, low=0, high=86_400),
    )
    mode = values.get("mode", "journal")
    if mode not in ("journal", "consume"):
        raise BadOption(f"option 'mode' is journal or consume, not '{mode}'")
    if mode == "consume" and not values.get("queue"):
        raise BadOption("option 'queue' is missing: the queue to consume")
    rows_max = partitions = None
    if "maxrowspertrigger" in values:
        rows_max = _number(values, "maxrowspertrigger", 0, low=1, high=1 << 40)
    if "numpartitions" in values:
        partitions = _number(values, "numpartitions", 0, low=1, high=10_000)
    return Options(
        place=place,
        mode=mode,
        queue=values.get("queue", ""),
        kinds=_names(values.get("kinds", "")),
        columns=_names(values.get("columns", "")),
        starting=values.get("startingoffset", "earliest"),
        ending=values.get("endingoffset", "latest"),
        rows_max=rows_max,
        partitions=partitions,
        page_rows=_number(values, "pagerows", PAGE_ROWS, low=1, high=1_000_000),
        pipeline=values.get("pipeline", ""),
        lease_ms=_number(values, "leasems", 300_000, low=1_000, high=43_200_000),
        content_type=values.get("contenttype", ""),
        write_id=values.get("writeid", ""),
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
            f"option '{option}' is earliest, latest, an offset or a time such as "
            f"2026-01-31T12:00:00Z, not '{text}'"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return None, int(at.timestamp() * 1000)


def _token(values: Mapping[str, str]) -> str:
    if values.get("token"):
        return values["token"]
    if values.get("tokenfile"):
        try:
            return Path(values["tokenfile"]).read_text().strip()
        except OSError as error:
            raise BadOption(f"option 'tokenFile': {error.strerror}") from None
    raise BadOption("option 'token' is missing: a key of the broker (or 'tokenFile')")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(values: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not (re.fullmatch(r"[0-9]{1,18}", text) and low <= int(text) <= high):
        raise BadOption(f"option '{name}' is a whole number from {low} to {high}, not '{text}'")
    return int(text)


def _listed(known: set[str]) -> str:
    return ", ".join(sorted(known - {"path"}))
