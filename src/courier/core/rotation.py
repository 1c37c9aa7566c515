"""Another secret for a key, while the old one still works for a while."""

from collections.abc import Callable

from msgspec.structs import replace

from courier.clock import Clock
from courier.core import keys
from courier.core.errors import NotFound
from courier.core.store import Store
from courier.core.turns import Turn
from courier.core.types import DAY_MS, Actor, AnyRecord, Key, Session

OVERLAP_MS = DAY_MS
OVERLAP_MS_MAX = 30 * DAY_MS


class Rotation:
    def __init__(self, store: Store, clock: Clock, turn: Turn) -> None:
        self._store = store
        self._clock = clock
        self._turn = turn

    async def rotate(
        self,
        tenant: str,
        id: str,
        *,
        overlap_ms: int,
        finish: Callable[[Key, str], Key],
        actor: Actor,
    ) -> tuple[Key, str]:
        """The key with another secret, and that secret, which cannot be shown again.

        The old secret works for `overlap_ms` more, and sessions opened with it end with it;
        0 ends it at once, and all that were replaced before. `finish` gets key and secret and
        may note something on the key.
        """
        async with self._turn:
            key = await self._store.get(Key, id)
            if key is None or key.tenant != tenant:
                raise NotFound("key", id)
            now_ms = self._clock.now_ms()
            key, secret = keys.rotated(key, now_ms=now_ms, overlap_ms=overlap_ms)
            key = replace(finish(key, secret), modified_ms=now_ms)
            puts: list[AnyRecord] = [key]
            sessions = await self._store.scan(Session, parent=id)
            if overlap_ms:
                puts += [_ending(session, now_ms + overlap_ms) for session in sessions]
            drops = [] if overlap_ms else sessions
            await self._store.change(puts=puts, drops=drops, actor=actor, now_ms=now_ms)
            return key, secret


def _ending(session: Session, until_ms: int) -> Session:
    """The session, over by then at the latest."""
    ends_ms = until_ms if session.ends_ms is None else min(session.ends_ms, until_ms)
    return replace(session, ends_ms=ends_ms)
