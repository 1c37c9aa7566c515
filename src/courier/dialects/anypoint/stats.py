"""The stats API: what queues hold, what has happened to them, and what an organization uses."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

from msgspec import Struct

from courier.core.errors import InvalidRequest
from courier.core.slices import Slices
from courier.core.types import MINUTE_MS, SECOND_MS, Level, Queue, QueueStats, Tally, Tenant
from courier.dialects.anypoint.destinations import named_ids
from courier.dialects.anypoint.names import id_of
from courier.dialects.anypoint.paging import choice
from courier.dialects.anypoint.site import AnypointFamily, AnypointServices, AnypointSite
from courier.dialects.anypoint.wire import whole
from courier.web import Call, Parameter, Route

_ORGANIZATION = "/organizations/{organizationId}"
_ENVIRONMENT = _ORGANIZATION + "/environments/{environmentId}"
_REGION = _ENVIRONMENT + "/regions/{regionId}"
POINTS_MAX = 1_440
PERIOD_S_MAX = 86_400

_DATES = (
    Parameter("startDate", str, "First moment, in RFC 1123 or ISO 8601."),
    Parameter("endDate", str, "The moment after the last."),
)
_SERIES = (*_DATES, Parameter("period", int, "Seconds from point to point, 1 to 86400.", "3600"))
_USAGE = (*_DATES, Parameter("period", str, "`1hour`, `1day` or `1month`.", "1day"))
_QUEUES = Parameter("destinationIds", str, "Queues, separated by commas.", "orders")
_PERIODS = ("1hour", "1day", "1month")


class Current(Struct):
    destination: str
    messages: int
    inflightMessages: int


class Point(Struct):
    date: str
    value: int


class QueueSeries(Struct):
    destination: str
    messages: list[Point]
    inflightMessages: list[Point]
    messagesVisible: list[Point]
    messagesSent: list[Point]
    messagesReceived: list[Point]
    messagesAcked: list[Point]


class ExchangeSeries(Struct):
    destination: str
    messagesPublished: list[Point]
    messagesDelivered: list[Point]


class Use(Struct):
    timestamp: str
    apiRequestCount: int
    messageReceiptCount: int
    billableUnitCount: int
    messageByteCount: int


class StatsPeriod(Struct, frozen=True):
    """From `start_ms` to `end_ms`, in steps."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def starts(self) -> range:
        return range(self.start_ms, self.end_ms, self.step_ms)

    def place(self, minute: int) -> int:
        """Which step a minute counts in. The one that has begun before the first counts there."""
        return (max(minute * MINUTE_MS, self.start_ms) - self.start_ms) // self.step_ms

    def points(self, values: Sequence[int]) -> list[Point]:
        return [Point(_date(ms), value) for ms, value in zip(self.starts, values, strict=True)]


class StatsSite(AnypointSite):
    """The site under /mq/stats/api/v1."""

    prefix = "/mq/stats/api/v1"
    title = "Courier: Anypoint MQ, stats"
    counted = False

    def __init__(self, services: AnypointServices) -> None:
        super().__init__(services, StatsRoutes(services).table())


class StatsRoutes(AnypointFamily):
    family = "stats"

    def routes(self) -> list[Route]:
        return [
            Route("GET", _REGION + "/queues", self.current, "queues:read", "listed",
                  "What queues hold now", result=list[Current],
                  query=(_QUEUES,)),
            Route("GET", _REGION + "/queues/{queueId}", self.queue_series, "queues:read", "target",
                  "What happened on a queue", result=QueueSeries, query=_SERIES),
            Route("GET", _REGION + "/exchanges/{exchangeId}", self.exchange_series, "queues:read",
                  "target",
                  "What happened on an exchange", result=ExchangeSeries, query=_SERIES),
            Route("GET", _ORGANIZATION, self.organization_use, "usage:read", "whole",
                  "What an organization used", result=list[Use], query=_USAGE),
            Route("GET", _ENVIRONMENT, self.environment_use, "usage:read", "whole",
                  "What an environment used", result=list[Use], query=_USAGE),
        ]  # fmt: skip

    async def current(self, call: Call) -> list[Current]:
        ids = named_ids(call.request.query)
        if ids is None:
            raise InvalidRequest("destinationIds", "required")
        reach = call.reach
        found: list[tuple[str, Queue]] = []
        for id in ids:
            name = self._regions.name(id, call.params["regionId"])
            queue = self._records.named(Queue, tenant=call.tenant, name=name)
            if queue is not None and queue.id in reach:
                found.append((id, queue))
        stats = await self._broker.stats_of([queue for _, queue in found])
        rows = [(id, stats[queue.id]) for id, queue in found if queue.id in stats]
        return [Current(id, held.count - held.leased, held.leased) for id, held in rows]

    # --- series ---

    async def queue_series(self, call: Call) -> QueueSeries:
        queue = self._admin.queue_named(call.tenant, self._name(call, "queueId"))
        span = self._span(call.request.query)
        tallies = await self._tallies(call, queue.id, span)
        [levels] = await self._reads.past.levels([queue.id], since_ms=span.start_ms)
        now = await self._broker.stats(queue)
        held = _held(span, levels, now, queue.created_ms, self._clock.now_ms())
        return QueueSeries(
            call.params["queueId"],
            span.points([each.count - each.leased for each in held]),
            span.points([each.leased for each in held]),
            span.points([each.count - each.leased - each.delayed for each in held]),
            span.points(_sums(span, tallies, "published")),
            span.points(_sums(span, tallies, "leased")),
            span.points(_sums(span, tallies, "acked", "deleted")),
        )

    async def exchange_series(self, call: Call) -> ExchangeSeries:
        name = self._name(call, "exchangeId")
        exchange = self._admin.exchange_named(call.tenant, name)
        span = self._span(call.request.query)
        tallies = await self._tallies(call, exchange.id, span)
        return ExchangeSeries(
            call.params["exchangeId"],
            span.points(_sums(span, tallies, "routed")),
            span.points(_sums(span, tallies, "copied")),
        )

    async def _tallies(self, call: Call, id: str, span: StatsPeriod) -> list[Tally]:
        return await self._reads.past.tallies(
            tenant=call.tenant, id=id, since_ms=span.start_ms, until_ms=span.end_ms
        )

    def _span(self, query: Mapping[str, list[str]]) -> StatsPeriod:
        if "period" not in query:
            raise InvalidRequest("period", "required")
        period_s = whole(query["period"][0], "period", low=1, high=PERIOD_S_MAX)
        start_ms, end_ms = self._dates(query, period_s * SECOND_MS)
        span = StatsPeriod(start_ms, end_ms, period_s * SECOND_MS)
        if len(span.starts) > POINTS_MAX:
            raise InvalidRequest(
                "period", f"gives {len(span.starts)} points; at most {POINTS_MAX} are given"
            )
        return span

    def _dates(self, query: Mapping[str, list[str]], default_ms: int) -> tuple[int, int]:
        """Start and end; one that is missing is now, or `default_ms` away from the other."""
        end_ms = self._clock.now_ms()
        if "endDate" in query:
            end_ms = read_date(query["endDate"][0], "endDate")
        start_ms = end_ms - default_ms
        if "startDate" in query:
            start_ms = read_date(query["startDate"][0], "startDate")
        if start_ms >= end_ms:
            raise InvalidRequest("startDate", "must be before endDate")
        return start_ms, end_ms

    # --- use ---

    async def organization_use(self, call: Call) -> list[Use]:
        organization = id_of(call.params["organizationId"])
        assert call.key is not None
        tenants = [
            tenant.id
            for tenant in self._records.scan(Tenant)
            if tenant.organization == organization
            and (call.key.kind == "user" or tenant.id == call.key.tenant)
        ]
        return await self._use(call, tenants)

    async def environment_use(self, call: Call) -> list[Use]:
        return await self._use(call, [call.tenant])

    async def _use(self, call: Call, tenants: Sequence[str]) -> list[Use]:
        query = call.request.query
        if "period" not in query:
            raise InvalidRequest("period", "required")
        period: Any = choice(query, "period", _PERIODS)
        start_ms, end_ms = self._dates(query, _PERIOD_MS[period])
        now_ms = self._clock.now_ms()
        await self._services.usage.flush(now_ms=now_ms)
        use: dict[int, Use] = {}
        slices = Slices()
        for tenant in tenants:
            for tally in await self._reads.past.tallies(
                tenant=tenant, since_ms=start_ms, until_ms=end_ms
            ):
                await slices.turn()
                ms = _begin(max(tally.minute * MINUTE_MS, start_ms), period)
                if ms not in use:
                    if len(use) == POINTS_MAX:
                        raise InvalidRequest("period", f"gives more than {POINTS_MAX} points")
                    use[ms] = Use(_stamp(ms), 0, 0, 0, 0)
                _add(use[ms], tally)
        return [use[ms] for ms in sorted(use)]


_PERIOD_MS = {"1hour": 3_600_000, "1day": 86_400_000, "1month": 31 * 86_400_000}


def _add(use: Use, tally: Tally) -> None:
    if tally.kind == "requested":
        use.apiRequestCount += tally.count
    elif tally.kind in ("leased", "leased_units"):
        use.messageReceiptCount += tally.count
        use.billableUnitCount += tally.count
    if tally.kind in ("published", "leased"):
        use.messageByteCount += tally.bytes


def _sums(span: StatsPeriod, tallies: Sequence[Tally], *kinds: str) -> list[int]:
    sums = [0] * len(span.starts)
    for tally in tallies:
        if tally.kind in kinds:
            sums[span.place(tally.minute)] += tally.count
    return sums


def _held(
    span: StatsPeriod, levels: Sequence[Level], now: QueueStats, created_ms: int, now_ms: int
) -> list[Level | QueueStats]:
    """What the queue held at the end of each step; nothing is known of steps to come."""
    held: list[Level | QueueStats] = []
    place = 0
    for start_ms in span.starts:
        end_ms = min(start_ms + span.step_ms, span.end_ms)
        last = min(end_ms - 1, now_ms) // MINUTE_MS
        while place < len(levels) and levels[place].minute < last:
            place += 1
        if last < created_ms // MINUTE_MS:
            held.append(QueueStats())
        else:
            held.append(levels[place] if place < len(levels) else now)
    return held


def _begin(ms: int, period: Literal["1hour", "1day", "1month"]) -> int:
    at = datetime.fromtimestamp(ms / SECOND_MS, UTC)
    at = at.replace(minute=0, second=0, microsecond=0)
    if period != "1hour":
        at = at.replace(hour=0)
    if period == "1month":
        at = at.replace(day=1)
    return int(at.timestamp()) * SECOND_MS


def _date(ms: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}+0000"


def _stamp(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / SECOND_MS, UTC):%Y-%m-%dT%H:%MZ}"


_ISO = re.compile(r"\d{4}-\d\d-\d\d")
# As RFC 1123 has it, and as clients make of it: any weekday or none, and a zone or none.
_HTTP = re.compile(
    r"(?:[A-Za-z]{3,9},\s*)?(\d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d:\d\d)"
    r"(?:\s*(?:GMT|UTC|Z))?\s*(?:([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_YEARS = range(1970, 10_000)


def read_date(text: str, field: str) -> int:
    """Milliseconds of a date in RFC 1123 or ISO 8601; without a zone it is UTC."""
    text = text.strip()
    try:
        at = _iso(text) if _ISO.match(text) else _http(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if at.year not in _YEARS:
            raise ValueError
        return round(at.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(field, f"is not a date: '{text[:80]}'") from error


def _iso(text: str) -> datetime:
    # A plus that was not encoded in a query has become a blank.
    return datetime.fromisoformat(re.sub(r"(?<=\d) (?=\d\d:?\d\d$)", "+", text))


def _http(text: str) -> datetime:
    match = _HTTP.fullmatch(re.sub(r" (?=\d\d:?\d\d$)", "+", text))
    if match is None:
        raise ValueError
    day, sign, hours, minutes = match.groups()
    at = datetime.strptime(day, "%d %b %Y %H:%M:%S")
    if sign is None:
        return at
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return at.replace(tzinfo=timezone(offset if sign == "+" else -offset))
