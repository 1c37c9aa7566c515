"""Forms as browsers and clients send them, in the body of a request."""

from urllib.parse import unquote_to_bytes

# Decoded at a time: whatever holds the interpreter for one piece holds up everybody.
PIECE_BYTES = 16 << 10


def fields(raw: bytes, *, fields_max: int, piece_bytes: int = PIECE_BYTES) -> list[tuple[str, str]]:
    """Names and values, blank ones too. Raises ValueError: too many of them, or not UTF-8."""
    pairs = raw.split(b"&", fields_max)
    if len(pairs) > fields_max:
        raise ValueError(f"it has more than {fields_max} fields")
    halves = [pair.partition(b"=") for pair in pairs if pair]
    return [(_text(name, piece_bytes), _text(value, piece_bytes)) for name, _, value in halves]


def _text(raw: bytes, piece_bytes: int) -> str:
    """Raises ValueError where that is not UTF-8."""
    if b"%" not in raw:
        return raw.replace(b"+", b" ").decode()
    pieces, start = [], 0
    while start < len(raw):
        stop = start + piece_bytes
        escape = raw.rfind(b"%", stop - 2, stop)  # one that would be cut in two
        stop = escape if start < escape else stop
        pieces.append(unquote_to_bytes(raw[start:stop].replace(b"+", b" ")))
        start = stop
    return b"".join(pieces).decode()
