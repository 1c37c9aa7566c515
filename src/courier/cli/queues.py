"""`queue`: the queues of a tenant and how they are consumed."""

import argparse
from datetime import datetime
from functools import partial
from typing import Any

from courier.cli import output, overview, purges
from courier.cli.asking import is_sure
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.errors import Failed, Misused
from courier.cli.parser import DURATION, Commands, milliseconds, seconds, whole
from courier.cli.resources import Verb, argument, as_json
from courier.cli.resources import add as add_resource
from courier.cli.watching import watched


def _queue_rules(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say about the queue itself."""
    return _given(delivery_delay=args.delay, message_retention_period=args.retention)


def _consumer_rules(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say about its consumer, but for the dead-letter queue."""
    return _given(
        max_retries=args.max_retries,
        retry_delay=args.retry_delay,
        visibility_timeout_ms=args.lease,
    )


def _given(**named: object) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value is not None}


def _create(args: argparse.Namespace) -> None:
    rules = _consumer_rules(args)
    if args.no_consumer and (rules or args.dead_letter is not None):
        raise Misused(
            "--max-retries, --retry-delay, --lease and --dead-letter are settings of the consumer: "
            "leave out --no-consumer"
        )
    client = ApiClient(access(args))
    made = client.call("POST", "/queues", {"queue_name": args.name, "settings": _queue_rules(args)})
    if not args.no_consumer:
        path = f"/queues/{made['queue_id']}"
        consumer = {"type": "http_pull", "settings": rules}
        consumer |= _given(dead_letter_queue=args.dead_letter)
        try:
            client.call("POST", f"{path}/consumers", consumer)
        except Failed:
            client.call("DELETE", path)
            raise
    if args.json:
        output.print_json(client.queue(args.name))
    else:
        print(f"created queue '{args.name}'")


def _show(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    watched(args.watch, lambda: _show_once(client, args))


def _show_once(client: ApiClient, args: argparse.Namespace) -> None:
    queue = client.queue(args.name)
    if args.id:
        print(queue["queue_id"])
        return
    metrics = client.call("GET", f"/queues/{queue['queue_id']}/metrics")
    if args.json:
        output.print_json({**queue, "metrics": metrics})
        return
    rows: list[list[object]] = [
        ["name", queue["queue_name"]],
        ["id", queue["queue_id"]],
        ["created", output.dated(_ms(queue["created_on"]))],
        ["modified", output.dated(_ms(queue["modified_on"]))],
        ["delay", output.duration(queue["settings"]["delivery_delay"])],
        ["retention", output.duration(queue["settings"]["message_retention_period"])],
        ["paused", queue["settings"]["delivery_paused"]],
        ["messages", metrics["backlog_count"]],
        ["bytes", metrics["backlog_bytes"]],
        ["oldest message", output.dated(metrics["oldest_message_timestamp_ms"])],
    ]
    for consumer in queue["consumers"]:
        rows.append(["consumer", consumer["type"]])
        rows.append(["dead letter", consumer["dead_letter_queue"]])
        rows += [[name.replace("_", " "), value] for name, value in consumer["settings"].items()]
    output.table(["property", "value"], rows)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def _update(args: argparse.Namespace) -> None:
    queue_body = _given(queue_name=args.rename, settings=_queue_rules(args) or None)
    rules = _consumer_rules(args)
    changes_consumer = bool(rules) or args.dead_letter is not None or args.no_dead_letter
    if not queue_body and not changes_consumer:
        raise Misused("name at least one thing to change")
    client = ApiClient(access(args))
    queue = client.queue(args.name)
    path = f"/queues/{queue['queue_id']}"
    # The consumer first: it is the change with more reasons to be refused.
    if changes_consumer:
        now: dict[str, Any] = queue["consumers"][0] if queue["consumers"] else {"type": "http_pull"}
        consumer = {**now, "settings": {**now.get("settings", {}), **rules}}
        consumer |= _given(dead_letter_queue=args.dead_letter)
        if args.no_dead_letter or not consumer.get("dead_letter_queue"):
            consumer.pop("dead_letter_queue", None)
        if "consumer_id" in now:
            client.call("PUT", f"{path}/consumers/{now['consumer_id']}", consumer)
        else:
            client.call("POST", f"{path}/consumers", consumer)
    if queue_body:
        client.call("PATCH", path, queue_body)
    queue = client.call("GET", path)
    if args.json:
        output.print_json(queue)
    else:
        print(f"updated queue '{queue['queue_name']}'")


def _delete(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    path = f"/queues/{client.queue(args.name)['queue_id']}"
    held = output.count(client.call("GET", f"{path}/metrics")["backlog_count"], "message")
    if is_sure(args, args.name, f"queue '{args.name}' with {held}"):
        client.call("DELETE", path)
        print(f"deleted queue '{args.name}' with {held}")


def _switch(args: argparse.Namespace, setting: str, to: bool, said: str) -> None:
    client = ApiClient(access(args))
    if setting == "frozen":
        client.freeze(args.name, frozen=to)
    else:
        path = f"/queues/{client.queue(args.name)['queue_id']}"
        client.call("PATCH", path, {"settings": {"delivery_paused": to}})
    print(f"{said} queue '{args.name}'")


_NAME = argument("name", metavar="NAME")
_LETTERS: dict[str, Any] = {"metavar": "NAME", "help": "queue that buried messages go to"}
_RULES = [
    argument(*words, type=kind, metavar="N" if words == ("--max-retries",) else "TIME", help=help,
             under=("rules", f"times are written like {DURATION}"))
    for words, kind, help in (
        (("--delay",), seconds, "wait before a new message is handed out"),
        (("--retention",), seconds, "time after which a message is dropped"),
        (("--max-retries",), whole(0, 10**9), "attempts after the first one"),
        (("--retry-delay",), seconds, "wait before the next attempt"),
        (("--lease",), milliseconds, "time a consumer has for a message"),
    )
]  # fmt: skip
_VERBS = {
    "list": overview.LIST,
    "create": Verb(
        help="create a queue that clients can pull from", run=_create,
        takes=[
            _NAME, *_RULES,
            argument("--dead-letter", **_LETTERS),
            argument("--no-consumer", action="store_true",
                     help="do not let clients pull from it yet"),
        ]),
    "show": Verb(
        help="show a queue, its consumer and its backlog", run=_show, watch=True, json=False,
        takes=[
            _NAME,
            argument("--id", action="store_true", help="print its id alone", either="form"),
            as_json(either="form"),
        ]),
    "update": Verb(
        help="change settings of a queue", run=_update,
        takes=[
            _NAME, argument("--rename", metavar="NAME", help="its new name"), *_RULES,
            argument("--dead-letter", either="letters", **_LETTERS),
            argument("--no-dead-letter", action="store_true", either="letters",
                     help="drop buried messages from now on"),
        ]),
    "delete": Verb(help="delete a queue and its messages", run=_delete, json=False, asks=True,
                   takes=[_NAME]),
    "purge": purges.PURGE,
    **{
        name: Verb(help=help, run=partial(_switch, setting=setting, to=to, said=said), json=False,
                   takes=[_NAME])
        for name, help, setting, to, said in (
            ("pause", "stop handing out messages", "paused", True, "paused"),
            ("resume", "hand out messages again", "paused", False, "resumed"),
            ("freeze", "refuse new messages", "frozen", True, "froze"),
            ("unfreeze", "take new messages again", "frozen", False, "unfroze"),
        )
    },
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "queue", "list, create, change and delete queues", _VERBS)
