"""How numbers are laid out: keys of a line's messages, states of a delivery, kinds of blocks,
masks of ranges.

A key is a signed integer of 64 bits: 22 bits of line number, 42 bits of sequence. So the rows of a
line lie side by side, in the order of their sequences. Line numbers may be negative.
"""

import logging
from collections.abc import Iterable

from courier.core.errors import OverLimit

log = logging.getLogger("courier.store")

SEQ_BITS = 42
SEQ_MASK = (1 << SEQ_BITS) - 1
SPAN = 1 << SEQ_BITS
# Queues and listeners together, including deleted ones of which the journal still holds messages.
LINES_MAX = 1 << 22
# Part of them at which the log says that they will run out.
LINES_LOW = 0.9
_HALF = LINES_MAX // 2
NEVER_MS = 1 << 62

# States of a delivery. Those below zero are over; a row says so because something still asks.
ACKNOWLEDGED, GONE = -2, -1
READY, LEASED, DELAYED = 0, 1, 2
# In its group of a FIFO queue it stands behind others, or others of the group are leased.
WAITING = 3
EXHAUSTED = 4
# Never stored: beyond the line's cursor, not handed out yet.
FRESH = 5

# Kinds of blocks. HELD: published with a delay, so that every line has a row for each message.
# ROWS: of a FIFO queue, whose own line has a row for each message.
HELD, ROWS = 1, 2


class LineNumbers:
    """Gives out line numbers, the smallest free one first. A number is used again once its rows
    are gone."""

    def __init__(self, used: Iterable[int]) -> None:
        self._used = {_place(no) for no in used}
        self._next = 0

    def take(self) -> int:
        """Raises OverLimit when every number is in use."""
        while self._next in self._used:
            self._next += 1
        if self._next >= LINES_MAX - 1:
            raise OverLimit("number of queues and listeners", limit=LINES_MAX - 1, actual=LINES_MAX)
        self._used.add(self._next)
        if len(self._used) == int(LINES_LOW * LINES_MAX):
            log.warning("line_numbers_low", extra={"used": len(self._used), "limit": LINES_MAX - 1})
        return _number(self._next)

    def free(self, no: int) -> None:
        self._used.discard(_place(no))
        self._next = min(self._next, _place(no))


def _number(place: int) -> int:
    """Places 0, 1, ... are the numbers 1 .. _HALF - 1, then -1, -2, ... -_HALF."""
    return place + 1 if place < _HALF - 1 else _HALF - 2 - place


def _place(no: int) -> int:
    return no - 1 if no > 0 else _HALF - 2 - no


# --- masks of ranges ---

_DIGITS = bytes([48, 49]) + bytes(254)
_VALUES = bytes(48) + b"\0\1" + bytes(206)


def packed_mask(done: bytearray) -> bytes:
    """A byte of 0 or 1 for each message, as a bit for each."""
    return int(done.translate(_DIGITS), 2).to_bytes((len(done) + 7) // 8, "big")


def unpacked_mask(count: int, mask: bytes | None) -> bytearray:
    if mask is None:
        return bytearray(count)
    digits = f"{int.from_bytes(mask, 'big'):0{count}b}".encode()
    return bytearray(digits.translate(_VALUES))
