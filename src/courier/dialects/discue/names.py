"""Ids and names as Discue writes them.

An id is the core's 120 bits in 21 characters of A-Z a-z 0-9 and -, and reads back. The first is
always a letter.
"""

import re
from itertools import product

from courier import ids
from courier.core.errors import InvalidRequest
from courier.core.lifecycle import NAME_HEADER
from courier.core.types import Message, Queue

ID_CHARACTERS = 21
NAME_CHARACTERS_MAX = 64
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"
_BASE = len(_ALPHABET)
_PAIRS = [first + second for first, second in product(_ALPHABET, repeat=2)]
# What two, four, five and ten characters can spell.
_TWO, _FOUR, _FIVE, _TEN = (_BASE**count for count in (2, 4, 5, 10))
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_BITS = 120
# Spreads ids that differ in a few bits only over the whole alphabet; odd, so it can be undone.
_SPREAD = 0xB5026F5AA96619E9F2C3D4A5B6C7D9
_UNSPREAD = pow(_SPREAD, -1, 1 << _BITS)
_MASK = (1 << _BITS) - 1

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]{3,63}", re.ASCII)


def shown(id: str) -> str:
    """The core's id in Discue's spelling."""
    # Every push and every answer spells some: so there is no loop, and numbers of five characters,
    # which are short and quick.
    high, low = divmod(int(id[2:], 16) * _SPREAD & _MASK, _TEN)
    first, high = divmod(high, _TEN)
    (a, b), (c, d) = divmod(high, _FIVE), divmod(low, _FIVE)
    ones, pairs, two, four = _ALPHABET, _PAIRS, _TWO, _FOUR
    return (
        f"{ones[first]}"
        f"{ones[a // four]}{pairs[a // two % two]}{pairs[a % two]}"
        f"{ones[b // four]}{pairs[b // two % two]}{pairs[b % two]}"
        f"{ones[c // four]}{pairs[c // two % two]}{pairs[c % two]}"
        f"{ones[d // four]}{pairs[d // two % two]}{pairs[d % two]}"
    )


def read(text: str) -> str:
    """The core's id that is spelled like this; "" for what is none."""
    if len(text) != ID_CHARACTERS:
        return ""
    value = 0
    for character in text:
        if character not in _VALUES:
            return ""
        value = value * _BASE + _VALUES[character]
    if value > _MASK:
        return ""
    return f"c0{value * _UNSPREAD & _MASK:030x}"


def message_name(queue: Queue, message: Message) -> str:
    """The name that a message was given, or one made up from where it is and its id.

    Publishers of other dialects may use the header for whatever they like.
    """
    if name := _given_name(message):
        return name
    id = ids.message_id(published_ms=message.published_ms, seq=message.seq, queue=queue.id)
    return invented(queue, shown(id))


def _given_name(message: Message) -> str:
    name = message.headers.get(NAME_HEADER) if message.headers else None
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def invented(queue: Queue, shown: str) -> str:
    """The name of a message, by its id as it is shown, that was given none."""
    return f"{queue.name[: NAME_CHARACTERS_MAX - 8]}-{shown[:7]}"


class DiscueSpelling:
    """How the delivery engine names things to listeners."""

    def id(self, id: str) -> str:
        return shown(id)

    def name(self, queue: Queue, message: Message, id: str) -> str:
        return _given_name(message) or invented(queue, id)


def checked(name: str, field: str = "name") -> str:
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            field,
            "must have 4 to 64 of A-Z a-z 0-9 . _ / and -, the first of them a letter or digit",
        )
    return name
