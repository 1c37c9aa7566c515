"""What a store's journal and its tallies tell, so that two stores can be compared.

How unrelated events are interleaved is each store's own affair, and so are their offsets, except
that they are dense. So is when that goes which was dropped.
"""

from collections import Counter
from collections.abc import Set
from typing import Any

from courier.core.types import BROKER, Tally
from tests.conformance.store.driver import Driver

PUSH_KINDS = ("pushed", "push_failed", "push_dropped")
# Kinds of events that may come later than what caused them.
LATE_KINDS = ("deleted", "push_dropped")
ENDS = ("acked", "buried", "expired", "purged", "deleted")
Life = tuple[str, int, str]


def lives(driver: Driver, dropped: Set[str]) -> dict[Life, list[dict[str, Any]]]:
    """The journal, told message by message and push by push; the rest comes under sequence 0.

    `dropped` are the ids of queues and listeners that are gone.
    """
    driver.sweep_all()
    events = driver.events()
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    found: dict[Life, list[dict[str, Any]]] = {}
    for event in events:
        del event["offset"]
        listener = event["detail"]["listener"] if event["kind"] in PUSH_KINDS else ""
        if event["kind"] == "deleted" and event["dialect"] == BROKER.dialect:
            del event["at_ms"]
        elif event["kind"] == "push_dropped" and {event["queue"], listener} & dropped:
            del event["at_ms"]
            if listener in dropped:
                # Its message may have gone before the sweep came to it.
                event["detail"] = {"listener": listener}
        found.setdefault((event["queue"], event.get("seq", 0), listener), []).append(event)
    return found


def backlogs(driver: Driver, *, upto: int) -> dict[str, int]:
    """How many messages each queue held at an offset, from the journal alone."""
    held: Counter[str] = Counter()
    for run in driver.run(driver.store.journal.read(after=0, limit=upto)):
        held[run.queue] += run.count * ((run.kind == "published") - (run.kind in ENDS))
    return {queue: count for queue, count in held.items() if count}


def tallies(driver: Driver) -> list[Tally]:
    """What was counted, minute by minute where that is not the store's own affair."""
    counted = [tally for tally in driver.tallies() if tally.kind not in LATE_KINDS]
    late: dict[tuple[str, str], list[int]] = {}
    for tally in driver.tallies():
        if tally.kind in LATE_KINDS:
            total = late.setdefault((tally.id, tally.kind), [0, 0])
            total[0] += tally.count
            total[1] += tally.bytes
    return counted + [Tally(0, *key, *late[key]) for key in sorted(late)]
