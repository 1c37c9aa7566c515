"""Identifiers and tokens, and the only source of randomness.

Every id is 120 bits, written as 32 hex digits that begin with `c0`, so that a dialect with a
shorter alphabet can render it and read it back.

A message's generated id needs neither a column nor an index: it is put together from what the
message's row already says (when it was published, its sequence in its queue) and a mark of the
queue, and `message_seq` leads from the id straight back to the row.
"""

import hmac
import secrets
import struct
import uuid
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from operator import eq
from zlib import crc32

SEQ_BITS = 42
_SEQ_MASK = (1 << SEQ_BITS) - 1
MARK_BITS = 34
_MARK_MASK = (1 << MARK_BITS) - 1
FIRST_BYTE = 0xC0
_MAC_BYTES = 9
_TOKEN_BYTES = 6 + 3 + _MAC_BYTES
_TOKEN_CHARACTERS = _TOKEN_BYTES * 4 // 3
# Most tokens that share a MAC; how the numbers of tokens among those are written.
SHARED_MAX = 1_000
_NUMBERS = [f"{number:04x}" for number in range(SHARED_MAX)]
_NUMBER_OF = {text: number for number, text in enumerate(_NUMBERS)}
_NUMBER_CHARACTERS = 4
# Made once, which costs less than once for each token.
_NUMBER_PART, _SHARED_PART = slice(_NUMBER_CHARACTERS), slice(_NUMBER_CHARACTERS, None)
_SHARED_BYTES = 6 + 3 + 3 + _MAC_BYTES
_SHARED_CHARACTERS = _NUMBER_CHARACTERS + _SHARED_BYTES * 4 // 3
# The two characters that base64 for URLs writes otherwise. What they stand for is not read.
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")
# What the MAC of shared tokens begins with. That of a single one begins with a sequence, whose
# first byte is never this, so neither can pass for the other.
_SHARED_MARK, _BOUND_MARK = b"\xff", b"\xfe"
# Of a bound one among those: its number, a checksum of what it is bound to, the part they share.
_CHECK_PART, _BOUND_SHARED_PART = slice(_NUMBER_CHARACTERS, 12), slice(12, None)
_BOUND_CHARACTERS = 8 + _SHARED_CHARACTERS


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
    return ids_together(published_ms, [seq], queue=queue)[0]


def ids_together(published_ms: int, seqs: Iterable[int], *, queue: str) -> list[str]:
    """The ids of messages of one queue that were published at the same time."""
    # With its first byte it has all its digits, so that the quick way of writing it will do.
    rest = FIRST_BYTE << 120 | published_ms << SEQ_BITS + MARK_BITS | mark(queue)
    return [hex(rest | seq << MARK_BITS)[2:] for seq in seqs]


def message_ids(times_and_seqs: Iterable[tuple[int, int]], *, queue: str) -> list[str]:
    """The ids of many messages of one queue, from their publish times and sequences."""
    rest = FIRST_BYTE << 120 | mark(queue)
    return [
        hex(rest | (published_ms << SEQ_BITS | seq) << MARK_BITS)[2:]
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

    Tokens that are handed out together share a MAC where their sequences are neighbours on the
    same attempt: each is its own number among them, and the part that is the same in all. So
    who holds one of them could write the others, which the same caller was given.

    A token may be bound to a text, such as the message's own id, and then reads only with it. Among
    those that share a MAC a checksum tells a wrong text, which guards against mistakes alone: the
    text gives nobody more than the token.
    """

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._key = sha256(secret + purpose.encode()).digest()
        self._begun = lru_cache(maxsize=1_000)(self._begin)

    def _begin(self, place: str) -> blake2b:
        return blake2b(place.encode(), digest_size=_MAC_BYTES, key=self._key)

    def _mac(self, head: bytes, place: str, bound: str) -> bytes:
        mac = self._begun(place).copy()
        mac.update(head + bound.encode("utf-8", "surrogatepass") if bound else head)
        return mac.digest()

    def mint(self, place: str, seq: int, attempt: int, bound: str = "") -> str:
        head = (seq << 24 | attempt).to_bytes(9, "big")
        return _encoded(head + self._mac(head, place, bound))

    def mint_all(
        self, place: str, seqs: Sequence[int], attempts: Sequence[int], bound: Sequence[str] = ()
    ) -> list[str]:
        """Tokens of what is handed out together, each bound to its text if there are any."""
        at, count = 0, len(seqs)
        if count == 1:
            return [self.mint(place, seqs[0], attempts[0], bound[0] if bound else "")]
        tokens: list[str] = []
        while at < count:
            end = _neighbours_end(seqs, attempts, at)
            if end - at == 1:
                tokens.append(self.mint(place, seqs[at], attempts[at], bound[at] if bound else ""))
            else:
                texts = bound[at:end]
                tokens += self._mint_shared(place, seqs[at], attempts[at], end - at, texts)
            at = end
        return tokens

    def _mint_shared(
        self, place: str, first: int, attempt: int, count: int, bound: Sequence[str]
    ) -> list[str]:
        head = (first << 48 | count << 24 | attempt).to_bytes(12, "big")
        mac = self._mac((_BOUND_MARK if bound else _SHARED_MARK) + head, place, "")
        shared = _encoded(head + mac)
        if bound:
            checks = _checks(bound, range(count), shared)
            return [n + check + shared for n, check in zip(_NUMBERS, checks, strict=False)]
        return [text + shared for text in _NUMBERS[:count]]

    def read_all(
        self, place: str, tokens: Sequence[str], bound: Sequence[str] = ()
    ) -> list[tuple[int, int] | None]:
        """(sequence, attempt) of each, or None; `bound`: the text that each is bound to, if any."""
        if len(tokens) == 1 and len(tokens[0]) == _TOKEN_CHARACTERS:
            return [self.read(place, tokens[0], bound[0] if bound else "")]
        part = _BOUND_SHARED_PART if bound else _SHARED_PART
        parts = [token[part] for token in tokens]
        if parts and parts.count(parts[0]) == len(tokens):
            return self._read_alike(place, tokens, bound, parts[0])
        found: list[tuple[int, int] | None] = [None] * len(tokens)
        alike: dict[str, list[int]] = {}
        for at, shared in enumerate(parts):
            alike.setdefault(shared, []).append(at)
        for shared, places in alike.items():
            texts = [bound[each] for each in places] if bound else ()
            read = self._read_alike(place, [tokens[each] for each in places], texts, shared)
            for at, each in zip(places, read, strict=True):
                found[at] = each
        return found

    def _read_alike(
        self, place: str, tokens: Sequence[str], bound: Sequence[str], shared: str
    ) -> list[tuple[int, int] | None]:
        """Of tokens whose last part is the same, which is looked at once."""
        if len(tokens[0]) != (_BOUND_CHARACTERS if bound else _SHARED_CHARACTERS):
            texts = bound or [""] * len(tokens)
            return [self.read(place, *each) for each in zip(tokens, texts, strict=True)]
        mark = _BOUND_MARK if bound else _SHARED_MARK
        first, count, attempt = self._read_shared(place, shared, mark)
        numbers = [_NUMBER_OF.get(token[_NUMBER_PART], count) for token in tokens]
        if bound and count:
            said, true = [token[_CHECK_PART] for token in tokens], _checks(bound, numbers, shared)
            if said != true:
                good = map(eq, said, true)
                numbers = [n if same else count for n, same in zip(numbers, good, strict=True)]
        return [(first + n, attempt) if n < count else None for n in numbers]

    def _read_shared(self, place: str, shared: str, mark: bytes) -> tuple[int, int, int]:
        """First sequence, how many share it, and their attempt; 0 of them: it is not ours."""
        raw = _decoded(shared)
        if len(raw) != _SHARED_BYTES:
            return 0, 0, 0
        head = raw[:12]
        if not hmac.compare_digest(raw[12:], self._mac(mark + head, place, "")):
            return 0, 0, 0
        value = int.from_bytes(head, "big")
        return value >> 48, value >> 24 & 0xFFFFFF, value & 0xFFFFFF

    def read(self, place: str, token: str, bound: str = "") -> tuple[int, int] | None:
        """(sequence, attempt), or None when it is no token that was minted alone for this place."""
        if len(token) != _TOKEN_CHARACTERS:
            return None
        raw = _decoded(token)
        if len(raw) != _TOKEN_BYTES:
            return None
        head = raw[:9]
        if not hmac.compare_digest(raw[9:], self._mac(head, place, bound)):
            return None
        value = int.from_bytes(head, "big")
        return value >> 24, value & 0xFFFFFF


def _checks(texts: Sequence[str], numbers: Sequence[int], shared: str) -> list[str]:
    """What tokens that share a part say of their numbers and of the texts they are bound to."""
    start = crc32(shared.encode())
    # By columns, as far as can be; of the starts no more than 32 bits count.
    raw = map(str.encode if "".join(texts).isascii() else _encode_any, texts)
    sums = map(crc32, raw, map(start.__add__, numbers))
    spelled = struct.pack(f">{len(texts)}I", *sums).hex()
    return [spelled[at : at + 8] for at in range(0, len(spelled), 8)]


def _encode_any(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _encoded(raw: bytes) -> str:
    """As base64 for URLs."""
    return b2a_base64(raw, newline=False).translate(_TO_URL).decode()


def _decoded(text: str) -> bytes:
    """What is written as base64 for URLs; empty if it is not that."""
    try:
        return a2b_base64(text.encode().translate(_FROM_URL), strict_mode=True)
    except ValueError:
        return b""


def _neighbours_end(seqs: Sequence[int], attempts: Sequence[int], at: int) -> int:
    """Where those end that follow each other from `at` on, on the same attempt."""
    first, attempt = seqs[at], attempts[at]
    whole = min(len(seqs), at + SHARED_MAX)
    count = whole - at
    if attempts[at:whole].count(attempt) == count and list(seqs[at:whole]) == [
        *range(first, first + count)
    ]:
        return whole
    end = at + 1
    while end < whole and seqs[end] - first == end - at and attempts[end] == attempt:
        end += 1
    return end
