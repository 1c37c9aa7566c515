"""`journal`: what happened, event by event."""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from courier import ids
from courier.cli import output
from courier.cli.client import ApiClient
from courier.cli.credentials import access
from courier.cli.parser import Commands, past, whole
from courier.cli.resources import Verb, argument, declare

PAGE_MAX = 1_000
LAST_DEFAULT = 20
LIMIT_DEFAULT = 1_000
# How many events are looked at for the last ones of a kind, a queue or a tenant.
LOOKED_MAX = 1_000_000
_POLL_SECONDS = 0.5
_LINE = "{:>7}  {:<{}}  {:<14}  {:<{}}  {:<32}  "
_KIND_WIDTH = 14


def _journal(args: argparse.Namespace) -> None:
    reader = _Reader(ApiClient(access(args)), args)
    printer = _Printer(as_json=args.json, exact=args.follow or not sys.stdout.isatty())
    head = reader.client.journal_head()
    after = _begin(args, reader.client, head)
    if after is None and not args.follow:
        for line, event in reader.last(head, args.limit or LAST_DEFAULT):
            printer(line, event)
        printer.end()
        return
    if args.follow:
        printer.begin()
    left = args.limit or (sys.maxsize if args.follow else LIMIT_DEFAULT)
    for line, event in reader.read(head["last"] if after is None else after, args.follow):
        printer(line, event)
        left -= 1
        if left == 0:
            return
    printer.end()


def _begin(args: argparse.Namespace, client: ApiClient, head: dict[str, Any]) -> int | None:
    """The offset after which to begin, None if nothing says one."""
    at_ms: int | None = args.since
    if args.after is not None:
        after: int = args.after
        return after
    if at_ms is None and args.message and not args.follow:
        at_ms = ids.message_ms(args.message) or 0
    if at_ms is None:
        return None
    return max(int(head["first"]) - 1, int(client.journal_head(at_ms=at_ms)["before"]))


class _Reader:
    """Events that the flags ask for. Pages leave out others: an empty one need not be the end."""

    def __init__(self, client: ApiClient, args: argparse.Namespace) -> None:
        self.client = client
        # A tenant's own token shows nothing else anyway; the operator's shows everyone's events.
        by_name = args.tenant and not args.token
        self._tenant = client.tenant_id(args.tenant) if by_name else None
        self._message: str | None = args.message
        self._filters = {"queues": args.queue, "kinds": args.kind}

    def read(self, after: int, follow: bool) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """From an offset to the end; or without end, as they happen."""
        head = self.client.journal_head()
        while True:
            found, after = self._page(after, PAGE_MAX)
            yield from found
            sys.stdout.flush()
            if after >= head["last"]:
                if not follow:
                    return
                time.sleep(_POLL_SECONDS)
                head = self.client.journal_head()

    def last(self, head: dict[str, Any], most: int) -> list[tuple[bytes, dict[str, Any]]]:
        """The last ones: further and further back until there are enough."""
        found: list[tuple[bytes, dict[str, Any]]] = []
        high, width = head["last"], most
        floor = max(head["first"] - 1, high - LOOKED_MAX)
        while high > floor and len(found) < most:
            low = after = max(floor, high - width)
            part = []
            while after < high:
                page, after = self._page(after, min(PAGE_MAX, high - after))
                part += page
            found = part + found
            high, width = low, min(4 * width, 100 * PAGE_MAX)
        if len(found) < most and floor >= head["first"]:
            print(f"looked at the last {LOOKED_MAX} events; --since goes on", file=sys.stderr)
        return found[-most:]

    def _page(self, after: int, limit: int) -> tuple[list[tuple[bytes, dict[str, Any]]], int]:
        lines, upto = self.client.journal(after=after, limit=limit, filters=self._filters)
        events = ((line, msgspec.json.decode(line)) for line in lines)
        return [each for each in events if self._wanted(each[1])], upto

    def _wanted(self, event: dict[str, Any]) -> bool:
        return self._tenant in (None, event["tenant"]) and (
            self._message in (None, event.get("message_id"))
        )


class _Printer:
    """Prints events: lines of JSON, or of a table. Its times are exact, or how long ago.

    On a narrow terminal times and queues are shortened, and details are left out.
    """

    def __init__(self, *, as_json: bool, exact: bool) -> None:
        self._as_json = as_json
        self._exact = exact
        self._narrow = output.is_narrow()
        self._time_width = (8 if exact else 10) if self._narrow else (24 if exact else 15)
        left = output.terminal_columns() - 7 - self._time_width - _KIND_WIDTH - 32 - 8
        self._queue_width = max(8, left) if self._narrow else 14
        self._begun = False

    def begin(self) -> None:
        """The header, unless it was printed."""
        if self._begun or self._as_json:
            return
        header = self._line("OFFSET", "TIME", "EVENT", "QUEUE", "MESSAGE")
        detail = "" if self._narrow else "DETAIL"
        print(output.styled(f"{header}{detail}".rstrip(), output.BOLD, sys.stdout))
        self._begun = True

    def end(self) -> None:
        """Say so if there was nothing to print."""
        if not (self._as_json or self._begun):
            print("no such events", file=sys.stderr)

    def _line(self, offset: object, time: str, kind: str, queue: str, message: str) -> str:
        # A longer kind, which is one of settings, takes its room from the queue's name.
        width = self._queue_width - max(0, len(kind) - _KIND_WIDTH)
        if self._narrow:
            queue = output.shortened(queue, width)
        return _LINE.format(offset, time, self._time_width, kind, queue, width, message)

    def _time(self, at_ms: int) -> str:
        shown = output.moment(at_ms) if self._exact else output.age(at_ms)
        if not self._narrow:
            return shown
        return shown[11:19] if self._exact else shown

    def __call__(self, line: bytes, event: dict[str, Any]) -> None:
        if self._as_json:
            print(line.decode().rstrip("\n"))
            return
        self.begin()
        begin = self._line(
            event["offset"],
            self._time(event["at_ms"]),
            event["kind"],
            output.cell(event.get("queue_name")),
            output.cell(event.get("message_id")),
        )
        if self._narrow:
            print(begin.rstrip())
            return
        attempt = f"attempt {event['attempt']}" if event.get("attempt") else ""
        output.print_text(begin, output.cell(event.get("body", event.get("body_base64", attempt))))


_JOURNAL = Verb(
    help="print what happened lately, oldest first", run=_journal, json=False,
    takes=[
        argument("--since", type=past, metavar="TIME", either="begin",
                 help="begin then: 10m ago, or 2026-01-31T12:00:00Z"),
        argument("--after", type=whole(0, 2**62), metavar="N", either="begin",
                 help="begin after this offset"),
        argument("--queue", action="append", default=[], metavar="NAME",
                 help="only events of this queue; repeatable"),
        argument("--kind", action="append", default=[], metavar="KIND",
                 help="only of this kind, such as buried; repeatable"),
        argument("--message", metavar="ID",
                 help="only of this message, from its publication on"),
        argument("--limit", type=whole(1, 2**63 - 1), metavar="N",
                 help=f"print at most N events; default: the last {LAST_DEFAULT}, {LIMIT_DEFAULT} "
                 "with --since, --after or --message, no limit with --follow"),
        argument("--follow", action="store_true", help="print events as they happen, from now on"),
        argument("--json", action="store_true", help="print each event as a line of JSON"),
    ])  # fmt: skip


def add(commands: Commands) -> None:
    declare(commands, {"journal": _JOURNAL})
