"""`store copy`: a store from a file into a database, or back. `store restored`: a new epoch."""

import argparse
import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from courier import config
from courier.cli import output
from courier.cli.errors import Failed, Misused
from courier.cli.parser import Commands, command, group
from courier.core.errors import StoreUnavailable
from courier.store.copying import CopySource, CopyTarget, copy, sizes

if TYPE_CHECKING:
    from courier.store.disk_postgres.copies import PostgresCopy

_PREFIX = "sqlite:"
_FILE = "courier.db"
_WHERE = "sqlite:DIRECTORY or postgresql://HOST/DATABASE"


def add(commands: Commands) -> None:
    stores = group(commands, "store", "copy a store, or prepare a restored one")
    parser = command(
        stores, "copy", "copy a whole store: messages, leases, settings and journal", _copy
    )
    parser.add_argument("--from", required=True, metavar="URL", dest="source", help=_WHERE)
    parser.add_argument("--to", required=True, metavar="URL", dest="target", help=_WHERE)
    parser.add_argument(
        "--dry-run", action="store_true", help="look at both sides and say what would be copied"
    )
    parser.add_argument(
        "--restart", action="store_true", help="discard what an unfinished copy has left"
    )
    output.add_json(parser)
    parser = command(stores, "restored", "begin a new epoch of the journal after a restore", _renew)
    parser.add_argument("store", metavar="URL", help=_WHERE)
    output.add_json(parser)


def _copy(args: argparse.Namespace) -> None:
    _finish(_run(args), args.source, args.target)


def _renew(args: argparse.Namespace) -> None:
    _finish(_restored(args), args.store)


def _finish(work: Coroutine[Any, Any, None], *urls: str) -> None:
    for url in urls:
        if config.has_password(url):
            work.close()
            raise Misused(
                "everyone on this machine can see flags: leave the password out of the URL, and "
                "set the variable PGPASSWORD"
            )
    try:
        asyncio.run(work)
    except StoreUnavailable as error:
        raise Failed(str(error)) from error


async def _restored(args: argparse.Namespace) -> None:
    store = await _source(args.store)
    try:
        before = (await store.meta()).epoch
        epoch = await store.begin_epoch()
    finally:
        await store.close()
    if args.json:
        output.print_json({"epoch": epoch, "before": before})
        return
    print(
        f"The journal's epoch is {epoch}, and was {before}. Pipelines and readers of the journal "
        "stop, and say so: start another lake with --lake."
    )


async def _run(args: argparse.Namespace) -> None:
    source = await _source(args.source)
    try:
        target = await _target(args.target)
        try:
            if args.dry_run:
                _show_plan(args, await sizes(source))
            else:
                await _copied(args, source, target)
        finally:
            await target.close()
    finally:
        await source.close()


def _show_plan(args: argparse.Namespace, counts: dict[str, int]) -> None:
    if args.json:
        output.print_json({"dry_run": True, "tables": counts})
        return
    output.table(["table", "rows"], list(counts.items()))
    print(f"{output.count(sum(counts.values()), 'row')} would be copied.")


async def _copied(args: argparse.Namespace, source: CopySource, target: CopyTarget) -> None:
    total = sum((await sizes(source)).values())
    copying = output.ProgressBar(f"of {output.count(total, 'row')} copied", total=total)
    checking = output.ProgressBar(f"of {output.count(total, 'row')} checked", total=total)
    began_s = time.monotonic()
    try:
        done = await copy(
            source, target, restart=args.restart, copied=copying.at, checked=checking.at
        )
    finally:
        copying.end()
    if args.json:
        tables = {name: each._asdict() for name, each in done.tables.items()}
        output.print_json({"dry_run": False, "rows": done.rows, "tables": tables})
        return
    rows = [(name, each.rows, each.checksum) for name, each in done.tables.items()]
    output.table(["table", "rows", "checksum"], rows)
    print(
        f"{output.count(done.rows, 'row')} copied and compared in "
        f"{time.monotonic() - began_s:.1f} s. Do not start the source again: both have the same "
        "journal. Servers need the same encryption keys as before."
    )


async def _source(url: str) -> CopySource:
    if url.startswith(_PREFIX):
        from courier.store.disk_sqlite.copies import SqliteCopy

        return SqliteCopy.source(_file(url))
    return await _database(url).source(url)


async def _target(url: str) -> CopyTarget:
    if url.startswith(_PREFIX):
        from courier.store.disk_sqlite.copies import SqliteCopy

        return SqliteCopy.target(_file(url))
    return await _database(url).target(url)


def _file(url: str) -> Path:
    path = Path(url.removeprefix(_PREFIX))
    return path if path.suffix == ".db" else path / _FILE


def _database(url: str) -> "type[PostgresCopy]":
    if not config.is_database(url):
        raise Misused(f"'{url}' is not a store; use {_WHERE}")
    try:
        from courier.store.disk_postgres.copies import PostgresCopy
    except ImportError as error:
        raise Failed("PostgreSQL needs a driver: pip install 'courier-mq[postgres]'") from error
    return PostgresCopy
