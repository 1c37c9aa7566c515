"""The journal's events: which kinds there are, what each carries, and how packed runs unfold.

Message events carry `seq`, `own_id` (only when the publisher chose the id), `published_ms` and
`size`, and besides:

    published       content_type, headers, group, body; delay_ms when delayed; sealed when the body
                    is encrypted; detail = origin, or {"exchange": id} when it came through one
    leased          attempt, lease_ms
    extended        attempt, lease_ms
    retried         attempt, delay_ms        the delay that will really pass
    lease_expired   attempt, delay_ms
    acked           attempt, first_leased_ms, last_leased_ms; attempt is 0 and the times are absent
                    if it was published for one listener only
    buried          the same; detail = {"into": queue id or null}
    expired, purged, deleted     the same; attempt is 0 and the times are absent if never leased
    renamed         detail = {"name": name}
    pushed          attempt; detail = {"listener", "status", "duration_ms"}, with the beginning of
                    the answer's body as "answer" if it had one
    push_failed     the same, with "error", and delay_ms unless it was the last attempt
    push_dropped    attempt; detail = {"listener", "reason"}: a push that was still to succeed is
                    given up because its message went (`expired`, `purged`, `deleted`) or its
                    listener did (`listener`)

`acked` to `deleted` end a message on this queue; pushes may go on after `acked`, `buried` and, by
the queue's retention, `expired`. A burial is preceded by the `retried` or `lease_expired` that
caused it (with no delay_ms), and followed by the `published` of the copy on the dead-letter queue;
a redrive is a `published` on the source with its origin, then a `deleted` here.

Settings events (`queue_created`, `consumer_deleted`, ...) carry the record as `detail`, which on
an update also has the names of the fields that changed, as `changed`, and the `address` that the
request for it came from. They are tallied under the queue that they are about, or else under the
tenant.

    signin_failed   detail = {"reason", "address", "count", "since_ms"}: how many requests failed
                    like this within a minute. actor is the id of the key, tenant its tenant, both
                    empty if there is no such key; see `signins.py`

`damage_accepted` is no tenant's: the operator started on a damaged store, and `detail` has the
`frame` of `frames` of the log at which it ends, how many commits were `lost` at least, or what was
wrong with the `database`.

Beside the kinds of events, tallies count (see `core/types.py`)

    requested       API requests of a tenant
    routed          drafts published to an exchange; `bytes` are those of the drafts
    copied          messages that an exchange put on queues
    leased_units    further units of 100 KiB, beyond one each, of what was leased from a queue
"""

from collections.abc import Iterator, Sequence
from typing import Any

from courier import event_columns, ids
from courier.core.types import (
    Binding,
    Consumer,
    Domain,
    EventSubscription,
    Exchange,
    Key,
    KeyUse,
    Listener,
    Liveness,
    Pipeline,
    Queue,
    Run,
    Schema,
    Session,
    Tenant,
    Worker,
)

MESSAGE_KINDS = (
    "published",
    "leased",
    "extended",
    "acked",
    "retried",
    "lease_expired",
    "buried",
    "expired",
    "purged",
    "deleted",
    "renamed",
    "pushed",
    "push_failed",
    "push_dropped",
)
RECORD_KINDS: dict[type, str] = {
    Tenant: "tenant",
    Key: "key",
    KeyUse: "key_use",
    Session: "session",
    Queue: "queue",
    Schema: "schema",
    Exchange: "exchange",
    Binding: "binding",
    Consumer: "consumer",
    Worker: "worker",
    Listener: "listener",
    Liveness: "liveness",
    Domain: "domain",
    EventSubscription: "subscription",
    Pipeline: "pipeline",
}
# Nothing about them is an event of the journal.
UNNOTED = (KeyUse, Liveness)
# Their updates are progress, not news.
UNNOTED_UPDATES = (Pipeline, Session, *UNNOTED)
# What is no change; see `Note`.
NOTE_KINDS = ("signin_failed",)
OPERATOR_KINDS = ("damage_accepted",)
KINDS = frozenset((*MESSAGE_KINDS, *NOTE_KINDS, *OPERATOR_KINDS)) | {
    f"{name}_{what}"
    for kind, name in RECORD_KINDS.items()
    if kind not in UNNOTED
    for what in ("created", "updated", "deleted")
}
# Fields of records that stay out of the journal.
SECRET_FIELDS = ("digest", "retired", "sealed", "secrets", "private", "file_content")
UNIT_BYTES = 100 << 10
FIELDS = tuple([each.field for each in event_columns.ALL])
COLUMNS = tuple([each.field for each in event_columns.OWN])
TIMES = tuple([each.field for each in event_columns.ALL if each.kind == event_columns.TIME])
# Names in tables -> fields.
SHOWN = {each.name: each.field for each in event_columns.ALL}


def column(run: Run, name: str) -> list[Any]:
    """One value per event of the run."""
    if name == "message_id":
        return _message_ids(run)
    value = run.columns.get(name)
    return value if isinstance(value, list) else [value] * run.count


def _message_ids(run: Run) -> list[str | None]:
    if "seq" not in run.columns:
        return [None] * run.count
    times_and_seqs = zip(column(run, "published_ms"), column(run, "seq"), strict=True)
    made = ids.message_ids(times_and_seqs, queue=run.queue)
    return [own or id for own, id in zip(column(run, "own_id"), made, strict=True)]


def cut(runs: Sequence[Run], *, after: int, limit: int) -> Iterator[tuple[Run, int, int]]:
    """The part `[start, stop)` of each run that lies in the first `limit` offsets past `after`."""
    for run in runs:
        start = max(0, after + 1 - run.offset)
        stop = min(run.count, start + limit)
        if start < stop:
            limit -= stop - start
            yield run, start, stop


def events(runs: Sequence[Run], *, after: int, limit: int) -> Iterator[dict[str, Any]]:
    """Unfold runs into one dict per event; absent values are left out."""
    for run, start, stop in cut(runs, after=after, limit=limit):
        common = {
            "at_ms": run.at_ms,
            "kind": run.kind,
            "tenant": run.tenant,
            "queue": run.queue,
            "queue_name": run.queue_name,
            "actor": run.actor,
            "dialect": run.dialect,
        }
        columns = {name: column(run, name) for name in COLUMNS}
        for i in range(start, stop):
            event: dict[str, Any] = {"offset": run.offset + i, **common}
            for name, values in columns.items():
                if values[i] is not None:
                    event[name] = values[i]
            yield event
