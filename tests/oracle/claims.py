"""What a queue of the oracle has leased under a name."""

from dataclasses import dataclass

from courier.core.errors import ClaimLost, NotFound
from courier.core.types import DAY_MS
from tests.oracle.backlog import Backlog, Delivery


@dataclass
class Claim:
    """Messages by sequence, each with the attempt that the claim is; known until `until_ms`."""

    attempts: dict[int, int]
    until_ms: int
    acked: bool = False

    def deliveries(self, backlog: Backlog, name: str, now_ms: int) -> list[Delivery]:
        """All of them, by sequence. Raises ClaimLost when one is not leased by the claim."""
        found = []
        for seq, attempt in sorted(self.attempts.items()):
            delivery = backlog.deliveries.get(seq)
            if delivery is None or not delivery.leased(now_ms) or delivery.attempts != attempt:
                raise ClaimLost(name)
            found.append(delivery)
        return found


class Claims:
    """Those of all queues."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Claim] = {}

    def find(self, queue: str, name: str, now_ms: int) -> Claim | None:
        claim = self._claims.get((queue, name))
        return claim if claim is not None and now_ms < claim.until_ms else None

    def known(self, queue: str, name: str, now_ms: int) -> Claim:
        claim = self.find(queue, name, now_ms)
        if claim is None:
            raise NotFound("claim", name)
        return claim

    def made(self, queue: str, name: str, leased: list[Delivery], *, until_ms: int) -> None:
        attempts = {delivery.message.seq: delivery.attempts for delivery in leased}
        self._claims[queue, name] = Claim(attempts, until_ms + DAY_MS)

    def forget_acked(self, queue: str, name: str) -> None:
        claim = self._claims.get((queue, name))
        if claim is not None and claim.acked:
            del self._claims[queue, name]

    def forget(self, now_ms: int) -> None:
        self._claims = {
            key: claim for key, claim in self._claims.items() if now_ms < claim.until_ms
        }
