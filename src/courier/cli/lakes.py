"""What commands on the lake share: where it is, its Spark, and what may go wrong."""

import argparse
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from courier import config
from courier.cli.errors import Failed, Misused, Unreachable

if TYPE_CHECKING:
    from courier.lake.catalog import Lake
    from courier.lake.journals import Lakes
    from courier.lake.replay import Spark

LOCAL = "local[*]"
# Spark alone would have 1g, which is little for batches with large bodies.
_MEMORY = "2g"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_spark(parser: argparse.ArgumentParser) -> None:
    spark = parser.add_mutually_exclusive_group()
    spark.add_argument("--master", default=LOCAL, help=f"Spark master; default {LOCAL}")
    spark.add_argument(
        "--remote", metavar="URL", help="use a running Spark, through Spark Connect: sc://..."
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark; repeatable",
    )


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.startswith("spark.") or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form spark.KEY=VALUE")
    return key, value


def lake_root(args: argparse.Namespace) -> str:
    """Where the lake is: an address, or a folder in full."""
    given = args.lake or str(config.load({"data": args.data}).data / "lake")
    return given.rstrip("/") if "://" in given else str(Path(given).resolve())


def opened(args: argparse.Namespace) -> "Lake":
    """The lake of one journal, if there is one, and nothing of it is seen to be missing."""
    from courier.lake import journals

    return journals.alone(journals.opened(lake_root(args)))


def opened_all(args: argparse.Namespace) -> "Lake | Lakes":
    """The lake, or those of several journals in one folder."""
    from courier.lake import journals

    return journals.opened(lake_root(args))


@contextmanager
def failures(args: argparse.Namespace) -> Iterator[None]:
    """What goes wrong with the lake, as one line; also that it is not installed."""
    try:
        with _refusals(lake_root(args)):
            yield
    except ModuleNotFoundError as error:
        raise Misused(
            f"the lake needs {error.name}: install Courier with its extra, `courier-mq[spark]`"
        ) from error


@contextmanager
def _refusals(root: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    from courier.lake.checks import explained
    from courier.lake.client import Away, CourierError
    from courier.lake.tables import BadRequest, LakeError

    try:
        yield
    except BadRequest as error:
        raise Misused(str(error)) from error
    except Away as error:
        raise Unreachable(str(error)) from error
    except (CourierError, LakeError) as error:
        raise Failed(str(error)) from error
    except BrokenPipeError:
        raise  # the reader of the output has seen enough
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise Misused(f"{error.filename} cannot be used: {error.strerror}") from error
    except (OSError, DeltaError) as error:
        raise Failed(str(explained(error, root))) from error


@contextmanager
def started(args: argparse.Namespace, root: str, name: str) -> Iterator["Spark"]:
    """Spark, which is quiet: what it has to say is in files of the lake, if that is on a disk.

    Both signals end what is done with it as KeyboardInterrupt.
    """
    from courier.lake.end import EndRequest
    from courier.lake.session import remote, session

    elsewhere = "://" in root
    logs = Path(tempfile.mkdtemp(prefix="courier-spark-")) if elsewhere else Path(root, "_logs")
    settings = {"spark.driver.memory": _MEMORY, **dict(args.conf)}
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        # A Java that is starting would be left behind by a command that ends meanwhile, so it
        # is waited for; unless a second signal says not to.
        request = EndRequest()
        asked: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            if request.again(number):
                raise KeyboardInterrupt
            asked.append(number)

        for number in SIGNALS:
            signal.signal(number, note)
        with _shown("starting Spark ..."):
            spark = (
                remote(f"courier {name}", args.remote, settings=dict(args.conf))
                if args.remote
                else session(f"courier {name}", master=args.master, settings=settings, logs=logs)
            )
        # Spark's own handler asks the JVM in the middle of another question, and then its client
        # logs that at length; after Ctrl-C nobody needs to be told why the command ends.
        for number in SIGNALS:
            signal.signal(number, request.interrupt)
        logging.disable(logging.CRITICAL)
        try:
            if asked:
                raise KeyboardInterrupt
            yield spark
        finally:
            spark.stop()
            logging.disable(logging.NOTSET)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(line: str) -> Iterator[None]:
    """A line for a person who waits, gone when that is over; logs do without it."""
    is_terminal = sys.stderr.isatty()
    if is_terminal:
        print(line, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_terminal:
            print(f"\r{' ' * len(line)}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Meanwhile both signals are a KeyboardInterrupt, as they are with Spark."""
    from courier.lake.end import EndRequest

    interrupt = EndRequest().interrupt
    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        # The same request may come once more, to the group, while this process is on its way out.
        before[signal.SIGTERM] = signal.SIG_IGN
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Meanwhile SIGTERM ends this process with status 0: it has not begun, and nothing is lost."""
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
