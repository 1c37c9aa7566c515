"""Long JSON bodies with their long texts set aside, so that what has to be parsed at once is short.

Parsing holds the interpreter from the first byte to the last, on whichever thread it runs. So
a long body is looked through in slices: a slice that lies whole inside a string is replaced by a
mark, and decoded by itself when the string is wanted. What remains is limited.
"""

import re
from functools import cached_property

from courier import ids
from courier.core.errors import OverLimit
from courier.dialects import json

SLICE_BYTES = 64 << 10
REST = "request bytes outside of long texts"
# An escaped character outside the first plane: the longest that must not be cut in two.
_PAIR_BYTES = 12
_BLANKS = b" \t\n\r"
_HIGH_HALF = re.compile(rb"\\u[dD][89abAB]..", re.DOTALL)


class Folded:
    """A body whose `rest` is all of it but for long blanks and what lies deep inside long strings.

    Raises OverLimit when the rest is longer than `rest_bytes_max`.
    """

    def __init__(self, raw: bytes, *, rest_bytes_max: int, slice_bytes: int = SLICE_BYTES) -> None:
        self._raw = raw
        self._slice_bytes = slice_bytes
        self._mark = ids.new_id().encode()
        self._runs: list[list[tuple[int, int]]] = []
        self._read: set[int] = set()
        kept: list[bytes] = []
        size = start = 0
        inside = follows = False
        while start < len(raw):
            stop, quotes = self._slice(start)
            if inside and not quotes:
                if not follows:
                    self._runs.append([])
                    kept.append(b"%s.%d;" % (self._mark, len(self._runs) - 1))
                self._runs[-1].append((start, stop))
            else:
                part = bytes(memoryview(raw)[start:stop])
                if not inside and not part.strip(_BLANKS):
                    part = b" "
                kept.append(part)
                size += len(part)
                if size > rest_bytes_max:
                    raise OverLimit(REST, limit=rest_bytes_max, actual=size)
            follows = inside and not quotes
            inside ^= bool(quotes % 2)
            start = stop
        self.rest = b"".join(kept)

    def _slice(self, start: int) -> tuple[int, int]:
        """Where a slice ends that cuts no character in two, and how many quotes it has."""
        raw, stop = self._raw, min(start + self._slice_bytes, len(self._raw))
        # Without escaped backslashes each other backslash begins an escape.
        plain = bytes(memoryview(raw)[start:stop]).replace(b"\\\\", b"__")
        if stop < len(raw):
            length = len(plain)
            escape = plain.rfind(b"\\", length - _PAIR_BYTES)
            if escape >= 0:
                length = escape
                if _HIGH_HALF.fullmatch(plain, escape - 6, escape):
                    length -= 6
            else:
                cut = 0
                while cut < 3 and raw[stop - cut] & 0xC0 == 0x80:
                    cut += 1
                length -= cut
            plain = plain[:length]
            stop = start + length
        return stop, plain.count(b'"') - plain.count(b'\\"')

    @cached_property
    def _marks(self) -> re.Pattern[bytes]:
        return re.compile(rb"%s\.(\d+);" % self._mark)

    def holds(self, part: bytes) -> bool:
        """Whether something of this part of the rest is set aside."""
        return self._mark in part

    def length(self, part: bytes) -> int:
        """How long a part of the rest was in the body."""
        size = len(part)
        for mark in self._marks.finditer(part):
            run = self._runs[int(mark[1])]
            size += run[-1][1] - run[0][0] - len(mark[0])
        return size

    def whole(self, part: bytes) -> bytes:
        """A part of the rest as it was in the body."""

        def original(mark: re.Match[bytes]) -> bytes:
            run = self._run(int(mark[1]))
            return bytes(memoryview(self._raw)[run[0][0] : run[-1][1]])

        return self._marks.sub(original, part)

    def text(self, part: bytes, *, bytes_max: int) -> str:
        """The string that a part of the rest stands for; raises NotJson, OverLimit."""
        texts: list[str] = []
        size = 0
        for piece in self._pieces(part):
            text: str = json.decode(b'"%s"' % piece, str)
            size += len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
            if size > bytes_max:
                raise OverLimit("message bytes", limit=bytes_max, actual=size)
            texts.append(text)
        return "".join(texts)

    def check(self) -> None:
        """Raises NotJson for a mistake in a long text that nobody asked for."""
        view = memoryview(self._raw)
        for number, run in enumerate(self._runs):
            for start, stop in run if number not in self._read else ():
                json.decode(b'"%s"' % view[start:stop], str)

    def _run(self, number: int) -> list[tuple[int, int]]:
        self._read.add(number)
        return self._runs[number]

    def _pieces(self, part: bytes) -> "list[bytes | memoryview]":
        """What stands between the quotes, each piece short and good by itself."""
        pieces: list[bytes | memoryview] = []
        between = self._marks.split(part.strip()[1:-1])
        for number, piece in enumerate(between):
            if number % 2:
                view = memoryview(self._raw)
                pieces += [view[start:stop] for start, stop in self._run(int(piece))]
            else:
                pieces.append(piece)
        return pieces
