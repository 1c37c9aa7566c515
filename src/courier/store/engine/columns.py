"""What events say of messages: the same columns, be they of rows, of ranges or of a block."""

from collections.abc import Sequence
from typing import Any

from courier.store.engine.blocks import NOT_RARE, Block
from courier.store.engine.journal import any_of, packed, packed_seqs
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import Delivery


class EventColumns:
    """Of several messages. `lives`: also when each was leased first and last, for events that end
    a message."""

    __slots__ = ("attempts", "first_ms", "last_ms", "lives", "own", "seqs", "sizes", "times")

    def __init__(self, rows: Sequence[Delivery] = (), *, lives: bool = False) -> None:
        self.lives = lives
        self.seqs = [row.key & SEQ_MASK for row in rows]
        self.times = [row.published_ms for row in rows]
        self.sizes = [row.size for row in rows]
        self.attempts = [row.attempt for row in rows]
        self.own = [row.own_id for row in rows]
        self.first_ms = [row.first_ms for row in rows] if lives else []
        self.last_ms = [row.last_ms for row in rows] if lives else []

    def add(
        self, block: Block, seqs: Sequence[int], *, attempt: int, leased_ms: int | None = None
    ) -> None:
        """Messages of a block that have no rows."""
        count, first, sizes = len(seqs), block.first, block.sizes
        self.seqs += seqs
        self.times += [block.at_ms] * count
        if type(sizes) is list:
            self.sizes += [sizes[seq - first] for seq in seqs]
        else:
            self.sizes += block.sizes_of(0, count)
        self.attempts += [attempt] * count
        if block.rare:
            self.own += [block.rare.get(seq - first, NOT_RARE).own_id for seq in seqs]
        else:
            self.own += [None] * count
        if self.lives:
            self.first_ms += [leased_ms] * count
            self.last_ms += [leased_ms] * count

    def sort(self) -> None:
        """By sequence."""
        order = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
        for name in self.__slots__:
            values = getattr(self, name)
            if isinstance(values, list) and values:
                setattr(self, name, [values[place] for place in order])

    def packed(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "seq": packed_seqs(self.seqs),
            "published_ms": packed(self.times),
            "size": packed(self.sizes),
            "attempt": packed(self.attempts),
        }
        if any_of(self.own):
            columns["own_id"] = self.own
        if self.lives:
            columns["first_leased_ms"] = packed(self.first_ms)
            columns["last_leased_ms"] = packed(self.last_ms)
        return columns
