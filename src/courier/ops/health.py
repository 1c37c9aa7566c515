"""What monitoring asks: is it up, can it write, and the figures."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from courier.clock import Clock
from courier.core.store import Store
from courier.core.sweeper import Sweeper
from courier.core.types import SECOND_MS, Head, Listener, Pipeline, Queue, Tenant
from courier.delivery.engine import Engine
from courier.telemetry import Telemetry, exposition
from courier.web import Call, Response, Route


class HealthRoutes:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        telemetry: Telemetry,
        sweeper: Sweeper,
        engine: Engine,
    ) -> None:
        self._engine = engine
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._sweeper = sweeper

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/health", self.health, None, "public", "Is the process up"),
            Route("GET", "/ready", self.ready, None, "public", "Can the store be written"),
            Route("GET", "/metrics", self.metrics, None, "public", "Figures for Prometheus"),
        ]

    async def health(self, _: Call) -> dict[str, str]:
        return {"status": "up"}

    async def ready(self, _: Call) -> dict[str, str]:
        await self._store.check()
        return {"status": "ready"}

    async def metrics(self, _: Call) -> Response:
        found = [*self._telemetry.metrics(), *await self._gauges()]
        return Response(exposition(found), content_type=b"text/plain; version=0.0.4")

    async def _gauges(self) -> list[Metric]:
        now_ms = self._clock.now_ms()
        labels = ("tenant", "queue")
        families = {
            "count": GaugeMetricFamily(
                "courier_backlog_messages", "Messages not yet done.", labels=labels
            ),
            "bytes": GaugeMetricFamily("courier_backlog_bytes", "Their bodies.", labels=labels),
            "leased": GaugeMetricFamily("courier_leases", "Leased messages.", labels=labels),
            "delayed": GaugeMetricFamily("courier_delayed", "Delayed messages.", labels=labels),
        }
        oldest = GaugeMetricFamily(
            "courier_oldest_age_seconds", "Age of the oldest message.", labels=labels
        )
        names = {tenant.id: tenant.name for tenant in await self._store.scan(Tenant)}
        for queue in await self._store.scan(Queue):
            stats = await self._store.stats(queue.id, now_ms=now_ms)
            label = (names.get(queue.tenant, queue.tenant), queue.name)
            for name, family in families.items():
                family.add_metric(label, getattr(stats, name))
            age_ms = max(0, now_ms - stats.oldest_ms) if stats.oldest_ms else 0
            oldest.add_metric(label, age_ms / SECOND_MS)
        return [
            *families.values(),
            oldest,
            *await self._push_gauges(names, now_ms),
            *await self._journal_gauges(),
            *(
                CounterMetricFamily(f"courier_store_{name}", "Counted by the store.", value=value)
                for name, value in self._store.figures().items()
            ),
        ]

    async def _push_gauges(self, tenants: dict[str, str], now_ms: int) -> list[Metric]:
        pushes = CounterMetricFamily(
            "courier_pushes", "Requests made to listeners.", labels=("outcome",)
        )
        pushes.add_metric(("taken",), self._engine.pushed)
        pushes.add_metric(("failed",), self._engine.failed)
        in_flight = GaugeMetricFamily(
            "courier_pushes_in_flight",
            "Requests that listeners have not answered yet.",
            value=self._engine.in_flight,
        )
        labels = ("tenant", "queue", "listener")
        open = GaugeMetricFamily(
            "courier_pushes_open", "Messages that a listener is still to get.", labels=labels
        )
        missed = GaugeMetricFamily(
            "courier_pushes_missed", "Of a listener's, those that have failed.", labels=labels
        )
        for listener in await self._store.scan(Listener):
            queue = await self._store.get(Queue, listener.parent)
            stats = await self._store.push_stats(listener.id, now_ms=now_ms)
            tenant = tenants.get(listener.tenant, listener.tenant)
            label = (tenant, queue.name if queue else "", listener.title)
            open.add_metric(label, stats.open)
            missed.add_metric(label, stats.missed)
        return [pushes, in_flight, open, missed]

    async def _journal_gauges(self) -> list[Metric]:
        head = await self._store.head()
        size = GaugeMetricFamily("courier_journal_bytes", "Size of the journal.")
        size.add_metric((), head.bytes)
        last = GaugeMetricFamily("courier_journal_last_offset", "Newest event's offset.")
        last.add_metric((), head.last)
        trims = CounterMetricFamily(
            "courier_journal_forced_trims",
            "Times the journal was cut before its readers were done, for lack of space.",
            value=self._sweeper.forced_trims,
        )
        return [size, last, trims, *await self._pipeline_gauges(head)]

    async def _pipeline_gauges(self, head: Head) -> list[Metric]:
        labels = ("pipeline",)
        offsets = GaugeMetricFamily(
            "courier_pipeline_lag_offsets", "Events a reader has not committed.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "courier_pipeline_lag_seconds", "Age of the oldest of them.", labels=labels
        )
        seen = GaugeMetricFamily(
            "courier_pipeline_seen_timestamp_seconds", "When it last committed.", labels=labels
        )
        now_ms = self._clock.now_ms()
        for pipeline in await self._store.scan(Pipeline):
            label = (pipeline.name,)
            offsets.add_metric(label, max(0, head.last - pipeline.offset))
            after = max(pipeline.offset, head.first - 1)
            runs = await self._store.read_journal(after=after, limit=1)
            age_ms = max(0, now_ms - runs[0].at_ms) if runs else 0
            seconds.add_metric(label, age_ms / SECOND_MS)
            seen.add_metric(label, pipeline.seen_ms / SECOND_MS)
        return [offsets, seconds, seen]
