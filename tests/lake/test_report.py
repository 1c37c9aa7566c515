"""What a report tells is what the lake holds, whatever the lake holds."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from courier.cli.main import main
from courier.lake import figures, plots, query, report
from courier.lake.catalog import Lake
from tests.cli.command import Command
from tests.lake.lakes import SmallLake, counted

START_MS = 1_794_816_000_000  # 2026-11-16T08:00:00Z
MINUTE_MS = 60_000
HOSTILE = "<b onmouseover=\"alert(1)\">&amp; 'q'</b>\x1b"


class Page(HTMLParser):
    """A report as a browser would take it apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cards: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self.plots = 0
        self.said = ""
        self._at = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._at = tag
        self.plots += tag == "svg"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._at == "style":
            return
        self.said += data
        if self._at == "dt":
            self.cards[data] = ""
        elif self._at == "dd":
            self.cards[list(self.cards)[-1]] = data
        elif self._at in ("td", "th"):
            self.rows[-1][-1] += data


class Tables:
    """A lake's tables, empty at first, without a lake."""

    def __init__(self, nowhere: Path) -> None:
        self.connection = figures.connect(Lake(str(nowhere)))

    def add(self, table: str, **values: Any) -> None:
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" for _ in values)
        self.connection.execute(
            f"insert into {table} ({names}) values ({marks})", [*values.values()]
        )

    def minute(self, number: int, *, queue: str = "orders", **counts: int) -> None:
        at = _at(START_MS + number * MINUTE_MS)
        counted = {"published": 0, "acked": 0, "backlog": 0, "oldest_ms": 0, **counts}
        self.add("queue_minutes", queue_id=queue, queue=queue, minute=at, **counted)

    def acked(self, done_ms: int, *, total_ms: int, queue: str = "orders") -> None:
        self.add(
            "messages",
            queue_id=queue,
            queue=queue,
            message_id=f"m{done_ms}",
            published_at=_at(done_ms - total_ms),
            done_at=_at(done_ms),
            outcome="acked",
            attempts=1,
            wait_ms=total_ms // 2,
            work_ms=total_ms - total_ms // 2,
            total_ms=total_ms,
        )

    def event(self, at_ms: int, kind: str, *, queue: str = "orders") -> None:
        self.add("events", offset=1, at=_at(at_ms), kind=kind, queue=queue)

    def audit(self, *, queue: str = "orders", **found: int) -> None:
        none = dict.fromkeys(
            ("accepted", "acked", "buried", "expired", "purged", "deleted", "live_lake",
             "difference", "gaps", "double_leases", "unleased_acks", "revived",
             "order_violations"), 0,
        )  # fmt: skip
        values = {"batch": 1, **none, **found}
        self.add("audit", run_at=_at(START_MS), queue_id=queue, queue=queue, **values)

    def figures(self, **which: Any) -> figures.Figures:
        return figures.gather(self.connection, **which)

    def page(self, **which: Any) -> Page:
        return Page(report.render(self.figures(**which), made_ms=START_MS))


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "nowhere")


def test_an_empty_lake_gives_a_page_that_says_so(tables: Tables) -> None:
    page = tables.page()
    assert "The lake is empty" in page.said
    assert page.plots == 0


def test_a_time_in_which_nothing_happened_is_not_an_empty_lake(tables: Tables) -> None:
    tables.event(START_MS, "published")
    tables.minute(0, published=1)
    assert "Nothing happened here in this time" in tables.page(until_ms=START_MS).said


def test_headline_and_tables_add_up_what_the_minutes_say(tables: Tables) -> None:
    for number in range(30):
        tables.minute(
            number, published=10, acked=9, leased=12, retried=2, lease_expired=1, bytes=100
        )
        tables.acked(START_MS + number * MINUTE_MS, total_ms=1_000 + number)
    tables.minute(29, queue="other", published=1_234, backlog=7)
    page = tables.page()
    assert page.cards["Published"] == "1,534"
    assert page.cards["Acked"] == "270"
    assert page.cards["Backlog"] == "7"
    assert page.cards["Time to done"] == "1 s"
    assert page.cards["Wasted attempts"] == "25.0%"
    assert ["other", "1,234", "0", "0", "0", "7", "-", "-"] in page.rows
    assert ["total", "from publish to the ack", "1 s", "1 s", "1 s"] in page.rows
    assert page.plots == 7


def test_a_report_of_one_queue_leaves_out_the_others(tables: Tables) -> None:
    tables.minute(0, published=1)
    tables.minute(0, queue="other", published=5)
    tables.minute(9, queue="other", published=5)
    assert tables.page(queue="other").cards["Published"] == "10"
    assert tables.page(queue="other", since_ms=START_MS + MINUTE_MS).cards["Published"] == "5"
    assert tables.page(until_ms=START_MS + MINUTE_MS).cards["Published"] == "6"


def test_a_percentile_is_missing_where_nothing_was_measured(tables: Tables) -> None:
    for number in (0, 1, 4, 60):
        tables.minute(number, acked=1)
        tables.acked(START_MS + number * MINUTE_MS, total_ms=number + 1)
    values = tables.figures().series["total_p95"]
    assert [n for n, value in enumerate(values) if value is not None] == [0, 1, 4, 60]
    assert (values[4], len(values)) == (5, 61)


def test_a_backlog_stays_and_ages_until_the_next_row_of_its_queue(tables: Tables) -> None:
    tables.minute(0, backlog=3, oldest_ms=500)
    tables.minute(20, queue="other", backlog=2, oldest_ms=100)
    tables.minute(30, backlog=0)
    series = tables.figures().series
    assert series["backlog"][0] == 3
    assert series["oldest"][0] == 500
    assert series["backlog"][19:21] == [3, 5]
    assert series["oldest"][20] == 500 + 20 * MINUTE_MS
    assert series["backlog"][30] == 2
    assert series["oldest"][30] == 100 + 10 * MINUTE_MS


def test_a_short_time_is_told_in_seconds(tables: Tables) -> None:
    tables.minute(0, published=3, acked=2)
    for second in (1, 1, 5):
        tables.event(START_MS + second * 1_000, "published")
    for second in (2, 9):
        tables.event(START_MS + second * 1_000, "acked")
        tables.acked(START_MS + second * 1_000, total_ms=1_000)
    found = tables.figures()
    assert found.span is not None
    assert (found.span.first_ms, found.span.step_ms, found.span.count) == (
        START_MS + 1_000,
        1_000,
        9,
    )
    assert found.series["published"] == [2, 0, 0, 0, 1, 0, 0, 0, 0]
    assert found.series["backlog"] == [1, 0, 0, 0, 0, 0, 0, 1, 0]
    assert found.series["oldest"][0] == 1_000


def test_a_year_fits_into_a_page_of_reasonable_size(tables: Tables) -> None:
    tables.connection.execute(
        """insert into queue_minutes by name select 'q' as queue_id, 'q' as queue,
           make_timestamptz((1794816000 + n * 3600) * 1000000) as minute, n % 97 as published,
           n % 89 as acked, n % 83 as backlog, n * 1000 as oldest_ms
           from range(24 * 365) as hours(n)"""
    )
    found = tables.figures()
    assert found.span is not None and found.span.step_ms == 24 * 60 * MINUTE_MS
    assert sum(value or 0 for value in found.series["published"]) == found.totals["published"]
    assert len(report.render(found, made_ms=START_MS)) < 300_000


def test_the_busiest_bucket_of_any_range_lies_inside_it(tables: Tables) -> None:
    for minutes in (1, 16, 360, 371, 3_000, 50_000, 600_000):
        tables.minute(minutes, published=1)
        span = tables.figures().span
        assert span is not None
        assert span.count <= figures.BUCKETS_MAX
        assert span.first_ms <= span.since_ms < span.until_ms <= span.edges_ms[-1]


def test_where_nothing_waited_the_age_of_the_oldest_has_a_gap(tables: Tables) -> None:
    tables.minute(0, published=1, backlog=1, oldest_ms=60_000)
    tables.minute(1)
    tables.minute(30, published=1, backlog=1, oldest_ms=60_000)
    found = tables.figures()
    assert found.span is not None and found.series["oldest"][1] is None
    drawn = plots.age(found.span, found.series["oldest"])
    assert re.findall(r'class="line s3" d="([^"]*)"', drawn)[0].count("M") == 2


def test_names_that_are_html_are_text(tables: Tables) -> None:
    tables.minute(0, queue=HOSTILE, published=1)
    tables.acked(START_MS, total_ms=1, queue=HOSTILE)
    tables.add(
        "consumers_hours", queue_id="q", queue=HOSTILE, actor=HOSTILE, hour=_at(START_MS),
        attempts=1, acked=1, wasted=0, lease_seconds=0.5, bytes=1,
    )  # fmt: skip
    shown = HOSTILE.replace("\x1b", "\\x1b")
    for page in (tables.page(), tables.page(queue=HOSTILE)):
        assert shown in page.said
        assert "b" not in {tag for tag, _ in page.tags}
        assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


def test_a_page_needs_nothing_from_elsewhere(tables: Tables) -> None:
    for number in range(20):
        tables.minute(number, published=1, acked=1, retried=1, buried=1, push_failed=1)
        tables.acked(START_MS + number * MINUTE_MS, total_ms=5)
    page = tables.page()
    assert {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "style"} == {"style"}
    targets = {value for _, attrs in page.tags for name, value in attrs.items() if name == "href"}
    assert all(str(target).startswith("#") for target in targets)
    assert "url(" not in page.text.replace("url(#", "")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert {str(target)[1:] for target in targets} <= set(ids)
    assert "@media print" in page.text and "prefers-color-scheme:dark" in page.text


def test_the_audit_is_told_as_it_is(tables: Tables) -> None:
    tables.minute(0, published=3)
    assert tables.page().cards["Audit"] == "none yet"
    tables.audit(accepted=3, acked=2, live_lake=1)
    page = tables.page()
    assert page.cards["Audit"] == "adds up"
    assert "3 messages accepted since the journal began, 2 acked and 1 still live" in page.said
    tables.audit(batch=2, accepted=4, acked=4)
    assert "4 messages accepted since the journal began, 4 acked and 0 still" in tables.page().said
    tables.audit(queue="other", batch=2, double_leases=4)
    tables.audit(queue="other", batch=3)
    page = tables.page()
    assert page.cards["Audit"] == "does not add up"
    assert "It does not add up: double leases: 4." in page.said
    assert tables.page(queue="orders").cards["Audit"] == "adds up"


def test_the_command_writes_what_the_journal_says(small: SmallLake, tmp_path: Path) -> None:
    courier = Command("--data", str(small.server.data), cwd=tmp_path)
    said = courier("report").out
    page = Page((tmp_path / "report.html").read_text())
    # Somebody may have published since.
    [[last]] = query.ask(small.lake, 'SELECT max("offset") FROM events', limit=1).rows
    kinds = counted(small.server, upto=int(str(last)))
    assert page.cards["Published"] == f"{kinds['published']:,}"
    assert page.cards["Acked"] == f"{kinds['acked']:,}"
    assert page.cards["Buried"] == f"{kinds['buried']:,}"
    assert f"report.html: {kinds['published']} messages published" in said
    courier("report", "--queue", "orders", "--since", "2h", "--out", "orders.html")
    page = Page((tmp_path / "orders.html").read_text())
    assert (page.cards["Published"], page.cards["Acked"]) == ("40", "25")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("--queue nobody", 2, "has no queue 'nobody'"),
        ("--since 1h --until 2h", 2, "--since must be before"),
        ("--since soon", 2, "'soon' is neither a time"),
        ("--out no/report.html", 1, "No such file or directory"),
        ("--lake nowhere", 1, "there is no lake at"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    small: SmallLake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    status: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words.split(), "--data", str(small.server.data)]) == status
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert told in err
    assert not list(tmp_path.iterdir())
