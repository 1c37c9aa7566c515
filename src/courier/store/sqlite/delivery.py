"""How far a message got on its line."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from courier.store.sqlite.line import SEQ_MASK

_encode_json = msgspec.json.Encoder().encode


class Delivery(NamedTuple):
    """A message and how far its delivery got; `state` None: it was never handed out."""

    id: int
    state: int | None
    lane: int
    attempt: int
    due_ms: int
    published_ms: int
    first_ms: int | None
    last_ms: int | None
    size: int
    own_id: str | None

    @property
    def seq(self) -> int:
        return self.id & SEQ_MASK

    @property
    def kept(self) -> bool:
        """It is not on its line any more, and only kept for its pushes."""
        return self.id < 0


def keys_json(keys: Iterable[int]) -> str:
    return _encode_json(list(keys)).decode()
