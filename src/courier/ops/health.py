"""What monitoring asks: is it up, can it write, and the figures."""

from collections.abc import Callable, Mapping
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from courier.core.slices import Slices
from courier.core.types import SECOND_MS, JournalHead, Listener, Pipeline, Queue, QueueStats, Tenant
from courier.ops.services import OpsFamily
from courier.telemetry import GaugeLines, exposition, label_text
from courier.web import Call, Response, Route


class HealthRoutes(OpsFamily):
    family = "health"

    def routes(self) -> list[Route]:
        scope: Literal["metrics"] | None = None if self._services.metrics_public else "metrics"
        return [
            Route("GET", "/health", self.health, None, "public", "Is the process up"),
            Route("GET", "/ready", self.ready, None, "public", "Can the store be written"),
            Route(
                "GET",
                "/metrics",
                self.metrics,
                scope,
                "whole" if scope else "public",
                "Figures for Prometheus",
                media=("text/plain",),
            ),
        ]

    async def health(self, _: Call) -> dict[str, str]:
        return {"status": "up"}

    async def ready(self, _: Call) -> dict[str, str]:
        await self._reads.health.check()
        return {"status": "ready"}

    async def metrics(self, _: Call) -> Response:
        """In slices: with many queues and listeners, others have their turn between them."""
        now_ms = self._clock.now_ms()
        tenants = {tenant.id: tenant.name for tenant in self._records.scan(Tenant)}
        found = [*self._services.telemetry.metrics(), *self._counters()]
        lines: list[GaugeLines] = []
        # What servers share is told by the one that sweeps, so that sums over all are right.
        if await self._services.sweeper.is_ours():
            lines += await self._queue_gauges(tenants, now_ms)
            lines += await self._listener_gauges(tenants, now_ms)
            found += await self._journal_gauges()
        body = b"".join([exposition(found), *(each.text() for each in lines)])
        return Response(body, content_type=b"text/plain; version=0.0.4")

    async def _queue_gauges(self, tenants: dict[str, str], now_ms: int) -> list[GaugeLines]:
        gauges = [(GaugeLines(name, told), read) for name, told, read in _OF_QUEUES]
        queues = self._records.scan(Queue)
        stats = await self._reads.stats([queue.id for queue in queues], now_ms=now_ms)
        slices = Slices()
        for queue in queues:
            await slices.turn()
            held = stats.get(queue.id)
            if held is None:
                continue  # deleted meanwhile
            labels = label_text(tenant=tenants.get(queue.tenant, queue.tenant), queue=queue.name)
            for gauge, read in gauges:
                gauge.add(labels, read(held, now_ms))
        return [gauge for gauge, _ in gauges]

    async def _listener_gauges(self, tenants: dict[str, str], now_ms: int) -> list[GaugeLines]:
        open = GaugeLines("courier_pushes_open", "Messages that a listener is still to get.")
        missed = GaugeLines("courier_pushes_missed", "Those that have failed or expired.")
        listeners = self._records.scan(Listener)
        ids = [listener.id for listener in listeners]
        stats = await self._reads.pushes.stats(ids, now_ms=now_ms)
        slices = Slices()
        for listener in listeners:
            await slices.turn()
            queue = self._records.get(Queue, listener.parent)
            if listener.id not in stats:
                continue
            labels = label_text(
                tenant=tenants.get(listener.tenant, listener.tenant),
                queue=queue.name if queue else "",
                listener=listener.title,
            )
            open.add(labels, stats[listener.id].open)
            missed.add(labels, stats[listener.id].missed + stats[listener.id].expired)
        return [open, missed]

    def _counters(self) -> list[Metric]:
        pushes, health = self._services.pushes, self._reads.health
        requests = CounterMetricFamily(
            "courier_pushes", "Requests made to listeners.", labels=("outcome",)
        )
        requests.add_metric(("taken",), pushes.pushed)
        requests.add_metric(("failed",), pushes.failed)
        trims = CounterMetricFamily(
            "courier_journal_forced_trims",
            "Times the journal was cut before its readers were done, for lack of space.",
            value=self._services.sweeper.forced_trims,
        )
        figures: dict[str, tuple[str, float | None]] = {
            "courier_pushes_in_flight": (
                "Requests that listeners have not answered yet.",
                pushes.in_flight,
            ),
            "courier_push_bytes_in_flight": (
                "Bytes of messages on their way to listeners and workers.",
                pushes.room.held,
            ),
            "courier_disk_free_bytes": (
                "Bytes that the disk has left for messages, with what deleted ones have left.",
                health.free_bytes(),
            ),
        }
        counted = [
            CounterMetricFamily(f"courier_store_{name}", "Counted by the store.", value=value)
            for name, value in health.figures().items()
        ]
        return [requests, trims, *_gauges(figures), *counted]

    async def _journal_gauges(self) -> list[Metric]:
        """How long the journal lasts is absent as long as the rate of events is not known."""
        head, room = await self._reads.journal.head(), await self._services.sweeper.room()
        figures: dict[str, tuple[str, float | None]] = {
            "courier_journal_bytes": ("Size of the journal.", head.bytes),
            "courier_journal_last_offset": ("Newest event's offset.", head.last),
        }
        if room is not None:
            figures |= {
                "courier_journal_holds_seconds": (
                    "Time whose events fit into the journal, at the rate of those that it holds.",
                    room.holds_ms / SECOND_MS,
                ),
                "courier_journal_left_seconds": (
                    "Time until the journal is at its cap, at that rate and if nothing is trimmed.",
                    room.left_ms / SECOND_MS,
                ),
                "courier_journal_retention_seconds": (
                    "Time that events are kept, unless the cap is reached before.",
                    room.retention_ms / SECOND_MS,
                ),
            }
        return [*_gauges(figures), *await self._pipeline_gauges(head)]

    async def _pipeline_gauges(self, head: JournalHead) -> list[Metric]:
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
        for pipeline in self._records.scan(Pipeline):
            label = (pipeline.name,)
            offsets.add_metric(label, max(0, head.last - pipeline.offset))
            after = max(pipeline.offset, head.first - 1)
            runs = await self._reads.journal.read(after=after, limit=1)
            age_ms = max(0, now_ms - runs[0].at_ms) if runs else 0
            seconds.add_metric(label, age_ms / SECOND_MS)
            seen.add_metric(label, pipeline.seen_ms / SECOND_MS)
        return [offsets, seconds, seen]


def _gauges(figures: Mapping[str, tuple[str, float | None]]) -> list[Metric]:
    """By name: what it tells, and its value if there is one."""
    return [
        GaugeMetricFamily(name, told, value=value)
        for name, (told, value) in figures.items()
        if value is not None
    ]


# Name, what it tells, and how it is read off what a queue holds now.
_OF_QUEUES: tuple[tuple[str, str, Callable[[QueueStats, int], float]], ...] = (
    ("courier_backlog_messages", "Messages not yet done.", lambda held, _: held.count),
    ("courier_backlog_bytes", "Their bodies.", lambda held, _: held.bytes),
    ("courier_leases", "Leased messages.", lambda held, _: held.leased),
    ("courier_delayed", "Delayed messages.", lambda held, _: held.delayed),
    (
        "courier_oldest_age_seconds",
        "Age of the oldest message.",
        lambda held, now_ms: max(0, now_ms - held.oldest_ms) / SECOND_MS if held.oldest_ms else 0,
    ),
)
