"""Who was let through before is let through again, as long as nothing has changed.

Only message routes are remembered, since those are asked again and again; only admissions are, and
never a refusal. An admission is good for one route, for the very values of the path that it was
decided by, and for the very credential. It is forgotten when any setting changes (of this process,
or of another one once this one knows), when a credential of its key may have ended, and when its
site says so. A caller that is not remembered is asked for everything.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from courier.clock import Clock
from courier.core import keys
from courier.core.records import Records
from courier.core.types import Actor, Key

if TYPE_CHECKING:
    from courier.web import Call

# How many are remembered; the longest path and credential of those.
ADMISSIONS_MAX = 1_000
PLACE_CHARACTERS_MAX = 512
PROOF_CHARACTERS_MAX = 512


class RememberedAdmission(Struct, frozen=True):
    """What was decided, by settings of that version. `until_ms` None: as long as it holds."""

    actor: Actor
    key: Key
    tenant: str
    queue: Any
    held: keys.Reach
    until_ms: int | None
    version: int


class Admissions:
    """By place (a route, with the values of its path) and proof (a credential)."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._version = -1
        self._known: dict[tuple[Hashable, Hashable], RememberedAdmission] = {}

    def find(self, place: Hashable, proof: Hashable) -> RememberedAdmission | None:
        known = self._known.get((place, proof))
        return known if known is not None and self.holds(known) else None

    def holds(self, known: RememberedAdmission) -> bool:
        """Whether what was decided then would be decided now."""
        if known.version != self._records.version:
            return False
        return known.until_ms is None or self._clock.now_ms() < known.until_ms

    def keep(
        self,
        place: Hashable,
        proof: Hashable,
        call: "Call",
        *,
        version: int,
        until_ms: int | None,
    ) -> None:
        """Remember that a call was admitted, by settings of that version.

        `until_ms`: until when the credential is known to prove the same.
        """
        if call.key is None or call.held is None or not call.decided:
            return
        if version != self._records.version or _characters(proof) > PROOF_CHARACTERS_MAX:
            return
        if self._version != version or len(self._known) >= ADMISSIONS_MAX:
            self._known.clear()
            self._version = version
        ends = keys.may_end_ms(call.key, now_ms=self._clock.now_ms())
        until_ms = min([ms for ms in (until_ms, ends) if ms is not None], default=None)
        self._known[place, proof] = RememberedAdmission(
            call.who, call.key, call.tenant, call.queue, call.held, until_ms, version
        )

    @property
    def version(self) -> int:
        """Of the settings by which is decided now."""
        return self._records.version


def _characters(proof: Hashable) -> int:
    if isinstance(proof, tuple):
        return sum([_characters(each) for each in proof])
    return len(proof) if isinstance(proof, str | bytes) else 0
