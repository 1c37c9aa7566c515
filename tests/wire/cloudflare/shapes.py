"""Exact shapes of the API's objects: every field, no other field, and the type of each."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Check = Callable[[Any], bool]

_ID = re.compile(r"[0-9a-f]{32}")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_QUEUE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# No test looks back further than this, on whatever machine it runs.
_RECENT = timedelta(minutes=10)


def whole(value: Any) -> bool:
    """An integer, and not a JSON number with a fraction or an exponent."""
    return type(value) is int


def text(value: Any) -> bool:
    return isinstance(value, str)


def filled(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def identifier(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def queue_name(value: Any) -> bool:
    return isinstance(value, str) and _QUEUE_NAME.fullmatch(value) is not None


def moment(value: Any) -> bool:
    """A timestamp in UTC, of a moment during this run."""
    if not isinstance(value, str) or _TIMESTAMP.fullmatch(value) is None:
        return False
    return abs(datetime.now(UTC) - datetime.fromisoformat(value)) < _RECENT


def moment_ms(value: Any) -> bool:
    """The same in milliseconds since 1970."""
    return whole(value) and abs(datetime.now(UTC).timestamp() * 1000 - value) < 600_000


def between(low: int, high: int) -> Check:
    return lambda value: whole(value) and low <= value <= high


def one_of(*values: Any) -> Check:
    return lambda value: any(value == known and type(value) is type(known) for known in values)


def exactly(value: Any, fields: Mapping[str, Check], *, optional: tuple[str, ...] = ()) -> None:
    assert isinstance(value, dict), value
    missing = set(fields) - set(optional) - set(value)
    surplus = set(value) - set(fields)
    assert not missing and not surplus, f"missing {missing}, surplus {surplus}: {value}"
    wrong = {name: value[name] for name in value if not fields[name](value[name])}
    assert not wrong, f"{wrong} in {value}"


def check_queue(value: Any) -> None:
    exactly(
        value,
        {
            "queue_id": identifier,
            "queue_name": queue_name,
            "created_on": moment,
            "modified_on": moment,
            "producers": lambda producers: producers == [],
            "producers_total_count": one_of(0),
            "consumers": lambda consumers: isinstance(consumers, list),
            "consumers_total_count": whole,
            "settings": lambda settings: isinstance(settings, dict),
            "jurisdiction": one_of("eu", "us", "fedramp"),
        },
        optional=("jurisdiction",),
    )
    exactly(
        value["settings"],
        {
            "delivery_delay": between(0, 86_400),
            "delivery_paused": flag,
            "message_retention_period": between(60, 1_209_600),
        },
    )
    assert value["consumers_total_count"] == len(value["consumers"])
    for consumer in value["consumers"]:
        check_consumer(consumer)
        assert consumer["queue_id"] == value["queue_id"]
        assert consumer["queue_name"] == value["queue_name"]


def check_consumer(value: Any) -> None:
    fields: dict[str, Check] = {
        "consumer_id": identifier,
        "type": one_of("worker", "http_pull"),
        "created_on": moment,
        "queue_name": queue_name,
        "queue_id": identifier,
        "dead_letter_queue": lambda name: name == "" or queue_name(name),
        "settings": lambda settings: isinstance(settings, dict),
    }
    settings: dict[str, Check] = {
        "batch_size": between(1, 100),
        "max_retries": between(0, 100),
        "retry_delay": between(0, 86_400),
    }
    if value["type"] == "worker":
        fields |= {"script_name": filled, "script": filled}
        settings |= {
            "max_wait_time_ms": between(0, 60_000),
            "max_concurrency": lambda count: count is None or between(1, 250)(count),
        }
    else:
        settings |= {"visibility_timeout_ms": between(0, 43_200_000)}
    exactly(value, fields)
    exactly(value["settings"], settings)
    assert value.get("script") == value.get("script_name")


def check_metrics(value: Any) -> None:
    exactly(
        value,
        {
            "backlog_count": whole,
            "backlog_bytes": whole,
            "oldest_message_timestamp_ms": lambda ms: moment_ms(ms) or one_of(0)(ms),
        },
    )
    assert (value["backlog_count"] == 0) == (value["oldest_message_timestamp_ms"] == 0)


def check_pushed(value: Any) -> None:
    exactly(value, {"metadata": lambda metadata: set(metadata) == {"metrics"}})
    check_metrics(value["metadata"]["metrics"])


def check_pull(value: Any) -> None:
    exactly(
        value,
        {
            "message_backlog_count": whole,
            "messages": lambda messages: isinstance(messages, list),
            "metadata": lambda metadata: set(metadata) == {"metrics"},
        },
    )
    check_metrics(value["metadata"]["metrics"])
    assert value["message_backlog_count"] == value["metadata"]["metrics"]["backlog_count"]
    for message in value["messages"]:
        check_pulled(message)


def check_pulled(value: Any) -> None:
    """A message that was handed out."""
    _check_message(value, "lease_id", attempts=between(1, 101))


def check_peeked(value: Any) -> None:
    """A message that was only looked at."""
    _check_message(value, "ref", attempts=between(0, 101))


def _check_message(value: Any, token: str, *, attempts: Check) -> None:
    exactly(
        value,
        {
            "id": identifier,
            "body": text,
            "timestamp_ms": moment_ms,
            "attempts": attempts,
            "metadata": lambda metadata: isinstance(metadata, dict),
            token: filled,
        },
    )
    exactly(
        value["metadata"],
        {
            "CF-Content-Type": one_of("text", "json", "bytes", "v8"),
            "CF-sourceMessageSource": one_of("http"),
        },
    )


def check_settled(value: Any) -> None:
    exactly(value, {"ackCount": whole, "retryCount": whole, "warnings": _texts})


def check_removed(value: Any) -> None:
    """The answer to a purge by reference."""
    exactly(value, {"errors": lambda errors: isinstance(errors, list), "warnings": _texts})
    for error in value["errors"]:
        exactly(error, {"message": filled})


def check_purge_status(value: Any) -> None:
    exactly(
        value,
        {
            "completed": one_of("true", "false", ""),
            "started_at": lambda started: started == "" or moment(started),
        },
    )
    assert (value["completed"] == "") == (value["started_at"] == "")


def check_subscription(value: Any) -> None:
    exactly(
        value,
        {
            "id": identifier,
            "created_at": moment,
            "modified_at": moment,
            "name": text,
            "enabled": flag,
            "source": lambda source: isinstance(source, dict) and filled(source["type"]),
            "destination": lambda destination: isinstance(destination, dict),
            "events": lambda events: len(events) > 0 and all(map(filled, events)),
        },
    )
    exactly(value["destination"], {"type": one_of("queues.queue"), "queue_id": identifier})


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(filled, value.values()))
