"""The order of a FIFO queue's groups, stated once more: from what the store itself has told.

Nothing here asks the reference. The journal says who was leased until when, and what has been
given back with which delay; `browse` says what is there. From these follows what a lease may
hand out.
"""

from collections.abc import Sequence

from courier.core.types import Message, Queue
from tests.conformance.store.driver import Driver

ENDS = ("acked", "buried", "expired", "purged", "deleted")
Key = tuple[str, int]


class Order:
    """Follows a store's journal, and judges each of its leases."""

    def __init__(self) -> None:
        self._offset = 0
        self._leased_until_ms: dict[Key, int] = {}
        self._returned_until_ms: dict[Key, int] = {}

    def follow(self, driver: Driver) -> None:
        """Read what has happened since the last time."""
        for event in driver.events(after=self._offset):
            self._offset = event["offset"]
            key = (event["queue"], event.get("seq", 0))
            kind, at_ms = event["kind"], event["at_ms"]
            if kind in ENDS:
                self._leased_until_ms.pop(key, None)
                self._returned_until_ms.pop(key, None)
            elif kind in ("leased", "extended"):
                self._leased_until_ms[key] = at_ms + event["lease_ms"]
            elif kind in ("retried", "lease_expired"):
                until_ms = self._leased_until_ms.pop(key)
                ended_ms = at_ms if kind == "retried" else until_ms
                self._returned_until_ms[key] = ended_ms + event.get("delay_ms", 0)

    def _ready_ms(self, queue: Queue, message: Message) -> int:
        if message.attempts:
            return self._returned_until_ms[queue.id, message.seq]
        own_ms = message.delay_ms
        return message.published_ms + (queue.delay_ms if own_ms is None else own_ms)

    def judge(
        self,
        queue: Queue,
        present: Sequence[Message],
        handed: Sequence[Message],
        *,
        count: int,
        now_ms: int,
    ) -> None:
        """Whether a lease of up to `count` of the `present` messages was right to hand out these.

        Asked between the lease and the next `follow`: what is known is how it was before.
        """
        assert len(handed) <= count
        seqs = [message.seq for message in handed]
        assert len(set(seqs)) == len(seqs), "handed out twice by one lease"
        groups: dict[str | None, list[Message]] = {}
        for message in present:
            groups.setdefault(message.group, []).append(message)
        by_group = [message.seq for group in groups.values() for message in group]
        assert seqs == [seq for seq in by_group if seq in seqs], "not by group, then by sequence"
        for group in groups.values():
            taken = [message for message in group if message.seq in seqs]
            assert taken == group[: len(taken)], "overtakes"
            assert not taken or not self._blocked(queue, group), "another of the group is leased"
            for message in taken:
                assert self._ready_ms(queue, message) <= now_ms, "is still delayed"
        self._judge_the_rest(queue, groups, seqs, count, now_ms)

    def _judge_the_rest(
        self,
        queue: Queue,
        groups: dict[str | None, list[Message]],
        seqs: list[int],
        count: int,
        now_ms: int,
    ) -> None:
        """Nothing was withheld, and no group was left for another before it was used up."""
        last = max((group[0].seq for group in groups.values() if group[0].seq in seqs), default=0)
        for group in groups.values():
            rest = [message for message in group if message.seq not in seqs]
            if not rest or self._blocked(queue, group):
                continue
            if self._ready_ms(queue, rest[0]) <= now_ms:
                assert len(seqs) == count, "withheld"
                assert group[0].seq >= last, "an older group was left before it was used up"

    def _blocked(self, queue: Queue, group: Sequence[Message]) -> bool:
        return any((queue.id, message.seq) in self._leased_until_ms for message in group)
