"""Another secret for a key, while the old one still works for a while."""

from collections.abc import Callable

from msgspec.structs import replace

from courier.core import keys
from courier.core.decider import Decider
from courier.core.records import Change, Records
from courier.core.types import DAY_MS, Actor, AnyRecord, Key, Session

OVERLAP_MS = DAY_MS
OVERLAP_MS_MAX = 30 * DAY_MS


class Rotation(Decider):
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

        def decide(records: Records) -> Change[tuple[Key, str]]:
            key = records.require(Key, id, tenant=tenant)
            now_ms = self._clock.now_ms()
            key, secret = keys.rotated(key, now_ms=now_ms, overlap_ms=overlap_ms)
            key = replace(finish(key, secret), modified_ms=now_ms)
            puts: list[AnyRecord] = [key]
            sessions = records.scan(Session, parent=id)
            if overlap_ms:
                puts += [_ending(session, now_ms + overlap_ms) for session in sessions]
            drops = [] if overlap_ms else sessions
            return Change(puts, drops, (key, secret))

        return await self._change(decide, actor=actor)


def _ending(session: Session, until_ms: int) -> Session:
    """The session, over by then at the latest."""
    ends_ms = until_ms if session.ends_ms is None else min(session.ends_ms, until_ms)
    return replace(session, ends_ms=ends_ms)
