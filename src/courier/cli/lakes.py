"""What commands on the lake share: where it is, its Spark, and what may go wrong."""

import argparse
import logging
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from courier.cli.errors import Misused, Refused, Unreachable
from courier.cli.pipeline import lake_root

if TYPE_CHECKING:
    from courier.lake.catalog import Lake
    from courier.lake.replay import Spark


@contextmanager
def failures() -> Iterator[None]:
    """What goes wrong with the lake, as one line; also that it is not installed."""
    try:
        with _refusals():
            yield
    except ModuleNotFoundError as error:
        raise Misused(
            f"the lake needs {error.name}: install courier with its extra, `courier[spark]`"
        ) from error


@contextmanager
def _refusals() -> Iterator[None]:
    from courier.lake.client import Away, CourierError
    from courier.lake.selection import BadRequest
    from courier.lake.tables import LakeError

    try:
        yield
    except BadRequest as error:
        raise Misused(str(error)) from error
    except Away as error:
        raise Unreachable(str(error)) from error
    except (CourierError, LakeError) as error:
        raise Refused(str(error)) from error


def opened(args: argparse.Namespace) -> "Lake":
    """The lake, if there is one."""
    from courier.lake.catalog import Lake

    lake = Lake(lake_root(args))
    if lake.events.open() is None:
        raise Refused(f"there is no lake at {lake.root}: `courier pipeline run` makes one")
    return lake


@contextmanager
def started(args: argparse.Namespace, lake: "Lake") -> Iterator["Spark"]:
    """Spark; what it has to say goes into a file of the lake, if that is on this machine."""
    from courier.lake.session import session

    local = "://" not in lake.root
    logs = Path(lake.root, "_logs") if local else Path(tempfile.mkdtemp(prefix="courier-spark-"))
    spark = session("courier replay", master=args.master, logs=logs)
    # Spark's own handler asks the JVM in the middle of another question, and then its client logs
    # that at length; whoever presses Ctrl-C knows why the command ends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.disable(logging.CRITICAL)
    try:
        yield spark
    finally:
        spark.stop()
        logging.disable(logging.NOTSET)
