"""What monitoring asks: is it up, can it write, and the figures."""

from collections.abc import Callable
from typing import Literal

from courier.core.slices import Slices
from courier.core.types import SECOND_MS, JournalHead, Listener, Pipeline, Queue, QueueStats, Tenant
from courier.ops.services import OpsFamily
from courier.telemetry import Metric, label_text
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
        # What servers share is told by the one that sweeps, so that sums over all are right.
        if await self._services.sweeper.is_ours():
            found += await self._queue_gauges(tenants, now_ms)
            found += await self._listener_gauges(tenants, now_ms)
            found += await self._journal_gauges()
        body = b"".join([each.text() for each in found])
        return Response(body, content_type=b"text/plain; version=0.0.4")

    async def _queue_gauges(self, tenants: dict[str, str], now_ms: int) -> list[Metric]:
        gauges = [(Metric(name, told), read) for name, told, read in _OF_QUEUES]
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

    async def _listener_gauges(self, tenants: dict[str, str], now_ms: int) -> list[Metric]:
        open = Metric("courier_pushes_open", "Messages that a listener is still to get.")
        missed = Metric("courier_pushes_missed", "Those that have failed or expired.")
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
        requests = Metric("courier_pushes", "Requests made to listeners.", kind="counter")
        requests.add(label_text(outcome="taken"), pushes.pushed)
        requests.add(label_text(outcome="failed"), pushes.failed)
        found = [
            requests,
            Metric(
                "courier_journal_forced_trims",
                "Times the journal was cut before its readers were done, for lack of space.",
                self._services.sweeper.forced_trims,
                kind="counter",
            ),
            Metric(
                "courier_pushes_in_flight",
                "Requests that listeners have not answered yet.",
                pushes.in_flight,
            ),
            Metric(
                "courier_push_bytes_in_flight",
                "Bytes of messages on their way to listeners and workers.",
                pushes.room.held,
            ),
        ]
        free_bytes = health.free_bytes()
        if free_bytes is not None:
            told = "Bytes that the disk has left for messages, with what deleted ones have left."
            found.append(Metric("courier_disk_free_bytes", told, free_bytes))
        counted = health.figures().items()
        return found + [
            Metric(f"courier_store_{name}", "Counted by the store.", value, kind="counter")
            for name, value in counted
        ]

    async def _journal_gauges(self) -> list[Metric]:
        """How long the journal lasts is absent as long as the rate of events is not known."""
        head, room = await self._reads.journal.head(), await self._services.sweeper.room()
        found = [
            Metric("courier_journal_bytes", "Size of the journal.", head.bytes),
            Metric("courier_journal_last_offset", "Newest event's offset.", head.last),
        ]
        if room is not None:
            found += [
                Metric(
                    "courier_journal_holds_seconds",
                    "Time whose events fit into the journal, at the rate of those that it holds.",
                    room.holds_ms / SECOND_MS,
                ),
                Metric(
                    "courier_journal_left_seconds",
                    "Time until the journal is at its cap, at that rate and if nothing is trimmed.",
                    room.left_ms / SECOND_MS,
                ),
                Metric(
                    "courier_journal_retention_seconds",
                    "Time that events are kept, unless the cap is reached before.",
                    room.retention_ms / SECOND_MS,
                ),
            ]
        return found + await self._pipeline_gauges(head)

    async def _pipeline_gauges(self, head: JournalHead) -> list[Metric]:
        offsets = Metric("courier_pipeline_lag_offsets", "Events a reader has not committed.")
        seconds = Metric("courier_pipeline_lag_seconds", "Age of the oldest of them.")
        seen = Metric("courier_pipeline_seen_timestamp_seconds", "When it last committed.")
        now_ms = self._clock.now_ms()
        for pipeline in self._records.scan(Pipeline):
            label = label_text(pipeline=pipeline.name)
            offsets.add(label, max(0, head.last - pipeline.offset))
            after = max(pipeline.offset, head.first - 1)
            runs = await self._reads.journal.read(after=after, limit=1)
            age_ms = max(0, now_ms - runs[0].at_ms) if runs else 0
            seconds.add(label, age_ms / SECOND_MS)
            seen.add(label, pipeline.seen_ms / SECOND_MS)
        return [offsets, seconds, seen]


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
