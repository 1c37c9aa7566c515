"""Sessions: what a client gets for its id and secret, and shows for a while.

A session's token is made from its id with the store's secret, so it can be given out again
although it is not kept.
"""

import base64
from hashlib import blake2b

from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core import keys
from courier.core.decider import Decider
from courier.core.errors import Unauthenticated
from courier.core.records import Change, Records
from courier.core.store import Store
from courier.core.types import BROKER, DAY_MS, HOUR_MS, MINUTE_MS, Actor, Key, Session

SESSION_MS = HOUR_MS
# Of people at a browser: since the last use, and in all.
BROWSER_SESSION_MS = 12 * HOUR_MS
BROWSER_WHOLE_MS = 7 * DAY_MS
# A session in use is written down again this often, not with every use.
SAVE_EVERY_MS = 5 * MINUTE_MS
SESSIONS_MAX = 100
REMEMBERED_MAX = 1_000
_ID_DIGITS = 30
_MAC_BYTES = 24


class Sessions(Decider):
    """Sessions of apps are shared by all who ask, and last while they are used.

    With `whole_ms` every session lasts while it is used, that long at most, and none is shared.
    A token made for one `purpose` proves nothing where another is wanted.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        purpose: bytes = b"session",
        session_ms: int = SESSION_MS,
        whole_ms: int | None = None,
    ) -> None:
        super().__init__(store, clock)
        self._purpose = purpose
        self._session_ms = session_ms
        self._whole_ms = whole_ms
        self._used_ms: dict[str, int] = {}
        self._verified: dict[str, Session] = {}

    def _token(self, id: str) -> str:
        mac = blake2b(
            id.encode(), key=self._store.secret, digest_size=_MAC_BYTES, person=self._purpose
        )
        return id[-_ID_DIGITS:] + base64.urlsafe_b64encode(mac.digest()).decode()

    def _expires_ms(self, session: Session) -> int:
        expires_ms, used_ms = session.expires_ms, self._used_ms.get(session.id, 0)
        if used_ms:
            expires_ms = max(expires_ms, used_ms + self._session_ms)
        return expires_ms if session.ends_ms is None else min(expires_ms, session.ends_ms)

    async def open(self, key: Key, *, until_ms: int | None = None, actor: Actor) -> str:
        """A token for this key: of an app the one that is valid already, else a new one.

        `until_ms` is when the secret ends that the session is opened with, and it with that.
        """
        now_ms = self._clock.now_ms()
        if self._whole_ms is not None:
            whole_ms = now_ms + self._whole_ms
            until_ms = whole_ms if until_ms is None else min(until_ms, whole_ms)
        new = Session(
            id=ids.new_id(),
            tenant=key.tenant,
            parent=key.id,
            created_ms=now_ms,
            expires_ms=now_ms + self._session_ms,
            ends_ms=until_ms,
        )

        def decide(records: Records) -> Change[tuple[Session, list[Session]]]:
            known = records.scan(Session, parent=key.id)
            valid = [session for session in known if self._expires_ms(session) > now_ms]
            shared = [session for session in valid if session.ends_ms == until_ms]
            if key.kind == "app" and shared and self._whole_ms is None:
                session = shared[-1]
                return Change(self._longer(session, now_ms), answer=(session, []))
            drops = [session for session in known if session not in valid]
            drops += valid[: max(0, len(valid) + 1 - SESSIONS_MAX)]
            return Change([new], drops, (new, drops))

        change = decide(self._records)
        session, dropped = change.answer
        if change.puts:
            session, dropped = await self._change(decide, actor=actor)
        if session is not new:
            self._used_ms[session.id] = now_ms
        for old in dropped:
            self._used_ms.pop(old.id, None)
        return self._token(session.id)

    async def find(self, token: str) -> Key:
        """The key behind a token; raises Unauthenticated. Use may prolong the session."""
        id = "c0" + token[:_ID_DIGITS]
        session = self._records.get(Session, id)
        if session is None:
            self._used_ms.pop(id, None)
            raise Unauthenticated("unknown", signin="unknown_session")
        if self._verified.get(token) is not session:
            if not ids.same(token, self._token(session.id)):
                raise Unauthenticated("unknown", signin="unknown_session")
            if len(self._verified) >= REMEMBERED_MAX:
                self._verified.clear()
            self._verified[token] = session
        now_ms = self._clock.now_ms()
        key = self._records.get(Key, session.parent)
        if key is None:
            raise Unauthenticated("unknown", signin="unknown_session")
        if not key.enabled:
            raise keys.refused(key, "disabled")
        if self._expires_ms(session) <= now_ms or _over(key, now_ms):
            raise keys.refused(key, "expired")
        if key.kind == "app" or self._whole_ms is not None:
            self._used_ms[session.id] = now_ms
            if self._longer(session, now_ms):
                await self._change(lambda records: self._use(records, id, now_ms), actor=BROKER)
        return key

    def ends_ms(self, token: str) -> int:
        """When the session of a token that was found ends if it is not used again."""
        session = self._records.get(Session, "c0" + token[:_ID_DIGITS])
        return 0 if session is None else self._expires_ms(session)

    def _use(self, records: Records, id: str, now_ms: int) -> Change[None]:
        """Write down that it was used. It may be gone by now, and must then not come back."""
        session = records.get(Session, id)
        return Change() if session is None else Change(self._longer(session, now_ms))

    def _longer(self, session: Session, now_ms: int) -> list[Session]:
        """The session as it lasts when it is used now; none if that is not worth saving."""
        if session.expires_ms >= now_ms + self._session_ms - SAVE_EVERY_MS:
            return []
        return [replace(session, expires_ms=now_ms + self._session_ms)]

    async def end(self, token: str, *, actor: Actor) -> None:
        """End the session that the token is of. Raises Unauthenticated."""
        await self.find(token)
        id = "c0" + token[:_ID_DIGITS]

        def decide(records: Records) -> Change[None]:
            session = records.get(Session, id)
            return Change(drops=[session] if session else [])

        await self._change(decide, actor=actor)
        self._used_ms.pop(id, None)


def _over(key: Key, now_ms: int) -> bool:
    return key.expires_ms is not None and key.expires_ms <= now_ms
