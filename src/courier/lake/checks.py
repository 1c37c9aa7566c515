"""Whether a lake, a checkpoint and a journal belong together, and what ended a query if not."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from courier import files
from courier.clock import SystemClock
from courier.lake import archive, client, journals
from courier.lake.catalog import Lake
from courier.lake.client import Client, CourierError, Place
from courier.lake.tables import LakeError

MARKER = "_courier.json"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "os error 28")
_OURS = re.compile(r"courier\.lake\.(?:client|options|tables)\.([A-Za-z]+): ([^\n]+)")


class Unexplained(LakeError):
    """Spark failed; it may have been short of something for a moment."""


def checkpoint_of(lake: Lake, name: str) -> str:
    """Where a pipeline keeps its checkpoint unless told otherwise."""
    return f"{lake.root}/_checkpoints/{name}"


def check(lake: Lake, place: Place, *, name: str, checkpoint: str, accept_gap: bool = False) -> int:
    """The offset to go on with, if all is well; the journal keeps it from now on.

    `accept_gap`: events that the journal has lost are recorded as a gap, and not waited for.
    """
    for table in lake.tables:
        table.take_back()
    lake.check(write=True)
    if not lake.events.id and (others := journals.beneath(lake.root)):
        raise LakeError(journals.several(lake.root, others))
    with Client(place.first_asked()) as broker:
        head = broker.head()
        known = lake.events.epoch
        if known and known != head.epoch:
            raise LakeError(
                f"the lake {lake.root} has journal '{known}', and the one at {place.url} is "
                f"'{head.epoch}': the store was recreated, so start another lake with --lake; "
                "lakes in one folder can be read as one"
            )
        at = archive.last(lake.events)
        if at > head.last:
            raise LakeError(
                f"the lake {lake.root} has events up to offset {at}, and the journal at "
                f"{place.url} ends at {head.last}: the store was restored from an older copy"
            )
        for table in lake.tables:
            table.create(epoch=head.epoch)
            table.upgrade()
        _own(checkpoint, {"pipeline": name, "lake": lake.events.id})
        if at and at + 1 < head.first:
            gone = archive.Span(at, head.first - 1)
            if not accept_gap:
                raise LakeError(_lost(lake, gone))
            now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
            archive.pass_gap(lake.events, gone, pipeline=name, now=now)
            broker.skip(name, gone.upto, lost=gone.rows)
            if "://" not in checkpoint:
                empty(checkpoint)
            return gone.upto + 1
        broker.commit(name, at)
    return at + 1 if at else head.first


def _lost(lake: Lake, gone: archive.Span) -> str:
    times = [file.high["at"] for file in lake.events.files() if "at" in file.high]
    since = f", those after {max(times):%Y-%m-%dT%H:%M:%SZ}" if times else ""
    return (
        f"the lake {lake.root} ends at offset {gone.after}, and the journal now begins at "
        f"{gone.upto + 1}: {gone.rows} events are gone{since}; go on without them with "
        "--accept-gap, which records the gap, or start another lake with --lake"
    )


def _own(checkpoint: str, owner: dict[str, str]) -> None:
    """A checkpoint says whose it is.

    What a lake has, it knows itself: nothing depends on the checkpoint but which offsets make a
    batch. One of another pipeline would be spoilt for that one.
    """
    if "://" in checkpoint:
        return
    folder = Path(checkpoint)
    marker = folder / MARKER
    told = marker.read_bytes() if marker.exists() else None
    if told not in (None, b"", json.dumps(owner).encode()):
        raise LakeError(
            f"the checkpoint {folder} belongs to another pipeline or lake: choose another with "
            "--checkpoint"
        )
    there = {each.name for each in folder.iterdir()} if folder.exists() else set()
    if told is None and there - {MARKER + files.FRESH}:
        raise LakeError(f"{folder} is in use by something else: choose another with --checkpoint")
    if not told:
        # An empty one is left by a machine that lost its power.
        files.make_directory(folder)
        files.write(marker, json.dumps(owner).encode())


def empty(checkpoint: str) -> None:
    """Restart it. Its owner's mark stays, for an owner that is killed meanwhile."""
    for each in Path(checkpoint).iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != MARKER:
            files.remove(each)


def explained(error: BaseException, root: str) -> Exception:
    """What ended a query, as one sentence. Workers tell it as text, in the midst of traces."""
    text = str(error)
    for reason in _FULL:
        if reason in text:
            return LakeError(
                f"there is no room left for the lake {root} ({reason}): nothing is lost, make room "
                "and start the pipeline again"
            )
    if isinstance(error, CourierError | LakeError):
        return error
    if found := _OURS.search(text):
        told: Exception = getattr(client, found[1], LakeError)(found[2])
        return told
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return Unexplained(f"{first[:300]} (more in {root}/_logs)")
