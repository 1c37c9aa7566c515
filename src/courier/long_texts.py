"""Long texts of an answer, written while it is sent: a slice at a time, no faster than it is read.

Writing JSON or base64 holds the interpreter from the first byte to the last, and what is written
is up to six times as long as the body it is made of. So what is encoded at once has a mark in
place of each long text, and the text itself is never in memory as a whole.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator

import msgspec
from msgspec import Struct

from courier import ids

# Bodies of an answer that are encoded at once; and of a longer one, every text up to this.
AT_ONCE_BYTES_MAX = 256 << 10
SHORT_BYTES_MAX = 4 << 10
# A multiple of 3, or base64 could not be put together from slices.
SLICE_BYTES = 48 << 10

# Nobody outside can write it, and it is the same each time, as are the answers with it.
_MARK = ids.new_id()
_MARK_BYTES = _MARK.encode()
_encode = msgspec.json.Encoder().encode


class _Text(Struct, frozen=True):
    body: bytes
    base64: bool


class LongTexts:
    """The long texts of one answer. `size`: of all bodies that it will hold."""

    def __init__(self, size: int) -> None:
        self.short = size <= AT_ONCE_BYTES_MAX  # none of its texts is long
        self._short_bytes_max = AT_ONCE_BYTES_MAX if size <= AT_ONCE_BYTES_MAX else SHORT_BYTES_MAX
        self._texts: list[_Text] = []

    def text(self, body: bytes, *, base64: bool = False) -> str:
        """A body, which must be UTF-8 unless `base64`, as a JSON string is to hold it."""
        if len(body) > self._short_bytes_max:
            self._texts.append(_Text(body, base64))
            return f"{_MARK}{len(self._texts) - 1};"
        return b64encode(body).decode() if base64 else body.decode()

    def parts(self, encoded: bytes) -> AsyncIterator[bytes] | None:
        """What was encoded, with its long texts; None if there are none in it."""
        if not self._texts or _MARK_BYTES not in encoded:
            return None
        return self._parts(encoded)

    async def _parts(self, encoded: bytes) -> AsyncIterator[bytes]:
        at = 0
        while (mark := encoded.find(_MARK_BYTES, at)) >= 0:
            yield encoded[at:mark]
            end = encoded.index(b";", mark)
            text = self._texts[int(encoded[mark + len(_MARK_BYTES) : end])]
            for part in _slices(text):
                yield part
                # After each of them: many may be sent at the same time.
                await asyncio.sleep(0)
            at = end + 1
        yield encoded[at:]


def _slices(text: _Text) -> Iterator[bytes]:
    body, start = text.body, 0
    while start < len(body):
        stop = min(start + SLICE_BYTES, len(body))
        if text.base64:
            yield b64encode(body[start:stop])
        else:
            while stop < len(body) and body[stop] & 0xC0 == 0x80:
                stop -= 1
            yield _encode(body[start:stop].decode())[1:-1]
        start = stop
