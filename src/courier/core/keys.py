"""Tenants' credentials: what a secret proves, and what its key may do.

A secret begins with the id of its key, so finding the key needs no index of secrets.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from courier import ids
from courier.core.decider import Decider
from courier.core.errors import Forbidden, InvalidRequest, Unauthenticated
from courier.core.records import Change, Records
from courier.core.types import DAY_MS, Actor, AnyRecord, Grant, Key, Retired, Scope, Session

# How long the secret before still works.
OVERLAP_MS = DAY_MS
OVERLAP_MS_MAX = 30 * DAY_MS

READ: tuple[Scope, ...] = (
    "queues:read",
    "messages:read",
    "listeners:read",
    "schemas:read",
    "domains:read",
    "events:read",
)
WRITE: tuple[Scope, ...] = (
    *READ,
    "queues:write",
    "messages:publish",
    "messages:consume",
    "listeners:write",
    "domains:write",
)
KEYS: tuple[Scope, ...] = ("keys:read", "keys:write")
SCOPES: tuple[Scope, ...] = (*WRITE, *KEYS, "usage:read", "journal", "metrics", "admin")
# What these allow is not about queues, so a limit to some queues leaves it alone.
_APART: tuple[Scope, ...] = (*KEYS, "domains:read", "domains:write")
# These show or change everything, and so cannot be held by a key that is limited.
_WHOLE: tuple[Scope, ...] = ("journal", "metrics", "admin")
_WORDS: dict[str, tuple[Scope, ...]] = {
    "read": READ,
    "write": WRITE,
    **{scope: (scope,) for scope in SCOPES},
}
_ID_DIGITS = 30
_HINT_CHARACTERS = 6
# Secrets of one key that were replaced and still work; the oldest of more end early.
RETIRED_MAX = 4


def new_key(
    *,
    tenant: str,
    name: str,
    grants: tuple[Grant, ...],
    now_ms: int,
    expires_ms: int | None = None,
    kind: Literal["token", "app", "connected_app", "user"] = "token",
) -> tuple[Key, str]:
    """A key and its secret, which is known to nobody else from now on."""
    id = ids.new_id()
    secret = id[-_ID_DIGITS:] + ids.new_secret()[:34]
    key = Key(
        id=id,
        tenant=tenant,
        name=name,
        created_ms=now_ms,
        digest=ids.digest(secret),
        hint=secret[:_HINT_CHARACTERS],
        grants=grants,
        expires_ms=expires_ms,
        kind=kind,
    )
    return key, secret


def rotated(key: Key, *, now_ms: int, overlap_ms: int) -> tuple[Key, str]:
    """The same key with another secret; the old one works for `overlap_ms` more."""
    secret = key.id[-_ID_DIGITS:] + ids.new_secret()[:34]
    retired: tuple[Retired, ...] = ()
    if overlap_ms:
        still = [each for each in key.retired if each.until_ms > now_ms]
        retired = (Retired(key.digest, now_ms + overlap_ms), *still)[:RETIRED_MAX]
    key = replace(key, digest=ids.digest(secret), hint=secret[:_HINT_CHARACTERS], retired=retired)
    return key, secret


class Rotation(Decider):
    """Another secret for a key, while the old one still works for a while."""

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
            key, secret = rotated(key, now_ms=now_ms, overlap_ms=overlap_ms)
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


def id_of(secret: str) -> str:
    """The id of the key that this would be the secret of."""
    return "c0" + secret[:_ID_DIGITS]


class Proof(NamedTuple):
    """A key, and until when the secret that was shown works; None: as long as the key does."""

    key: Key
    until_ms: int | None


class Keyring:
    """Finds the key that a secret belongs to.

    Secrets it has verified are remembered with their key, and hold for as long as the store
    still has that very record. Looking one up tells nothing about others: a dict compares
    texts only when their whole hashes agree.
    """

    REMEMBERED_MAX = 1_000

    def __init__(self, records: Records) -> None:
        self._records = records
        self._verified: dict[str, Proof] = {}

    async def find(self, secret: str, *, now_ms: int) -> Key:
        """The token. Raises Unauthenticated, also when it is disabled or has expired."""
        return (await self.prove(secret, now_ms=now_ms, kind="token")).key

    async def prove(self, secret: str, *, now_ms: int, kind: str) -> Proof:
        """The key of that kind; raises Unauthenticated."""
        key = self._records.get(Key, id_of(secret))
        if key is None or key.kind != kind:
            raise Unauthenticated("unknown", signin="unknown_key")
        proof = self._verified.get(secret)
        if proof is None or proof.key is not key:
            proof = _proof(key, ids.digest(secret))
            if len(self._verified) >= self.REMEMBERED_MAX:
                self._verified.clear()
            self._verified[secret] = proof
        if proof.until_ms is not None and proof.until_ms <= now_ms:
            raise refused(key, "expired_secret")
        if not key.enabled:
            raise refused(key, "disabled")
        if key.expires_ms is not None and key.expires_ms <= now_ms:
            raise refused(key, "expired")
        return proof


def _proof(key: Key, digest: str) -> Proof:
    """Raises Unauthenticated unless the digest is of one of the key's secrets."""
    if ids.same(key.digest, digest):
        return Proof(key, None)
    for retired in key.retired:
        if ids.same(retired.digest, digest):
            return Proof(key, retired.until_ms)
    raise refused(key, "wrong_secret")


def refused(key: Key, reason: str) -> Unauthenticated:
    """What a caller gets who is not let in with this key: the same for every reason."""
    return Unauthenticated("unknown", signin=reason, tenant=key.tenant, key=key.id)


def may_end_ms(key: Key, *, now_ms: int) -> int | None:
    """When the key, or one of its secrets, next stops working by itself; None: never."""
    ends = [each.until_ms for each in key.retired if each.until_ms > now_ms]
    if key.expires_ms is not None:
        ends.append(key.expires_ms)
    return min(ends, default=None)


class Reach(Struct, frozen=True):
    """What a key may do by one scope: to everything of its tenant, or only to some targets."""

    scope: str
    targets: frozenset[str] | None = None

    def __contains__(self, target: str) -> bool:
        return self.targets is None or target in self.targets

    def require(self, *targets: str) -> None:
        """Raises Forbidden unless one of the targets is within reach.

        Without any target, only a reach over everything will do: a site that cannot name what
        a request is about must not let a limited key pass.
        """
        if self.targets is not None and self.targets.isdisjoint(targets):
            raise Forbidden(self.scope, limited=True)


_EVERYTHING = {scope: Reach(scope) for scope in SCOPES}


def reach(key: Key, scope: Scope, *others: Scope) -> Reach:
    """What the key may do by this scope, or by one of the others. Raises Forbidden: nothing."""
    for grant in key.grants:  # what nearly every request gets by
        if grant.scope == scope and not grant.targets:
            return _EVERYTHING[scope]
    held = [grant.targets for grant in key.grants if grant.scope in (scope, *others)]
    if not held:
        raise Forbidden(scope)
    if not all(held):
        return _EVERYTHING[scope]
    return Reach(scope, frozenset(target for targets in held for target in targets))


def require(key: Key, scope: Scope, *targets: str) -> None:
    """Raises Forbidden unless the key holds the scope for one of the targets, or for everything."""
    reach(key, scope).require(*targets)


def check_held(key: Key, wanted: Sequence[Grant]) -> None:
    """Raises Forbidden unless the key itself may do all of it: no key gives more than it has."""
    for grant in wanted:
        own = reach(key, grant.scope).targets
        if own is not None and not (grant.targets and own.issuperset(grant.targets)):
            raise Forbidden(grant.scope, limited=True)


def may_give(key: Key, wanted: Sequence[Grant]) -> bool:
    """Whether the key may hand out a key with these grants, by a scope that allows it that.

    One without limits may. One with limits gives no more than it has.
    """
    if not any(grant.targets for grant in key.grants):
        return True
    try:
        check_held(key, wanted)
    except Forbidden:
        return False
    return True


def grants(words: list[str], targets: tuple[str, ...] = ()) -> tuple[Grant, ...]:
    """Scopes by name, limited to the targets if there are any; `read` and `write` are several.

    Raises InvalidRequest for a scope that a limited key cannot have.
    """
    found: dict[Scope, Grant] = {}
    for word in words:
        if word not in _WORDS:
            known = ", ".join(_WORDS)
            raise InvalidRequest("scopes", f"'{word}' is not a scope; known are {known}")
        if targets and word in _WHOLE:
            raise InvalidRequest("targets", f"scope {word} cannot be limited to some queues")
        for scope in _WORDS[word]:
            found[scope] = Grant(scope, () if word in _APART else targets)
    return tuple(found.values())
