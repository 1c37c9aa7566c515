"""Which tables a lake has, and where they lie."""

from collections.abc import Sequence

from courier.lake import schema
from courier.lake.schema import TableSchema
from courier.lake.storage import hindrance
from courier.lake.tables import FILE_ROWS_MAX, LakeError, Table

# The partition of messages that have not ended.
LIVE = "live"
# Every batch writes the file of the last minutes again.
MINUTES_ROWS_MAX = 5_000


class Lake:
    """The tables under one root: a folder, or an address such as s3://bucket/lake."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

        def table(
            name: str,
            columns: TableSchema,
            *,
            sort_by: Sequence[str] = (),
            file_rows_max: int = FILE_ROWS_MAX,
            **partition_by: str,
        ) -> Table:
            return Table(
                root,
                name,
                columns,
                partition_by=partition_by,
                sort_by=sort_by,
                file_rows_max=file_rows_max,
            )

        self.events = table("events", schema.EVENTS_TABLE, date="to_date(at)")
        self.messages = table(
            "messages",
            schema.MESSAGES,
            sort_by=("published_at",),
            ended=f"if(done_at is null, '{LIVE}', date_format(done_at, 'yyyy-MM-dd'))",
        )
        self.queue_minutes = table(
            "queue_minutes",
            schema.QUEUE_MINUTES,
            sort_by=("minute",),
            file_rows_max=MINUTES_ROWS_MAX,
            date="to_date(minute)",
        )
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
        # Those that are made of events.
        self.derived = self.tables[1:]

    def check(self, *, write: bool = False) -> None:
        """Raises LakeError when it cannot be reached, or, with `write`, not be written to.

        And Damaged when a table has lost a commit or a file, as far as listings show it.
        """
        if reason := hindrance(self.root, write=write):
            raise LakeError(reason)
        for table in self.tables:
            table.check_files()
