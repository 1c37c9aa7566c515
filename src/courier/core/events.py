"""What an event of the journal says besides its columns: `detail`, made here for every store.

`journal.py` lists the kinds of events and what each carries.
"""

from typing import Any

import msgspec

from courier.core.journal import RECORD_KINDS, SECRET_FIELDS, UNNOTED, UNNOTED_UPDATES
from courier.core.types import Actor, AnyRecord, Binding, Queue, Report


def setting(
    record: AnyRecord | None, known: AnyRecord | None, *, actor: Actor
) -> tuple[str, dict[str, Any]] | None:
    """Kind and detail of a change from `known` to `record`; None: it is no event.

    Where there was no record before it is `<kind>_created`, where there is none after it
    `<kind>_deleted`, else `<kind>_updated` with the names of the fields that `changed`, sorted.
    """
    shown = record or known
    assert shown is not None, "nothing changed"
    updated = record is not None and known is not None
    if isinstance(shown, UNNOTED_UPDATES if updated else UNNOTED):
        return None
    detail = msgspec.to_builtins(shown)
    if updated:
        names = type(shown).__struct_fields__
        changed = [name for name in names if getattr(known, name) != getattr(record, name)]
        detail["changed"] = sorted(changed)
    for name in SECRET_FIELDS:
        detail.pop(name, None)
    if actor.address:
        detail["address"] = actor.address
    what = "updated" if updated else "created" if known is None else "deleted"
    return f"{RECORD_KINDS[type(shown)]}_{what}", detail


def queue_of(record: AnyRecord) -> str:
    """The id of the queue that a record is about, if it is about one."""
    if isinstance(record, Queue):
        return record.id
    return record.queue if isinstance(record, Binding) else record.parent


def routed(exchange: str) -> dict[str, Any]:
    """Of a `published` that came through an exchange."""
    return {"exchange": exchange}


def buried(into: str | None) -> dict[str, Any]:
    return {"into": into}


def renamed(name: str) -> dict[str, Any]:
    return {"name": name}


def push(listener: str, report: Report, *, failed: bool) -> dict[str, Any]:
    """Of an attempt to push a message: `pushed` or `push_failed`."""
    detail: dict[str, Any] = {
        "listener": listener,
        "status": report.status,
        "duration_ms": report.duration_ms,
    }
    if failed:
        detail["error"] = report.error
    if report.answer:
        detail["answer"] = report.text
    return detail


def push_dropped(listener: str, reason: str) -> dict[str, Any]:
    return {"listener": listener, "reason": reason}
