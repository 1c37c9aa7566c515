"""Which tables a lake has, and where they lie."""

from collections.abc import Mapping

from courier.lake import schema
from courier.lake.tables import Table


class Lake:
    """The tables under one root: a folder, or any address that Spark and delta-rs can write to."""

    def __init__(self, root: str, *, storage: Mapping[str, str] | None = None) -> None:
        self.root = root.rstrip("/")

        def table(name: str, columns: schema.StructType, **partition_by: str) -> Table:
            return Table(root, name, columns, partition_by=partition_by, storage=storage)

        self.events = table("events", schema.EVENTS_TABLE, date="to_date(at)")
        self.messages = table(
            "messages",
            schema.MESSAGES,
            ended="if(done_at is null, 'live', date_format(done_at, 'yyyy-MM-dd'))",
        )
        self.queue_minutes = table("queue_minutes", schema.QUEUE_MINUTES, date="to_date(minute)")
        self.consumers_hours = table(
            "consumers_hours", schema.CONSUMERS_HOURS, date="to_date(hour)"
        )
        self.audit = table("audit", schema.AUDIT, date="to_date(run_at)")
        self.tables = (
            self.events,
            self.messages,
            self.queue_minutes,
            self.consumers_hours,
            self.audit,
        )
