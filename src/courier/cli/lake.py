"""`lake`: look at the tables, ask them, keep them tidy, and feed a new listener from them."""

import argparse
import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from courier.cli import output, replay
from courier.cli.client import ApiClient, segment
from courier.cli.credentials import access, add_access
from courier.cli.errors import Failed, Misused
from courier.cli.lakes import failures, opened, opened_all
from courier.cli.parser import Commands, command, group, whole

if TYPE_CHECKING:
    from courier.lake.query import Answer
    from courier.lake.replay import Chosen, Spark

LIMIT_DEFAULT = 1_000
TABLES = ("events", "messages", "queue_minutes", "consumers_hours", "audit")
_COLUMNS = ["table", "rows", "bytes", "files", "changed", "offset", "missing"]


def add(commands: Commands) -> None:
    lake = group(commands, "lake", "query and maintain the lake's tables")
    _add_questions(lake)
    _add_catalogs(lake)
    _add_upkeep(lake)
    _add_erasing(lake)
    _add_backfill(lake)


def _add_questions(lake: Commands) -> None:
    tables = command(lake, "tables", "list the tables and what they hold", _tables)
    output.add_json(tables)
    add_place(tables)

    query = command(lake, "query", "answer a question in SQL, without Spark", _query)
    query.add_argument("sql", metavar="SQL")
    shape = query.add_mutually_exclusive_group()
    output.add_json(shape)
    shape.add_argument("--csv", action="store_true", help="print CSV in place of a table")
    query.add_argument(
        "--limit",
        type=whole(1, 10**7),
        default=LIMIT_DEFAULT,
        metavar="N",
        help=f"most rows to print; default {LIMIT_DEFAULT}",
    )
    add_place(query)


def _add_catalogs(lake: Commands) -> None:
    views = command(lake, "views", "write a DuckDB file with views of the tables", _views)
    views.add_argument("--out", metavar="FILE", help="default: views.duckdb in the lake")
    views.add_argument(
        "--relative",
        action="store_true",
        help="name the lake's files relative to the folder of FILE, in which clients then must run",
    )
    add_place(views)

    catalog = command(lake, "catalog", "write an Iceberg catalog of the tables", _catalog)
    catalog.add_argument(
        "--out", metavar="FILE", help="the catalog, a SQLite file; default: in the lake"
    )
    add_place(catalog)


def _add_upkeep(lake: Commands) -> None:
    compact = command(lake, "compact", "merge small files", _compact)
    compact.add_argument("table", metavar="TABLE", nargs="?", choices=TABLES)
    add_place(compact)

    vacuum = command(lake, "vacuum", "remove files that no table needs", _vacuum)
    vacuum.add_argument(
        "--hours",
        type=whole(0, 87_600),
        default=24,
        metavar="N",
        help="keep files that were needed within N hours; default 24",
    )
    vacuum.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add_place(vacuum)


def _add_erasing(lake: Commands) -> None:
    erase = command(lake, "erase", "erase the content of messages for good", _erase)
    erase.add_argument("--queue", default="", help="only messages of this queue")
    erase.add_argument("--before", metavar="TIME", help=f"only published before, {replay.TIME}")
    erase.add_argument(
        "--where", metavar="SQL", default="", help="only messages for which this condition holds"
    )
    erase.add_argument("--tenant-id", metavar="ID", default="", help="only of this tenant")
    erase.add_argument("--actor", help="name to record with it; default: your user name")
    erase.add_argument("--dry-run", action="store_true", help="only say what would be erased")
    add_place(erase)

    drop = command(lake, "drop", "drop rows of whole days from every table for good", _drop)
    drop.add_argument(
        "--before", metavar="TIME", required=True, help=f"all days before this one: {replay.TIME}"
    )
    drop.add_argument("--queue", default="", help="only rows of this queue")
    drop.add_argument(
        "--where",
        metavar="SQL",
        default="",
        help="only messages for which this condition holds, and their events",
    )
    drop.add_argument("--tenant-id", metavar="ID", default="", help="only of this tenant")
    drop.add_argument("--actor", help="name to record with it; default: your user name")
    drop.add_argument("--dry-run", action="store_true", help="only say what would be dropped")
    add_place(drop)

    erasures = command(lake, "erasures", "list what was erased", _erasures)
    output.add_json(erasures)
    add_place(erasures)


def _add_backfill(lake: Commands) -> None:
    backfill = command(
        lake, "backfill-listener", "push past messages of a queue to a listener", _backfill
    )
    backfill.add_argument("--queue", required=True, help="the listener's queue")
    backfill.add_argument("--listener", required=True, help="name of the listener")
    replay.add_choice(backfill)
    backfill.add_argument("--id", help="name of the backfill; default: one for each listener")
    replay.add_run(backfill)
    add_access(backfill)


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", metavar="PATH", help="default: lake in the data directory")
    parser.add_argument("--data", metavar="DIR", help="where the data directory is")


def _tables(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import journals, query

        found = [
            {**({"journal": journal} if journal else {}), **asdict(each)}
            for journal, lake in journals.each(opened_all(args)).items()
            for each in query.sizes(lake)
        ]
    if args.json:
        output.print_json(found)
        return
    for each in found:
        each["changed_ms"] = output.age(each["changed_ms"])
    named = ["journal"] if "journal" in found[0] else []
    output.table([*named, *_COLUMNS], [[*each.values()] for each in found])


def _query(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import query

        answer = query.ask(opened_all(args), args.sql, limit=args.limit)
        rows = [[query.plain(value) for value in row] for row in answer.rows]
    _print(answer, rows, args)
    if answer.more:
        print(f"there are more than {args.limit} rows: see --limit", file=sys.stderr)


def _print(answer: "Answer", rows: list[list[object]], args: argparse.Namespace) -> None:
    if args.json:
        output.print_json([dict(zip(answer.columns, row, strict=True)) for row in rows])
    elif args.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([answer.columns, *rows])
    elif answer.columns == ["explain_key", "explain_value"]:
        print(rows[0][1])  # a drawing
    else:
        output.table(answer.columns, rows)


def _views(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import views

        lake = opened_all(args)
        file = (Path(args.out) if args.out else views.default_file(lake)).resolve()
        written = views.write(lake, file, relative=args.relative)
    print(f"{file}: {', '.join(f'{name} ({rows})' for name, rows in written.items())}")


def _catalog(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import iceberg

        lake = opened(args)
        file = Path(args.out) if args.out else iceberg.default_file(lake)
        done = iceberg.sync(lake, file)
    for name, table in done.items():
        changed = f"{table.added} files added, {table.removed} removed"
        print(f"{iceberg.NAME}.{name}: {output.count(table.rows, 'row')}, {changed}")
    print(f"catalog: {file.resolve()}")


def _compact(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import upkeep

        done = upkeep.compact(opened(args), args.table)
    print(done)


def _vacuum(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import upkeep

        gone = upkeep.vacuum(opened(args), args.hours, args.dry_run)
    print(gone)


def _erase(args: argparse.Namespace) -> None:
    if not (args.queue or args.before or args.where or args.tenant_id):
        raise Misused("say what to erase: --queue, --before, --where or --tenant-id")
    with failures(args):
        from courier.lake import erasure
        from courier.lake.replay import instant, now_ms

        lake, now = opened(args), now_ms()
        asked = erasure.ErasureAsked(
            tenant=args.tenant_id,
            queue=args.queue,
            before_ms=instant(args.before, now_ms=now) if args.before else None,
            where=args.where,
        )
        if args.dry_run:
            chosen = erasure.choose(lake, asked)
            queues = output.count(len(chosen.queues), "queue")
            print(f"{output.count(chosen.messages, 'message')} of {queues}, {chosen.bytes} bytes")
            return
        done = erasure.erase(lake, asked, actor=args.actor or erasure.user(), now_ms=now)
    print(f"{output.count(done.messages, 'message')} erased, {done.bytes} bytes; record {done.id}")


def _drop(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import erasure, retention
        from courier.lake.replay import instant, now_ms

        lake, now = opened(args), now_ms()
        day = retention.day_of(instant(args.before, now_ms=now))
        asked = retention.DropAsked(day, args.queue, args.tenant_id, args.where)
        if args.dry_run:
            found = retention.chosen(lake, asked)
        else:
            actor = args.actor or erasure.user()
            found = retention.drop(lake, asked, actor=actor, now_ms=now)
    output.table(
        ["table", "rows", "bytes", "files"],
        [[each.table, each.rows, each.bytes, each.files] for each in found],
    )
    which = "these rows of days" if args.queue or args.where or args.tenant_id else "days"
    print(f"{which} before {day} {'would be' if args.dry_run else 'were'} dropped")


def _erasures(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import erasure

        found = erasure.records(opened(args))
    if args.json:
        output.print_json(found)
        return
    rows = [
        [each.id, each.at, each.actor, each.messages, each.bytes, json.dumps(dict(each.asked))]
        for each in found
    ]
    output.table(["erasure", "time", "actor", "messages", "bytes", "asked"], rows)


def _backfill(args: argparse.Namespace) -> None:
    with failures(args):
        from courier.lake import backfill
        from courier.lake.client import Place
        from courier.lake.replay import Asked, now_ms

        who, lake = access(args), opened(args)
        client = ApiClient(who)
        path = f"/tenants/{segment(who.tenant)}/queues/{segment(args.queue)}/listeners"
        answer = client.operate("GET", path)
        found: list[dict[str, Any]] = answer["listeners"]
        own = next((each for each in found if each["name"] == args.listener), None)
        if own is None:
            raise Failed(f"listener '{args.listener}' does not exist")
        asked = Asked(
            queue=args.queue,
            since=args.since or "",
            until=args.until or "",
            where=args.where or "",
            listener=own["id"],
        )
        listeners = [
            backfill.QueueListener(
                each["id"],
                each["created_ms"],
                owes=bool(each["open"] or each["in_flight"] or each["missed"]),
            )
            for each in found
        ]
        id = args.id or f"listener-{own['id']}"

        def choose(spark: "Spark | None") -> "Chosen | None":
            if spark is None:
                return None
            chosen, doubtful = backfill.choose(
                spark,
                lake,
                Place(who.url, who.admin_token, who.tenant),
                asked,
                tenant=replay.tenant_id(who),
                listeners=listeners,
                retention_ms=answer["retention_ms"],
                replay_id=id,
                now_ms=now_ms(),
            )
            if doubtful:
                print(
                    f"{output.count(doubtful, 'message')} left out: the queue's listeners have "
                    "not taken all they are owed, and may be owed these",
                    file=sys.stderr,
                )
            return chosen

        replay.carry_out(args, who, lake, asked, id, choose)
        if not args.dry_run and not args.where:
            _bind(client, args.queue, args.listener, asked.since, asked.until)


def _bind(client: ApiClient, queue: str, listener: str, since: str, until: str) -> None:
    """Have the broker push what the queue still holds."""
    from courier.lake.replay import instant, now_ms

    wanted = {
        name: instant(text, now_ms=now_ms())
        for name, text in (("since_ms", since), ("until_ms", until))
        if text
    }
    bound = client.backfill(queue, listener, wanted, lambda _: None)
    print(f"{output.count(bound, 'message')} that the queue still holds will be pushed too")
