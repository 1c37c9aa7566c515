"""A search: which bytes the disk looks for, and which messages of the blocks it found match."""

from collections.abc import Callable, Sequence

import msgspec

from courier import ids
from courier.core.matching import Sought
from courier.core.types import Message
from courier.store.engine.blocks import BlockRow, block_of
from courier.store.engine.disk import Needles
from courier.store.engine.messages import messages_of

# Blocks that are judged at a time. Names given later are looked up by all their messages.
BLOCKS_MAX, NAMED_BLOCKS_MAX = 64, 8


def needles(queue: str, sought: Sought, *, renamed: bool) -> Needles:
    """No block without one of these has a message that matches (`matching.py`)."""
    text = sought.text
    raw = text.encode("utf-8", "surrogatepass")
    if sought.path:
        return Needles((raw, _escape(text)) if _is_written_one_way(text) else (b"", None))
    try:
        quoted = msgspec.json.encode(text)[1:-1]
    except UnicodeEncodeError:  # half a character, which no header has
        quoted = raw
    seq = ids.message_seq(text, queue=queue) or 0
    return Needles((raw, None), (raw, quoted), seq, raw if renamed else None)


def _is_written_one_way(value: str) -> bool:
    """But for escapes, JSON has only one way to write the value; not so a fraction or an object."""
    if value[:1] in ("{", "["):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return value.removeprefix("-").isdigit()


def _escape(value: str) -> bytes:
    """What a JSON string has that holds the value in other bytes."""
    return b"\\" if any(sign < " " or sign in '"\\/' for sign in value) else b"\\u"


def judged(
    queue: str,
    rows: Sequence[BlockRow],
    span: tuple[int, int],
    fits: Callable[[Message], bool] | None,
) -> list[Message]:
    """Messages of blocks in that span of sequences, in the order of the rows; `fits` None: all."""
    found: list[Message] = []
    for row in rows:
        block = block_of(row)
        bodies = block.bodies or []
        places = [
            place
            for place, body in enumerate(bodies)
            if body is not None and span[0] <= block.first + place <= span[1]
        ]
        messages = messages_of(queue, block, places, [0] * len(places), bodies=True)
        found += filter(fits, messages) if fits else messages
    return found
