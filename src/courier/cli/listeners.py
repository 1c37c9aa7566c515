"""`listener`: where a queue's messages are pushed to, and whether they arrive."""

import argparse
from typing import Any

from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.parser import DURATION, Commands, date, milliseconds, whole
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource
from courier.cli.workers import SECRET

_ROUTE = "/tenants/{tenant}/queues/{queue}/listeners"
_QUEUE = argument("queue", metavar="QUEUE")
_ONE = (_QUEUE, argument("listener", metavar="LISTENER"))


def _print(found: dict[str, Any]) -> None:
    last = found["attempts"][0] if found["attempts"] else None
    rows: list[list[object]] = [
        ["name", found["name"]],
        ["url", found["url"]],
        ["state", _state(found)],
        ["last answer", _answered(last) if last else ""],
        ["last success", output.dated(found["last_success_ms"])],
        ["last failure", output.dated(found["last_failure_ms"])],
        ["next attempt", output.dated(found["next_attempt_ms"] if found["enabled"] else None)],
        ["waiting", found["open"]],
        ["failed", found["missed"]],
        ["acknowledged", found["acknowledged"]],
        ["in flight at most", found["in_flight_max"] or ""],
        ["per second at most", found["per_second_max"] or ""],
    ]
    output.table(["property", "value"], rows)
    if found["attempts"]:
        print()
        output.table(
            ["time", "message", "attempt", "status", "answer"],
            [
                [
                    output.age(each["at_ms"]),
                    each["message"],
                    each["attempt"],
                    each["status"] or "none",
                    each["error"] or each["answer"],
                ]
                for each in found["attempts"]
            ],
        )


def _state(found: dict[str, Any]) -> str:
    if not found["enabled"]:
        why = " after it answered 410" if found["disabled_by"] == "gone" else ""
        return f"disabled{why}; `courier listener enable` resumes it"
    if found["inactive_ms"]:
        return f"inactive since {output.dated(found['inactive_ms'])}: {found['last_failure']}"
    since = found["last_success_ms"] or 0
    if found["missed"] and (found["last_failure_ms"] or 0) > since:
        return f"failing since {output.dated(since)}" if since else "failing; it has taken none yet"
    return str(found["liveness"])


def _answered(attempt: dict[str, Any]) -> str:
    """The status and the beginning of what was answered, or why nothing was."""
    if not attempt["status"]:
        return f"none: {attempt['error']}"
    return f"{attempt['status']} {attempt['answer']}".strip()


def _tested(found: dict[str, Any]) -> None:
    print(f"{output.cell(_answered(found))} ({found['duration_ms']} ms)")


def _retried(done: dict[str, Any]) -> None:
    print(f"{output.count(done['retried'], 'message')} will be pushed again now")
    if done["more"]:
        print("older ones are left: run it again when these are done")


def _moment(text: str) -> dict[str, int]:
    """A point in time, or a duration before now, as the server wants to be told."""
    try:
        return {"since_ms": date(text)}
    except argparse.ArgumentTypeError:
        return {"since_ago_ms": milliseconds(text)}


def _backfill(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    wanted: dict[str, Any] = dict(args.since or {})
    if args.until is not None:
        wanted["until_ms"] = args.until
    progress = output.ProgressBar("messages")
    bound = client.backfill(args.queue, args.listener, wanted, progress.at)
    progress.end()
    print(f"{output.count(bound, 'message')} will be pushed to '{args.listener}'")


_VERBS = {
    "list": Verb(
        help="list the listeners of a queue", route=f"GET {_ROUTE}", takes=[_QUEUE], watch=True,
        member="listeners", columns=("name", "url", "enabled", "liveness", "open", "missed",
                                     "acknowledged", "created")),
    "add": Verb(
        help="push a queue's messages to a URL, and print the secret", route=f"POST {_ROUTE}",
        takes=[
            _QUEUE,
            argument("listener", metavar="LISTENER", member="name", help="its name on this queue"),
            argument("listener_url", metavar="URL", member="url",
                     help="where messages are pushed to"),
            argument("--liveness-url", metavar="URL", member="liveness_url",
                     help="probed to see whether it is up; default: URL"),
            SECRET,
            argument("--ordered", action="store_true", member="ordered",
                     help="push one message at a time, in order"),
            argument("--envelope", action="store_true", member="envelope",
                     help="send each body inside JSON with ids and names"),
            argument("--timeout", type=milliseconds, metavar="TIME", member="timeout_ms",
                     help="longest wait for an answer, 1s to 30s"),
            argument("--attempts", type=whole(1, 11), metavar="N", member="attempts_max",
                     help="most attempts for a message, 1 to 11; default 11"),
            argument("--in-flight", type=whole(1, 10), metavar="N", member="in_flight_max",
                     help="most requests at a time, 1 to 10"),
            argument("--per-second", type=whole(1, 1_000), metavar="N", member="per_second_max",
                     help="most requests per second, 1 to 1000"),
        ],
        member="secret"),
    "show": Verb(
        help="show a listener and its last attempts", route=f"GET {_ROUTE}/{{listener}}",
        takes=_ONE, show=_print, watch=True),
    "test": Verb(
        help="send a signed request now, and show the answer",
        route=f"POST {_ROUTE}/{{listener}}/test", takes=_ONE, show=_tested,
        failed=lambda found: "" if found["ok"] else "the listener did not take it"),
    "retry-failed": Verb(
        help="push all failed messages again now",
        route=f"POST {_ROUTE}/{{listener}}/retry-failed", takes=_ONE, show=_retried),
    "enable": Verb(
        help="resume pushes to a listener", route=f"PUT {_ROUTE}/{{listener}}/enabled", takes=_ONE,
        body={"enabled": True}, said="listener '{listener}' is enabled"),
    "disable": Verb(
        help="suspend pushes to a listener", route=f"PUT {_ROUTE}/{{listener}}/enabled",
        takes=_ONE, body={"enabled": False}, said="listener '{listener}' is disabled"),
    "backfill": Verb(
        help="push a queue's earlier messages to a listener", run=_backfill, json=False,
        takes=[
            *_ONE,
            argument("--since", type=_moment, metavar="TIME",
                     help="only what was published since, as 2026-01-31T12:00:00Z, or how long "
                     f"ago: {DURATION}"),
            argument("--until", type=date, metavar="TIME",
                     help="only what was published before, as 2026-01-31T12:00:00Z"),
        ]),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "listener", "push the messages of a queue to URLs", _VERBS)
