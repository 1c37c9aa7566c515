"""Identifiers and tokens, and the only source of randomness.

Every id is 120 bits, written as 32 hex digits that begin with `c0`, so that a dialect with a
shorter alphabet can render it and read it back.

A message's generated id needs neither a column nor an index: it is put together from what the
message's row already says (when it was published, its sequence in its queue) and a mark of the
queue, and `message_seq` leads from the id straight back to the row.
"""

import base64
import hmac
import secrets
import uuid
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b, sha256

SEQ_BITS = 42
_SEQ_MASK = (1 << SEQ_BITS) - 1
MARK_BITS = 34
_MARK_MASK = (1 << MARK_BITS) - 1
FIRST_BYTE = 0xC0
_MAC_BYTES = 9
_TOKEN_BYTES = 6 + 3 + _MAC_BYTES
_TOKEN_CHARACTERS = _TOKEN_BYTES * 4 // 3


def new_id() -> str:
    return f"c0{secrets.randbits(120):030x}"


def new_uuid() -> str:
    return str(uuid.uuid4())


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(30)


def new_bytes(count: int) -> bytes:
    return secrets.token_bytes(count)


def luck() -> float:
    """From 0 to 1, to spread out what should not happen all at once."""
    return secrets.randbits(32) / (1 << 32)


def digest(secret: str) -> str:
    """What is stored in place of a secret. Secrets are long and random, so one hash is enough."""
    return sha256(secret.encode()).hexdigest()


def same(left: str, right: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(left.encode(), right.encode())


@lru_cache(maxsize=10_000)
def mark(queue: str) -> int:
    """What ids of this queue's messages end in."""
    return int(queue, 16) & _MARK_MASK


def message_id(*, published_ms: int, seq: int, queue: str) -> str:
    """The id of a message whose publisher chose none: sorts by time, then by sequence."""
    return message_ids([(published_ms, seq)], queue=queue)[0]


def message_ids(times_and_seqs: Iterable[tuple[int, int]], *, queue: str) -> list[str]:
    """The ids of many messages of one queue, from their publish times and sequences."""
    end = mark(queue)
    return [
        f"c0{(published_ms << SEQ_BITS | seq) << MARK_BITS | end:030x}"
        for published_ms, seq in times_and_seqs
    ]


def message_seq(message: str, *, queue: str) -> int | None:
    """The sequence inside a generated id, or None when it cannot be an id of this queue."""
    if len(message) != 32 or not message.startswith("c0"):
        return None
    try:
        value = int(message[2:], 16)
    except ValueError:
        return None
    if value & _MARK_MASK != mark(queue):
        return None
    return value >> MARK_BITS & _SEQ_MASK


def message_mark(message: str) -> int | None:
    """The mark of the queue that a generated id is of; None for what is not such an id."""
    if len(message) != 32 or not message.startswith("c0"):
        return None
    try:
        return int(message[2:], 16) & _MARK_MASK
    except ValueError:
        return None


def message_ms(message: str) -> int | None:
    """When the message of a generated id was published; None for what is not such an id."""
    if len(message) != 32 or not message.startswith("c0"):
        return None
    try:
        return int(message[2:], 16) >> MARK_BITS + SEQ_BITS
    except ValueError:
        return None


class Tokens:
    """Mints and reads the tokens callers hold: unguessable, and good in one place only.

    A token names a sequence and an attempt, so a late settlement is recognised without a
    history of old tokens, and it stays good across restarts. `purpose` and `place` are signed
    but not carried: a token shown in another place (another queue, say) does not read.
    """

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._key = sha256(secret + purpose.encode()).digest()
        self._begun = lru_cache(maxsize=1_000)(self._begin)

    def _begin(self, place: str) -> blake2b:
        return blake2b(place.encode(), digest_size=_MAC_BYTES, key=self._key)

    def _mac(self, head: bytes, place: str, bound: str) -> bytes:
        mac = self._begun(place).copy()
        mac.update(head + bound.encode() if bound else head)
        return mac.digest()

    def mint(self, place: str, seq: int, attempt: int, bound: str = "") -> str:
        head = (seq << 24 | attempt).to_bytes(9, "big")
        return base64.urlsafe_b64encode(head + self._mac(head, place, bound)).decode()

    def read(self, place: str, token: str, bound: str = "") -> tuple[int, int] | None:
        """(sequence, attempt), or None when the token was not minted for this place."""
        if len(token) != _TOKEN_CHARACTERS:
            return None
        try:
            raw = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        except ValueError:
            return None
        if len(raw) != _TOKEN_BYTES:
            return None
        head = raw[:9]
        if not hmac.compare_digest(raw[9:], self._mac(head, place, bound)):
            return None
        value = int.from_bytes(head, "big")
        return value >> 24, value & 0xFFFFFF
