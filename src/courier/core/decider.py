"""What all verbs on settings share."""

from courier.clock import Clock
from courier.core.records import Change, Decide, Records, T
from courier.core.store import Store
from courier.core.types import OPERATOR, Actor, Tenant


class Decider:
    """Reads records, and writes what it decides where the decision still holds.

    A decision is a function of records. It runs when it is written, may run again, and changes
    nothing itself, so verbs need no lock however many processes there are.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._records = store.records
        self._clock = clock

    async def _change(self, decide: Decide[T], *, actor: Actor) -> T:
        """Raises NotFound where a tenant was deleted since the caller was let in."""

        def checked(records: Records) -> Change[T]:
            change = decide(records)
            new = [each.id for each in change.puts if isinstance(each, Tenant)]
            for tenant in {record.tenant for record in change.puts}.difference([OPERATOR, *new]):
                records.require(Tenant, tenant)
            return change

        return await self._store.change(checked, actor=actor, now_ms=self._clock.now_ms())
