"""What runners work with."""

from msgspec import Struct, field

from courier.clock import Clock
from courier.core.broker import Broker
from courier.core.listeners import Listeners
from courier.core.sealed import Sealer
from courier.core.store import Store
from courier.delivery.moments import Soon
from courier.delivery.notes import LivenessNotes
from courier.delivery.places import Places
from courier.delivery.requests import Spelling
from courier.delivery.room import PushRoom
from courier.delivery.slots import Slots
from courier.delivery.transport import Transport
from courier.delivery.verdict import BatchCounts


class RunnerServices(Struct, kw_only=True):
    """Of listeners and consumers alike."""

    store: Store
    broker: Broker
    clock: Clock
    transport: Transport
    slots: Slots
    room: PushRoom


class PushServices(RunnerServices, kw_only=True):
    """Of listeners. `pushed` and `failed` requests have ended, `in_flight` are on their way."""

    listeners: Listeners
    sealer: Sealer
    spelling: Spelling
    notes: LivenessNotes
    # As many connections are for probes alone: they tell who may be sent requests at all.
    probe_slots: Slots
    delay_percent: int
    liveness_every_ms: int
    domains_required: bool
    soon: Soon = field(default_factory=Soon)
    pushed: int = 0
    failed: int = 0
    in_flight: int = 0


class BatchServices(RunnerServices, kw_only=True):
    """Of push consumers."""

    places: Places
    counts: BatchCounts
    timeout_ms: int
