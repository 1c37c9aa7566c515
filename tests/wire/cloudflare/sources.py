"""The table of event sources: what identifies each, and the events it knows."""

from typing import Any, NamedTuple


class Source(NamedTuple):
    type: str
    fields: tuple[str, ...]
    events: tuple[str, ...]

    def example(self, mark: str = "1") -> dict[str, Any]:
        """A source object; another mark makes it another resource, if it has fields."""
        return {"type": self.type, **{field: f"some-{field}-{mark}" for field in self.fields}}


SOURCES = (
    Source("kv", (), ("namespace.created", "namespace.deleted")),
    Source("r2", (), ("bucket.created", "bucket.deleted")),
    Source(
        "superSlurper",
        (),
        (
            "job.started",
            "job.paused",
            "job.resumed",
            "job.completed",
            "job.aborted",
            "job.object.migrated",
        ),
    ),
    Source("vectorize", (), ("index.created", "index.deleted")),
    Source("workersAi.model", ("model_name",), ("batch.queued", "batch.succeeded", "batch.failed")),
    Source(
        "workersBuilds.worker",
        ("worker_name",),
        ("build.started", "build.failed", "build.canceled", "build.succeeded"),
    ),
    Source(
        "workflows.workflow",
        ("workflow_name",),
        (
            "instance.queued",
            "instance.started",
            "instance.paused",
            "instance.errored",
            "instance.terminated",
            "instance.completed",
        ),
    ),
    Source("images", (), ("image.uploaded", "image.anything")),
    Source(
        "workers.script",
        ("script_tag",),
        (
            "deployment.created",
            "deployment.deleted",
            "version.created",
            "version.deleted",
            "worker.created",
            "worker.updated",
            "worker.deleted",
        ),
    ),
    Source("artifacts", (), ("repo.created", "repo.deleted", "repo.forked", "repo.imported")),
    Source(
        "artifacts.repo",
        ("namespace", "repo_name"),
        ("pushed", "cloned", "fetched", "token.created", "token.revoked"),
    ),
    Source("browserRun", (), ("crawl.started", "crawl.updated", "crawl.finished")),
    Source(
        "email.sending",
        ("zone_id", "domain"),
        (
            "message.delivered",
            "message.deferred",
            "message.bounced",
            "message.failed",
            "message.rejected",
            "message.complained",
        ),
    ),
    Source("access", (), ("application.created", "application.deleted")),
    Source("stream", (), ("video_state.ready", "video_state.updated")),
    Source(
        "stream.liveInput",
        (),
        ("live_input.connected", "live_input.disconnected", "live_input.errored"),
    ),
    Source(
        "courier.queue",
        (),
        ("created", "updated", "deleted", "paused", "resumed", "purged", "backlog.exceeded"),
    ),
    Source("courier.message", (), ("buried",)),
    Source("courier.listener", (), ("inactive", "active", "disabled", "enabled", "exhausted")),
    Source("courier.pipeline", (), ("run.completed", "run.failed")),
)
