"""What the lake's tables must hold, computed event by event in plain Python."""

from collections import defaultdict
from datetime import datetime, timedelta
from math import ceil
from typing import Any

Row = dict[str, Any]

ENDS = ("acked", "buried", "expired", "purged", "deleted")
COUNTED = (
    *("published", "leased", "retried", "lease_expired", *ENDS),
    *("pushed", "push_failed"),
)


class Reference:
    """Follows a journal; `messages`, `queue_minutes` and `consumers_hours` are the tables' rows."""

    def __init__(self, events: list[Row]) -> None:
        self._messages: dict[tuple[str, int], Row] = {}
        self._leases: dict[tuple[str, int], Row] = {}
        self._minutes: dict[tuple[str, datetime], Row] = {}
        self._hours: dict[tuple[str, str, datetime], Row] = {}
        for event in events:
            if event["seq"] is not None:
                self._consume(event)
                self._follow(event)
                self._count(event)

    # --- messages ---

    @property
    def messages(self) -> list[Row]:
        return list(self._messages.values())

    @property
    def live(self) -> dict[str, int]:
        """How many messages each queue holds."""
        held: dict[str, int] = defaultdict(int)
        for row in self.messages:
            held[row["queue_id"]] += row["outcome"] == "live"
        return held

    def _follow(self, event: Row) -> None:
        key, kind, at = (event["queue_id"], event["seq"]), event["kind"], event["at"]
        if kind == "published":
            copied = (
                *("tenant", "queue_id", "queue", "message_id", "seq", "dialect", "actor"),
                *("published_at", "size", "content_type", "headers", "group", "body", "sealed"),
                "detail",
            )
            self._messages[key] = {
                **{name: event[name] for name in copied},
                **dict.fromkeys(("first_leased_at", "last_leased_at", "last_leased_by")),
                **dict.fromkeys(
                    ("done_at", "wait_ms", "work_ms", "total_ms", "done_offset", "gap")
                ),
                "outcome": "live",
                "attempts": 0,
                "published_offset": event["offset"],
                "ended": "live",
            }
            return
        row = self._messages[key]
        if kind == "leased":
            row["attempts"] += 1
            row["first_leased_at"] = row["first_leased_at"] or at
            row |= {"last_leased_at": at, "last_leased_by": event["actor"], "work_ms": None}
            row["wait_ms"] = ms(row["published_at"], row["first_leased_at"])
        elif kind in ("retried", "lease_expired"):
            row["work_ms"] = ms(row["last_leased_at"], at)
        elif kind in ENDS:
            row |= {
                "outcome": kind,
                "done_at": at,
                "done_offset": event["offset"],
                "total_ms": ms(row["published_at"], at),
                "work_ms": None,
                "ended": at.strftime("%Y-%m-%d"),
            }
            if kind == "acked" and row["attempts"]:
                row["work_ms"] = ms(row["last_leased_at"], at)

    # --- queue_minutes ---

    @property
    def queue_minutes(self) -> list[Row]:
        rows = []
        for row in self._minutes.values():
            shown = {name: value for name, value in row.items() if not isinstance(value, list)}
            for what in ("wait", "work", "total"):
                values = sorted(row[what])
                for percent in (50, 95, 99):
                    place = ceil(percent * len(values) / 100) - 1
                    shown[f"{what}_p{percent}_ms"] = values[place] if values else None
            rows.append(shown)
        return rows

    def _count(self, event: Row) -> None:
        kind, at, queue = event["kind"], event["at"], event["queue_id"]
        if kind not in COUNTED:
            return
        minute = at.replace(second=0, microsecond=0)
        new: Row = {
            **{"queue_id": queue, "minute": minute, "date": minute.date(), "bytes": 0},
            "gap": None,
            **dict.fromkeys(COUNTED, 0),
            **{"wait": [], "work": [], "total": []},
        }
        row = self._minutes.setdefault((queue, minute), new)
        row |= {"tenant": event["tenant"], "queue": event["queue"]}
        row[kind] += 1
        if kind == "published":
            row["bytes"] += event["size"]
        if kind == "leased" and event["attempt"] == 1:
            row["wait"].append(ms(event["published_at"], at))
        if kind == "acked":
            row["total"].append(ms(event["published_at"], at))
            if event["last_leased_at"]:
                row["work"].append(ms(event["last_leased_at"], at))
        live = [m for m in self.messages if m["queue_id"] == queue and m["outcome"] == "live"]
        row["backlog"] = len(live)
        row["oldest_ms"] = None
        if live:
            oldest = min(live, key=lambda message: int(message["seq"]))
            row["oldest_ms"] = ms(oldest["published_at"], minute + timedelta(minutes=1))

    # --- consumers_hours ---

    @property
    def consumers_hours(self) -> list[Row]:
        rows = [dict(row) for row in self._hours.values()]
        for row in rows:
            row["lease_seconds"] = row.pop("lease_ms") / 1000
        return rows

    def _consume(self, event: Row) -> None:
        key, kind = (event["queue_id"], event["seq"]), event["kind"]
        if kind == "leased":
            self._leases[key] = event
            row = self._hour(event, event["actor"])
            row["attempts"] += 1
            row["bytes"] += event["size"]
        elif kind in ("retried", "lease_expired", *ENDS):
            lease = self._leases.pop(key, None)
            if lease is None and (kind != "acked" or not event["attempt"]):
                return
            row = self._hour(event, lease["actor"] if lease else event["actor"])
            row["acked"] += kind == "acked"
            row["wasted"] += kind in ("retried", "lease_expired")
            if lease:
                row["lease_ms"] += ms(lease["at"], event["at"])

    def _hour(self, event: Row, actor: str) -> Row:
        hour = event["at"].replace(minute=0, second=0, microsecond=0)
        new: Row = {
            **{"queue_id": event["queue_id"], "actor": actor, "hour": hour, "date": hour.date()},
            "gap": None,
            **dict.fromkeys(("attempts", "acked", "wasted", "lease_ms", "bytes"), 0),
        }
        row = self._hours.setdefault((event["queue_id"], actor, hour), new)
        row |= {"tenant": event["tenant"], "queue": event["queue"]}
        return row


def ms(begin: datetime, end: datetime) -> int:
    """Times of the broker are whole milliseconds; none passed if its clock was set back."""
    return max(0, (end - begin) // timedelta(milliseconds=1))
