"""`queue purge`: messages deleted by a plan of the console, which can be undone."""

import argparse
import time

from courier.cli import output, plans
from courier.cli.asking import is_sure
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.errors import Failed, Misused
from courier.cli.parser import past
from courier.cli.resources import Verb, argument

PURGE_WAIT_SECONDS_MAX = 600.0
_POLL_SECONDS = 0.05
STATES = ("waiting", "leased", "delayed")


def _purge(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    queue = client.queue(args.name)["queue_id"]
    wanted = {
        "since": output.moment(args.since),
        "until": output.moment(args.until),
        "state": args.state or "",
        "q": args.search or "",
        "path": args.path or "",
    }
    if args.path and not args.search:
        raise Misused("--path needs the text to find there, as --search")
    if args.all:
        if any(wanted.values()):
            raise Misused("--all deletes every message: it cannot be used with a selection")
        _purge_all(args, client, queue)
        return
    facts = plans.make(client, {"action": "purge", "queue": queue, **wanted})
    if not facts["plan"]["count"]:
        print(f"there is nothing to delete in queue '{args.name}'; leased messages stay")
        return
    held = output.count(facts["plan"]["count"], "message")
    every = "" if any(wanted.values()) else "all "
    if args.dry_run:
        is_sure(args, args.name, f"{every}{held} of queue '{args.name}'")
        print(f"do it with: courier plan run {facts['plan']['id']}")
        return
    undo = facts["no_undo"] and f"\n{facts['no_undo']}"
    if not is_sure(args, args.name, f"{every}{held} of queue '{args.name}'{undo}"):
        return
    done = plans.run(client, facts)
    if done["state"] != "done":
        raise Failed(f"{done['state']}: {plans.done_words(done)}; {done['plan']['problem']}")
    left = done["skipped"]
    leased = f"; {output.count(left, 'message')} left alone, leased or settled" if left else ""
    print(f"purged {output.count(done['done'], 'message')} from queue '{args.name}'{leased}")
    plans.print_undo(done)


def _purge_all(args: argparse.Namespace, client: ApiClient, queue: str) -> None:
    path = f"/queues/{queue}"
    total = client.call("GET", f"{path}/metrics")["backlog_count"]
    held = output.count(total, "message")
    if not is_sure(args, args.name, f"all {held} of queue '{args.name}' for good"):
        return
    client.call("POST", f"{path}/purge", {"delete_messages_permanently": True})
    progress = output.ProgressBar("messages purged", total=total)
    deadline = time.monotonic() + PURGE_WAIT_SECONDS_MAX
    while client.call("GET", f"{path}/purge")["completed"] != "true":
        if time.monotonic() > deadline:
            progress.end()
            print(f"queue '{args.name}' is still being purged; the server goes on by itself")
            return
        left = client.call("GET", f"{path}/metrics")["backlog_count"]
        progress.at(max(0, total - left))
        time.sleep(_POLL_SECONDS)
    progress.end()
    print(f"purged {held} from queue '{args.name}'")


_WHICH = ("selection", "all messages that are not leased, or only:")
PURGE = Verb(
    help="delete messages of a queue; this can be undone", run=_purge, json=False, asks=True,
    takes=[
        argument("name", metavar="NAME"),
        argument("--since", type=past, metavar="TIME", under=_WHICH,
                 help="published since: 10m ago, or 2026-01-31T12:00:00Z"),
        argument("--until", type=past, metavar="TIME", help="published before", under=_WHICH),
        argument("--state", choices=STATES, help="in this state", under=_WHICH),
        argument("--search", metavar="TEXT", help="with this in body, headers or id",
                 under=_WHICH),
        argument("--path", metavar="PATH", under=_WHICH,
                 help="with the text of --search at this path of a JSON body"),
        argument("--all", action="store_true", under=_WHICH,
                 help="every message, also leased ones and those kept for listeners; "
                 "cannot be undone"),
    ])  # fmt: skip
