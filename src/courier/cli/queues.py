"""`queue`: the queues of a tenant and how they are consumed."""

import argparse
from datetime import datetime
from typing import Any

from courier.cli import output, overview, purges
from courier.cli.asking import add_asking, is_sure
from courier.cli.client import ApiClient
from courier.cli.credentials import access, add_access
from courier.cli.errors import Failed, Misused
from courier.cli.parser import DURATION, Commands, command, group, milliseconds, seconds, whole
from courier.cli.watching import add_watch, watched


def add(commands: Commands) -> None:
    queues = group(commands, "queue", "list, create, change and delete queues")

    overview.add_list(queues)

    create = command(queues, "create", "create a queue that clients can pull from", _create)
    create.add_argument("name", metavar="NAME")
    _add_rules(create)
    create.add_argument("--dead-letter", metavar="NAME", help="queue that buried messages go to")
    create.add_argument(
        "--no-consumer", action="store_true", help="do not let clients pull from it yet"
    )
    output.add_json(create)
    add_access(create)

    show = command(queues, "show", "show a queue, its consumer and its backlog", _show)
    show.add_argument("name", metavar="NAME")
    add_watch(show)
    form = show.add_mutually_exclusive_group()
    form.add_argument("--id", action="store_true", help="print its id alone")
    output.add_json(form)
    add_access(show)

    update = command(queues, "update", "change settings of a queue", _update)
    update.add_argument("name", metavar="NAME")
    update.add_argument("--rename", metavar="NAME", help="its new name")
    _add_rules(update)
    letters = update.add_mutually_exclusive_group()
    letters.add_argument("--dead-letter", metavar="NAME", help="queue that buried messages go to")
    letters.add_argument(
        "--no-dead-letter", action="store_true", help="drop buried messages from now on"
    )
    output.add_json(update)
    add_access(update)

    ending = command(queues, "delete", "delete a queue and its messages", _delete)
    ending.add_argument("name", metavar="NAME")
    add_asking(ending)
    add_access(ending)

    purges.add_purge(queues)

    for name, help, setting, to, said in (
        ("pause", "stop handing out messages", "paused", True, "paused"),
        ("resume", "hand out messages again", "paused", False, "resumed"),
        ("freeze", "refuse new messages", "frozen", True, "froze"),
        ("unfreeze", "take new messages again", "frozen", False, "unfroze"),
    ):
        switch = command(queues, name, help, _switch)
        switch.add_argument("name", metavar="NAME")
        switch.set_defaults(setting=setting, to=to, said=said)
        add_access(switch)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_argument_group("rules", f"times are written like {DURATION}")
    rules.add_argument(
        "--delay", type=seconds, metavar="TIME", help="wait before a new message is handed out"
    )
    rules.add_argument(
        "--retention", type=seconds, metavar="TIME", help="time after which a message is dropped"
    )
    rules.add_argument(
        "--max-retries", type=whole(0, 10**9), metavar="N", help="attempts after the first one"
    )
    rules.add_argument(
        "--retry-delay", type=seconds, metavar="TIME", help="wait before the next attempt"
    )
    rules.add_argument(
        "--lease", type=milliseconds, metavar="TIME", help="time a consumer has for a message"
    )


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


def _switch(args: argparse.Namespace) -> None:
    """Pause or freeze it, or end that."""
    client = ApiClient(access(args))
    if args.setting == "frozen":
        client.freeze(args.name, frozen=args.to)
    else:
        path = f"/queues/{client.queue(args.name)['queue_id']}"
        client.call("PATCH", path, {"settings": {"delivery_paused": args.to}})
    print(f"{args.said} queue '{args.name}'")
