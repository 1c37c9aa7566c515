"""Bit masks of ranges, as they are stored."""

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
