"""Digests of rows: each is of its row and of the digest before it, and so of all rows up to it.

They do not depend on how rows are divided among requests, nor on how Arrow or JSON wrote them.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from courier.core.types import Draft

DIGEST_BYTES = 16

_pack = msgspec.msgpack.Encoder(order="sorted").encode


def digests(
    drafts: Sequence[Draft], before: bytes, *, last: bool = False, key: bytes = b""
) -> list[bytes]:
    """The digest before the first draft (b"": there is none), then that of each.

    `last`: no other row follows, so that the same rows with more behind them have another.
    """
    digest = before
    found = [digest]
    for draft in drafts:
        row = _pack(
            (
                draft.body,
                draft.content_type,
                draft.headers,
                draft.id,
                draft.delay_ms,
                draft.group,
            )
        )
        digest = blake2b(digest + row, digest_size=DIGEST_BYTES, key=key).digest()
        found.append(digest)
    if last and drafts:
        found[-1] = blake2b(digest + b"last", digest_size=DIGEST_BYTES, key=key).digest()
    return found
