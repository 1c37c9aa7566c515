"""Questions to the lake: one SELECT at a time, in a process of its own. Also the audit."""

import asyncio
import csv
import io
import sys
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct

from courier.console import Page, Services, charts, forms, operates
from courier.console.guard import HEADERS, NOT_KEPT
from courier.core.broker import Caller
from courier.core.errors import InvalidRequest, RateLimited
from courier.core.types import MINUTE_MS, SECOND_MS
from courier.web import Call, Handler, Response

ROWS_MAX = 1_000
SQL_CHARACTERS_MAX = 64 << 10
ANSWER_BYTES_MAX = 64 << 20
PART_BYTES = 1 << 20
# A question ends by itself before this; only one that hangs is ended here.
WAIT_S_MAX = 40.0
# How long a question waits for the one before.
TURN_S_MAX = 5.0
# How old an answer to the audit may be where it only marks the first page.
AUDIT_OLD_MS = 10 * MINUTE_MS
AWAY = "The lake is not kept here. `courier up` keeps it."
_MODULE = "courier.lake.answer"
_AUDIT = """SELECT queue, queue_id, accepted, acked, buried, expired, purged, deleted,
  live_lake, live_broker, difference, gaps, double_leases, unleased_acks, revived,
  order_violations, run_at, first_offset, last_offset
FROM audit QUALIFY row_number() OVER (PARTITION BY queue_id ORDER BY batch DESC) = 1
ORDER BY queue"""
_FAILED = """SELECT max(run_at) AS failed FROM audit WHERE coalesce(difference, 0) <> 0
  OR coalesce(gaps, 0) + coalesce(double_leases, 0) + coalesce(unleased_acks, 0)
  + coalesce(revived, 0) + coalesce(order_violations, 0) > 0"""
_OFFSETS = 'SELECT min("offset") AS first, max("offset") AS last, count(*) AS events FROM events'
# The last event before says the state: what was retried waits, or is delayed.
HELD = """WITH seen AS (SELECT seq, arg_max(kind, "offset") AS kind,
    count(*) FILTER (kind = 'leased') AS attempts,
    arg_max("at", "offset") AS since, arg_max(coalesce(delay_ms, 0), "offset") AS delay_ms
  FROM events WHERE queue_id = '{queue}' AND epoch_ms("at") < {at_ms} AND seq IS NOT NULL
    AND kind IN ('published', 'leased', 'extended', 'retried', 'lease_expired') GROUP BY seq)
SELECT message_id, seq, epoch_ms(published_at) AS published_ms, size, body, seen.attempts,
  CASE WHEN kind IN ('leased', 'extended') THEN 'leased'
    WHEN epoch_ms(since) + seen.delay_ms >= {at_ms} THEN 'delayed'
    ELSE 'waiting' END AS state
FROM messages JOIN seen USING (seq)
WHERE queue_id = '{queue}' AND epoch_ms(published_at) < {at_ms}
  AND (done_at IS NULL OR epoch_ms(done_at) >= {at_ms}) ORDER BY seq"""
HELD_ROWS_MAX = 50
# What each consumer of a queue took in whole hours, the busiest first.
SHARES = """SELECT actor, sum(attempts) AS leased, sum(acked) AS acked, sum(wasted) AS returned
FROM consumers_hours WHERE queue_id = '{queue}' AND attempts > 0
  AND epoch_ms(hour) >= {since_ms} AND epoch_ms(hour) < {until_ms}
GROUP BY actor ORDER BY leased DESC, actor"""
# A publisher may use an id again: the last message that had it.
LIVED = """SELECT "offset", epoch_ms("at") AS at_ms, kind, queue, actor, dialect, attempt, lease_ms,
  delay_ms, detail
FROM events WHERE queue_id = '{queue}' AND seq = (SELECT max(seq) FROM events
  WHERE queue_id = '{queue}' AND kind = 'published' AND message_id = '{message}')
ORDER BY 1"""
FINDINGS = ("difference", "gaps", "double_leases", "unleased_acks", "revived", "order_violations")
ENDS = ("acked", "buried", "expired", "purged", "deleted")


class LakeAnswer(Struct):
    """What DuckDB says. `kinds` are time, number or "" for each column."""

    columns: list[str] = []
    kinds: list[str] = []
    rows: list[list[Any]] = []
    more: bool = False
    error: str = ""
    tables: dict[str, list[str]] = {}


class LakeFacts(Struct):
    away: str
    sql: str
    tables: dict[str, list[str]]
    questions: list[tuple[str, str]]
    answer: LakeAnswer | None = None
    problem: str = ""

    @property
    def queue_at(self) -> int:
        return _place(self.answer, "queue_id")

    @property
    def seq_at(self) -> int:
        return _place(self.answer, "seq")

    @property
    def chart(self) -> Markup:
        return chart(self.answer) if self.answer else Markup("")


class AuditFacts(Struct):
    """`figures` are (what, SQL); `rows` are those of queues, by column."""

    away: str
    sentence: str = ""
    good: bool = True
    checked: str = ""
    failed: str = ""
    rows: list[dict[str, Any]] = []
    figures: list[tuple[str, str]] = []
    problem: str = ""


class LakePages:
    """`found` is what the last audit that was looked at found, "" for nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turn = asyncio.Lock()
        self._tables: dict[str, list[str]] = {}
        self._questions = _questions()
        self.found = ""
        self._found_ms = 0
        self._looking: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_lake": self.show_lake,
            "ask_lake": self.ask_lake,
            "show_audit": self.show_audit,
        }

    def drain(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    @property
    def _here(self) -> bool:
        return (Path(self._services.lake) / "events" / "_delta_log").is_dir() and all(
            find_spec(name) for name in ("duckdb", "deltalake", "pyspark")
        )

    # --- asking ---

    async def ask(self, call: Call, sql: str, limit: int = ROWS_MAX) -> LakeAnswer:
        """Raises InvalidRequest with a sentence, RateLimited while another question runs."""
        tenant = "" if call.key and operates(call.key) else call.tenant
        return await self._ask(sql, tenant, limit, call.request.caller)

    async def messages(self, sql: str, tenant: str, limit: int) -> list[dict[str, Any]]:
        """The tenant's messages that a question names by queue_id and seq, with their bodies."""
        if not self._here:
            raise InvalidRequest("sql", AWAY)
        answer = await self._ask(sql, tenant, limit + 1, None, messages=True)
        if len(answer.rows) > limit:
            raise InvalidRequest(
                "sql", f"These are more than {limit:,} messages: `courier replay` takes any number."
            )
        return _dicts(answer)

    async def _ask(
        self, sql: str, tenant: str, limit: int, caller: Caller | None, *, messages: bool = False
    ) -> LakeAnswer:
        asked = {"root": self._services.lake, "sql": sql, "tenant": tenant, "limit": limit,
                 "messages": messages}  # fmt: skip
        try:
            await asyncio.wait_for(self._turn.acquire(), TURN_S_MAX)
        except TimeoutError as error:
            raise RateLimited("asking the lake", retry_after_ms=5 * SECOND_MS) from error
        try:
            said = await _said(asked, caller)
        except (TimeoutError, ConnectionError) as error:
            raise InvalidRequest("sql", "the question was stopped") from error
        finally:
            self._turn.release()
        try:
            answer = await asyncio.to_thread(msgspec.json.decode, said, type=LakeAnswer)
        except msgspec.DecodeError as error:
            raise InvalidRequest("sql", "the question was stopped") from error
        if answer.error:
            raise InvalidRequest("sql", answer.error)
        return answer

    async def rows(self, sql: str, limit: int) -> list[dict[str, Any]]:
        """The first rows of all tenants that answer a question of ours; raises as `ask` does."""
        if not self._here:
            raise InvalidRequest("sql", AWAY)
        return _dicts(await self._ask(sql, "", limit, None))

    async def held(self, queue: str, at_ms: int) -> list[dict[str, Any]] | None:
        """Messages that a queue held at a time, with the state of each; None without a lake."""
        sql = HELD.format(queue=queue.replace("'", ""), at_ms=at_ms)
        try:
            return await self.rows(sql, HELD_ROWS_MAX)
        except (InvalidRequest, RateLimited):
            return None

    async def lived(self, queue: str, message: str, limit: int) -> list[dict[str, Any]]:
        """The first events of a message that the journal no longer has, or cannot find."""
        sql = LIVED.format(queue=queue.replace("'", ""), message=message.replace("'", "''"))
        try:
            return await self.rows(sql, limit)
        except (InvalidRequest, RateLimited):
            return []

    # --- the page ---

    async def show_lake(self, call: Call) -> Page | Response:
        sql = call.request.query.get("sql", [""])[-1]
        return await self._answered(call, sql, call.request.query.get("as", [""])[-1])

    async def ask_lake(self, call: Call) -> Page | Response:
        asked: forms.Question = call.body
        return await self._answered(call, asked.sql, asked.form)

    async def _answered(self, call: Call, sql: str, form: str) -> Page | Response:
        facts = LakeFacts("" if self._here else AWAY, sql.strip(), {}, self._questions)
        if facts.away:
            return Page("lake.html", facts)
        try:
            if len(sql) > SQL_CHARACTERS_MAX:
                raise InvalidRequest("sql", f"must have at most {SQL_CHARACTERS_MAX} characters")
            if not self._tables:
                self._tables = (await self.ask(call, "")).tables
            facts.tables = self._tables
            if facts.sql:
                facts.answer = await self.ask(call, facts.sql)
        except InvalidRequest as error:
            facts.problem = error.reason
            return Page("lake.html", facts, 400)
        if facts.answer and form in ("csv", "json"):
            return await asyncio.to_thread(_download, facts.answer, form)
        return Page("lake.html", facts, large=True)

    # --- the audit ---

    async def show_audit(self, call: Call) -> Page | Response:
        if not self._here:
            return Page("audit.html", AuditFacts(AWAY))
        try:
            facts = await self._audit(call)
        except InvalidRequest as error:
            return Page("audit.html", AuditFacts("", problem=error.reason), 400)
        if call.key and operates(call.key):
            self._note(facts)
        if call.request.query.get("as", [""])[-1] == "file":
            page = Page("audit_file.html", facts)
            name = (b"content-disposition", b'attachment; filename="courier-audit.html"')
            page.headers = (name,)
            return page
        return Page("audit.html", facts, large=True)

    def _note(self, facts: AuditFacts) -> None:
        self.found = "" if facts.good else facts.sentence
        self._found_ms = self._services.clock.now_ms()

    async def _audit(self, call: Call) -> AuditFacts:
        rows = _dicts(await self.ask(call, _AUDIT))
        [failed] = _dicts(await self.ask(call, _FAILED))
        [offsets] = _dicts(await self.ask(call, _OFFSETS))
        return audited(rows, failed["failed"] or "", offsets)

    def look(self) -> str:
        """What the audit found lately; it is asked again, beside everything else, now and then."""
        now_ms = self._services.clock.now_ms()
        running = self._looking is not None and not self._looking.done()
        if now_ms - self._found_ms < AUDIT_OLD_MS or running:
            return self.found
        self._found_ms = now_ms
        if self._here:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return self.found

    async def _look(self) -> None:
        try:
            rows = _dicts(await self._ask(_AUDIT, "", ROWS_MAX, None))
        except (InvalidRequest, RateLimited):  # the audit's own page says what is wrong
            return
        self._note(audited(rows, "", {}))


async def _said(asked: dict[str, Any], caller: Caller | None) -> bytes:
    """What a process of its own answers, which ends with this call and when the caller leaves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        if caller is not None:
            caller.on_gone = partial(_end, process)
        process.stdin.write(msgspec.json.encode(asked) + b"\n")
        # Its standard input stays open: it ends when that is closed.
        return await asyncio.wait_for(_all_of(process.stdout), WAIT_S_MAX)
    finally:
        if caller is not None:
            caller.on_gone = None
        _end(process)
        await process.wait()


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while (part := await stream.read(PART_BYTES)) and len(found) < ANSWER_BYTES_MAX:
        found += part
    return bytes(found)


def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


def _questions() -> list[tuple[str, str]]:
    text = (Path(__file__).parent / "questions.sql").read_text()
    parts = [each.partition("\n") for each in text.split("-- ")[1:]]
    return [(words.strip(), sql.strip()) for words, _, sql in parts]


def _place(answer: LakeAnswer | None, name: str) -> int:
    return answer.columns.index(name) if answer and name in answer.columns else -1


def _dicts(answer: LakeAnswer) -> list[dict[str, Any]]:
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _download(answer: LakeAnswer, form: str) -> Response:
    if form == "json":
        body = msgspec.json.encode(_dicts(answer))
    else:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerows(
            [answer.columns, *([_cell(value) for value in row] for row in answer.rows)]
        )
        body = text.getvalue().encode("utf-8", "replace")
    name = (b"content-disposition", b'attachment; filename="answer.%s"' % form.encode())
    kind = b"application/octet-stream"
    return Response(body, content_type=kind, headers=(*HEADERS, NOT_KEPT, name))


def _cell(value: Any) -> Any:
    """A spreadsheet runs text that begins like a formula; a quote before it stops that."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky else value


def chart(answer: LakeAnswer) -> Markup:
    """A line for each column of numbers over the first column of times; nothing without both."""
    if "time" not in answer.kinds or len(answer.rows) < 2:
        return Markup("")
    at = answer.kinds.index("time")
    named = [(place, name) for place, name in enumerate(answer.columns)
             if answer.kinds[place] == "number"][: len(charts.LINES)]  # fmt: skip
    rows = sorted([row for row in answer.rows if row[at]], key=lambda row: str(row[at]))
    lines = [(name, [row[place] or 0 for row in rows]) for place, name in named]
    return charts.lines([str(row[at]) for row in rows], lines) if lines else Markup("")


def audited(rows: list[dict[str, Any]], failed: str, offsets: dict[str, Any]) -> AuditFacts:
    """The audit in one sentence. Pure."""
    queues = [row for row in rows if row["queue_id"]]
    wrong = [
        f"{name.replace('_', ' ')} {row[name]:,} on {row['queue'] or 'the journal'}"
        for row in rows
        for name in FINDINGS
        if row.get(name)
    ]
    accepted = sum(row["accepted"] or 0 for row in queues)
    ended = sum(row[kind] or 0 for row in queues for kind in ENDS)
    live = sum(row["live_lake"] or 0 for row in queues)
    checked = _second(max((str(row["run_at"]) for row in rows), default=""))
    known = all(row["live_broker"] is not None for row in queues)
    if not rows:
        sentence = "The pipeline has not audited yet; it does so once a minute."
    elif wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        sentence = f"Something does not add up: {', '.join(wrong[:5])}{more}; checked {checked}."
    else:
        through = (
            f"offsets {offsets['first']:,} to {offsets['last']:,} without a gap; "
            if offsets.get("first") else ""
        )  # fmt: skip
        agree = "lake and broker agree" if known else "the broker could not be asked for all queues"
        sentence = (
            f"Everything adds up: {accepted:,} accepted = {live:,} live + {ended:,} ended; "
            f"{through}{agree}; checked {checked}."
        )
    figures = [
        ("The table", _AUDIT),
        ("When it last failed", _FAILED),
        ("The offsets", _OFFSETS),
    ]
    return AuditFacts("", sentence, not wrong, checked, _second(failed), queues, figures)


def _second(text: str) -> str:
    """A time of the lake as pages show times."""
    return text[:19].replace("T", " ")
