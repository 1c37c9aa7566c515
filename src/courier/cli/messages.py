"""`publish`, `pull`, `ack`, `peek` and `redrive`: messages, by hand."""

import argparse
import base64
import binascii
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.errors import Failed, Misused
from courier.cli.parser import DURATION, Commands, milliseconds, seconds, whole
from courier.cli.resources import Verb, argument, declare

BODY_BYTES_MAX = 16 * 1024 * 1024
BATCH_COUNT_MAX = 100
BATCH_BYTES_MAX = 256_000
_CHUNK_BYTES = 64 * 1024
# The server's reasons for not redriving a message.
_SKIPS = {
    "not_found": "no such message on this queue",
    "not_buried": "not a dead letter; `courier replay` publishes it again",
    "source_beyond_reach": "buried from a queue that the key does not reach",
    "source_deleted": "buried from a queue that was deleted",
    "leased": "leased by a consumer; try again when the lease has ended",
}


# --- publish ---------------------------------------------------------------------------------


def _publish(args: argparse.Namespace) -> None:
    if sum((args.body is not None, args.file is not None, args.lines)) != 1:
        raise Misused("give one of BODY, - (for stdin), --file and --lines")
    if args.id is not None and args.lines:
        raise Misused("--id names one message: it cannot be used with --lines")
    if args.id is not None and not (args.id.isascii() and args.id.isprintable() and args.id):
        raise Misused("--id takes printable ASCII characters")
    if args.lines:
        _publish_lines(args)
        return
    draft = _draft(_body(args), args)
    client = ApiClient(access(args))
    path = f"/queues/{client.queue(args.queue)['queue_id']}/messages"
    headers = {} if args.id is None else {"Idempotency-Key": args.id}
    metrics = client.call("POST", path, draft, headers=headers)["metadata"]["metrics"]
    holds = output.count(metrics["backlog_count"], "message")
    print(f"published; queue '{args.queue}' holds {holds}")


def _body(args: argparse.Namespace) -> bytes:
    try:
        if args.file is not None:
            with args.file.open("rb") as file:
                content: bytes = file.read(BODY_BYTES_MAX + 1)
        elif args.body == "-":
            content = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
            if not content:
                raise Misused("stdin was empty: nothing was published; '' is an empty body")
        else:
            content = os.fsencode(args.body)
    except OSError as error:
        raise Misused(f"cannot read {args.file}: {error.strerror}") from error
    if len(content) > BODY_BYTES_MAX:
        raise Misused(f"the body is longer than {BODY_BYTES_MAX} bytes")
    return content


def _draft(body: bytes, args: argparse.Namespace) -> dict[str, Any]:
    """A message as the wire has it. JSON keeps the text it was given, digit for digit."""
    draft: dict[str, Any] = {"content_type": args.type}
    try:
        if args.type == "json":
            msgspec.json.decode(body)
            draft["body"] = msgspec.Raw(body)
        else:
            draft["body"] = body.decode()
    except msgspec.DecodeError as error:
        raise Misused(f"the body is not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise Misused("the body is not UTF-8 text") from error
    if args.delay is not None:
        draft["delay_seconds"] = args.delay
    return draft


def _publish_lines(args: argparse.Namespace) -> None:
    """Publish stdin as it comes: what is there goes out at once, in batches."""
    client = ApiClient(access(args))
    path = f"/queues/{client.queue(args.queue)['queue_id']}/messages/batch"
    progress = output.ProgressBar("messages published", total=_stdin_bytes())
    done = read = 0
    try:
        for lines in _batches():
            drafts = [_line_draft(line, done + i, args) for i, line in enumerate(lines, 1)]
            client.call("POST", path, {"messages": drafts})
            done += len(lines)
            read += sum(len(line) + 1 for line in lines)
            progress.at(done, part=read)
    except Exception:
        progress.end()
        # What is said last must tell where to go on.
        print(f"published {output.count(done, 'message')}, up to line {done}", file=sys.stderr)
        raise
    progress.end()
    print(f"published {output.count(done, 'message')}")


def _line_draft(line: bytes, number: int, args: argparse.Namespace) -> dict[str, Any]:
    try:
        return _draft(line, args)
    except Misused as error:
        raise Misused(f"line {number}: {error}") from error


def _batches() -> Iterator[list[bytes]]:
    """Lines of stdin in groups that fit one request, without waiting for a group to fill."""
    rest = b""
    while chunk := os.read(sys.stdin.fileno(), _CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > BATCH_BYTES_MAX:
            raise Misused(f"a line is longer than {BATCH_BYTES_MAX} bytes")
        yield from _fitting(lines)
    if rest:
        yield [rest]


def _fitting(lines: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH_COUNT_MAX or size + len(line) > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def _stdin_bytes() -> int:
    """How much there is to read, when stdin is a file."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


# --- pull, peek, ack, redrive ----------------------------------------------------------------


def _pull(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    queue = client.queue(args.queue)
    if not queue["consumers"]:
        add = f"courier queue update {args.queue} --lease 30s"
        raise Failed(f"queue '{args.queue}' has no consumer; `{add}` lets clients pull from it")
    path = f"/queues/{queue['queue_id']}/messages"
    wanted = {"batch_size": args.count, "visibility_timeout_ms": args.lease}
    asked = {name: value for name, value in wanted.items() if value is not None}
    pulled = client.call("POST", f"{path}/pull", asked)["messages"]
    _print_messages(args, pulled, leased=not args.ack)
    if args.ack and pulled:
        # Printed first: a message that was acked and not shown would be lost.
        sys.stdout.flush()
        _settle(client, path, {"acks": [{"lease_id": one["lease_id"]} for one in pulled]})


def _peek(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    path = f"/queues/{client.queue(args.queue)['queue_id']}/messages/peek"
    asked = {} if args.count is None else {"batch_size": args.count}
    _print_messages(args, client.call("POST", path, asked)["messages"], leased=False)


def _print_messages(args: argparse.Namespace, found: list[Any], *, leased: bool) -> None:
    messages = [_message(one) for one in found]
    if args.json:
        output.print_json(messages)
        return
    if not messages:
        print(f"queue '{args.queue}' has nothing to hand out now", file=sys.stderr)
        return
    columns = ["id", "attempt", "published", *(["lease"] if leased else []), "body"]
    for message in messages:
        message["published"] = output.age(message["published_ms"])
        body = message.get("body", message.get("body_base64"))
        message["body"] = bytes(body).decode() if isinstance(body, msgspec.Raw) else body
    output.table(columns, [[message[column] for column in columns] for message in messages])


def _message(one: dict[str, Any]) -> dict[str, Any]:
    """A message as we show it, its body decoded."""
    content_type = one["metadata"]["CF-Content-Type"]
    message = {
        "id": one["id"],
        "published_ms": one["timestamp_ms"],
        "attempt": one["attempts"],
        "content_type": content_type,
    }
    if "lease_id" in one:
        message["lease"] = one["lease_id"]
    if content_type == "text":
        message["body"] = one["body"]
    elif content_type == "json":
        message["body"] = msgspec.Raw(_json_body(one["body"]))
    else:
        message["body_base64"] = one["body"]
    return message


def _json_body(text: str) -> bytes:
    """JSON that the server sent as base64 or plain, as it is set to.

    No JSON text is at the same time base64 of one, so the two cannot be mixed up.
    """
    try:
        decoded = base64.b64decode(text, validate=True)
        msgspec.json.decode(decoded)
    except (binascii.Error, msgspec.DecodeError, UnicodeEncodeError, ValueError):
        return text.encode()
    return decoded


def _ack(args: argparse.Namespace) -> None:
    if args.delay is not None and not args.retry:
        raise Misused("--delay needs --retry")
    items: list[dict[str, Any]] = [{"lease_id": lease} for lease in args.leases]
    for item in items:
        if args.delay is not None:
            item["delay_seconds"] = args.delay
    client = ApiClient(access(args))
    path = f"/queues/{client.queue(args.queue)['queue_id']}/messages"
    answer = _settle(client, path, {"retries" if args.retry else "acks": items})
    if args.retry:
        print(f"{output.count(answer['retryCount'], 'message')} will be handed out again")
    else:
        print(f"acked {output.count(answer['ackCount'], 'message')}")


def _settle(client: ApiClient, path: str, items: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = client.call("POST", f"{path}/ack", items)
    if answer["warnings"]:
        reasons = (f"{lease}: {reason}" for lease, reason in answer["warnings"].items())
        settled = answer["ackCount"] + answer["retryCount"]
        raise Failed(f"{output.count(settled, 'message')} settled, but {'; '.join(reasons)}")
    return answer


def _redrive(args: argparse.Namespace) -> None:
    client = ApiClient(access(args))
    wanted: dict[str, Any] = {"dry_run": args.dry_run}
    if args.messages:
        wanted["messages"] = args.messages
    answer = client.redrive(args.queue, wanted)
    if args.json:
        output.print_json(answer)
        return
    verb = "would redrive" if args.dry_run else "redrove"
    print(f"{verb} {output.count(answer['redriven'], 'message')}")
    for reason, number in answer["reasons"].items():
        print(f"skipped {output.count(number, 'message')}: {_SKIPS.get(reason, reason)}")


# --- their flags -----------------------------------------------------------------------------

_QUEUE = argument("queue", metavar="QUEUE")
_COUNT = argument("--count", type=whole(1, 100), metavar="N",
                  help="most messages to print, 1 to 100")  # fmt: skip
_VERBS = {
    "publish": Verb(
        help="publish a message, or one for each line", run=_publish, json=False,
        takes=[
            _QUEUE,
            argument("body", metavar="BODY", nargs="?", help="the body; - reads it from stdin"),
            argument("--file", type=Path, metavar="FILE", help="read the body from a file"),
            argument("--lines", action="store_true",
                     help="publish each line of stdin as a message"),
            argument("--type", choices=("text", "json"), default="text", metavar="TYPE",
                     help="what the body is, text or json; default text"),
            argument("--delay", type=seconds, metavar="TIME",
                     help=f"hand it out after this time: {DURATION}"),
            argument("--id", metavar="KEY",
                     help="publishing again with the same key stores nothing new"),
        ]),
    "pull": Verb(
        help="lease messages and print them", run=_pull,
        takes=[
            _QUEUE, _COUNT,
            argument("--ack", action="store_true", help="ack them once they are printed"),
            argument("--lease", type=milliseconds, metavar="TIME",
                     help=f"length of the lease: {DURATION}"),
        ]),
    "ack": Verb(
        help="acknowledge or retry leased messages", run=_ack, json=False,
        takes=[
            _QUEUE, argument("leases", metavar="LEASE", nargs="+"),
            argument("--retry", action="store_true", help="hand them out again instead"),
            argument("--delay", type=seconds, metavar="TIME",
                     help=f"with --retry, after this time: {DURATION}"),
        ]),
    "peek": Verb(help="print messages without leasing them", run=_peek, takes=[_QUEUE, _COUNT]),
    "redrive": Verb(
        help="put dead letters back on the queues they came from", run=_redrive,
        takes=[
            argument("queue", metavar="QUEUE", help="the queue that holds the dead letters"),
            argument("messages", metavar="MESSAGE_ID", nargs="*", default=[],
                     help="only these messages"),
            argument("--dry-run", action="store_true", help="count them without moving any"),
        ]),
}  # fmt: skip


def add(commands: Commands) -> None:
    declare(commands, _VERBS)
