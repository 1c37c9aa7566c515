"""Charts, spans and words: pure functions from numbers and texts."""

from typing import Any
from xml.etree import ElementTree

import pytest

from courier import drawing, words
from courier.console import charts, spans
from courier.console.charts import Mark, Series
from courier.console.facts import by_minute
from courier.console.message import shown_body
from courier.core.errors import InvalidRequest
from courier.core.types import DAY_MS, HOUR_MS, MINUTE_MS, Level, Tally

NOW_MS = 1_794_950_030_000
HOSTILE = '"><script>alert(1)</script>&\u202e\x00'


def series(*values: int, backlog: tuple[int, ...] | None = None) -> Series:
    return Series(NOW_MS, MINUTE_MS, values, values, values, values if backlog is None else backlog)


@pytest.mark.parametrize(
    "drawn",
    [
        series(),
        series(0),
        series(1),
        series(0, 0, 0),
        series(1, 0, 0, 5, 0, 1),
        series(10**9, 0, 10**9),
        series(*range(361)),
        series(*range(2017)),
        series(1, 2, backlog=(10**12, 0)),
    ],
    ids=["none", "zero", "one", "zeros", "gaps", "huge", "many", "week", "backlog"],
)
def test_a_chart_is_well_formed_and_stays_inside(drawn: Series) -> None:
    chosen = (NOW_MS - HOUR_MS, NOW_MS + HOUR_MS)
    svg = str(charts.flow(drawn, marks=[Mark(NOW_MS, HOSTILE)], against=(3,), chosen=chosen))
    assert "<script>" not in svg and "nan" not in svg and "inf" not in svg
    root = ElementTree.fromstring(svg.replace("\x00", ""))
    for element in root.iter():
        for name in ("x", "x1", "x2", "y", "y1", "y2"):
            place = float(element.get(name, 0))
            assert -1 <= place <= charts.WIDTH


def test_a_sparkline_needs_two_points_and_escapes_its_words() -> None:
    assert charts.spark([], "nothing") == charts.spark([1], "one") == ""
    svg = str(charts.spark([0, 10**9, 3] * 40, HOSTILE))
    assert "<script>" not in svg
    ElementTree.fromstring(svg.replace("\x00", ""))


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (1, 1), (3, 5), (10, 10), (11, 20), (51, 100), (10**9 + 1, 2 * 10**9)],
)
def test_a_scale_ends_at_a_round_number(value: int, top: int) -> None:
    assert drawing.ceiling(value) == top


def test_levels_are_spread_over_minutes() -> None:
    levels = [Level(102, 5, 0, 0), Level(104, 9, 0, 0)]
    found = by_minute(levels, 1, 101 * MINUTE_MS, 100 * MINUTE_MS, 106 * MINUTE_MS)
    assert found == [0, 5, 5, 9, 9, 1, 1]


@pytest.mark.parametrize(
    ("since", "until", "last", "expected"),
    [
        ("", "", "", ("1h", None)),
        ("6h", "", "", ("6h", None)),
        ("", "", "7d", ("7d", None)),
        ("", "", "nonsense", ("1h", None)),
        ("2026-11-17T20:30Z", "2026-11-17T20:40Z", "", ("1h", True)),
        ("2026-11-17T02:30", "2026-11-17T02:40", "", ("24h", True)),
        ("2026-01-01T00:00Z", "2026-01-01T01:00Z", "", ("", True)),
        ("2000-01-01T00:00Z", "", "", ("", True)),
    ],
)
def test_a_span_is_what_the_address_says(
    since: str, until: str, last: str, expected: tuple[str, Any]
) -> None:
    found = spans.span(since, until, last, NOW_MS)
    assert (found.last, bool(found.chosen) or None) == expected
    assert found.since_ms < found.until_ms
    assert found.since_ms % found.bucket_ms == 0
    if found.chosen and not found.last:
        assert found.until_ms >= found.chosen[1]


@pytest.mark.parametrize(
    ("last", "bucket_ms", "buckets"),
    [("1h", MINUTE_MS, 60), ("24h", MINUTE_MS, 1440), ("7d", 5 * MINUTE_MS, 2016),
     ("30d", HOUR_MS, 720)],
)  # fmt: skip
def test_a_chart_is_by_the_minute_for_a_day_and_by_the_hour_beyond_a_week(
    last: str, bucket_ms: int, buckets: int
) -> None:
    found = spans.span("", "", last, NOW_MS)
    assert found.bucket_ms == bucket_ms
    assert -(-(found.until_ms - found.since_ms) // bucket_ms) in (buckets, buckets + 1)


def test_a_peak_of_one_minute_is_seen_among_a_day_of_them() -> None:
    values = [0] * 1440
    values[717] = 1_000
    svg = str(charts.flow(series(*values, backlog=(0,) * 1440)))
    drawn = ElementTree.fromstring(svg).find(".//*[@class='published']")
    assert drawn is not None
    # Up to the top of the chart, and back to its floor.
    assert f"V{charts.TOP}.0" in drawn.attrib["d"] and drawn.attrib["d"].count("V") == 2


@pytest.mark.parametrize("buckets", [1440, 2017])
def test_a_chart_of_many_buckets_is_small_whatever_happened(buckets: int) -> None:
    busy = [(place * 7919) % 1_000 for place in range(buckets)]
    drawn = series(*busy)
    svg = str(charts.flow(drawn, against=tuple(busy[::-1])))
    assert len(svg) < 45_000
    rows = drawn.rows(spans.ROWS_MAX)
    assert len(rows.published) <= spans.ROWS_MAX and sum(rows.published) == sum(busy)
    assert max(rows.backlog) == max(busy)


@pytest.mark.parametrize(
    ("since", "until"),
    [("x", ""), ("2026-11-17T20:40Z", "2026-11-17T20:30Z"), ("9" * 40, ""), ("", "-1"),
     ("0001-01-01T00:00:00+14:00", "")],
)  # fmt: skip
def test_what_is_no_span_is_refused(since: str, until: str) -> None:
    with pytest.raises(InvalidRequest):
        spans.span(since, until, "", NOW_MS)


TALLIES = [
    Tally(100, "q", "published", 10, 1),
    Tally(100, "q", "acked", 4, 1),
    Tally(101, "q", "purged", 2, 1),
    Tally(102, "q", "published", 7, 1),
]


def test_totals_are_of_the_minutes_that_touch_the_span() -> None:
    found = spans.totals(TALLIES, 100 * MINUTE_MS + 1, 102 * MINUTE_MS)
    assert (found.published, found.acked, found.deleted) == (10, 4, 2)


T = spans.Totals


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [
        (T(), T(), "nothing happened in either"),
        (T(published=100), T(published=100, acked=90), "acks stopped; publishing as before"),
        (T(published=100, buried=3), T(published=99), "dead letters began; publishing as before"),
        (T(published=300), T(published=100), "publishing 3.0 times as many"),
        (T(published=100, acked=10), T(published=400, acked=100),
         "acks 10.0 times as few; publishing 4.0 times as few"),
    ],
)  # fmt: skip
def test_a_difference_is_said_in_words(here: T, there: T, says: str) -> None:
    assert spans.difference(here, there) == says


@pytest.mark.parametrize(
    ("ms", "says"),
    [(0, "0 ms"), (400, "400 ms"), (1_500, "1.5 s"), (2_000, "2 s"), (12_300, "12 s"),
     (185_000, "3 min 5 s"), (3 * HOUR_MS + 12 * MINUTE_MS, "3 h 12 min"), (HOUR_MS, "1 h"),
     (2 * DAY_MS + 4 * HOUR_MS, "2 d 4 h"), (-5, "0 ms")],
)  # fmt: skip
def test_a_duration_has_two_units_at_most(ms: int, says: str) -> None:
    assert words.duration(ms) == says


@pytest.mark.parametrize("ms", [0, 1, 1_000, 90_000, 4 * DAY_MS, 12 * HOUR_MS])
def test_a_typed_duration_reads_back(ms: int) -> None:
    assert spans.duration_ms(spans.duration_text(ms), "x") == ms


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("a\u202eb", "a\\u202eb"), ("a\x00\x1b[31m", "a\\x00\\x1b[31m"),
     ("a\u2066b", "a\\u2066b"), ("é 東", "é 東"), ("a\nb", "a\\nb"), ("\ud800", "\\ud800")],
)  # fmt: skip
def test_what_cannot_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert words.printable(text) == shown


def test_a_preview_is_one_short_line() -> None:
    assert words.preview(b'{"a":\n  1}') == '{"a": 1}'
    assert words.preview(b"\xff\x00") == "\\xff\\x00"
    assert len(words.preview("é".encode() * 10_000)) == words.PREVIEW_CHARACTERS + 1


@pytest.mark.parametrize(
    ("raw", "form", "shown"),
    [(b'{"a":1}', "pretty", '{\n  "a": 1\n}'), (b'{"a":1}', "raw", '{"a":1}'),
     (b"not json", "pretty", "not json"), (b"\xff", "raw", "\\xff"),
     (b"[" * 5_000, "pretty", "[" * 5_000),
     (b"A\x00", "hex", f"00000000  {'41 00':47}  A."), (b"", "hex", "")],
)  # fmt: skip
def test_a_body_is_text(raw: bytes, form: str, shown: str) -> None:
    assert shown_body(raw, form, "json") == shown
