"""A request to a listener by hand: signed as a push is, with a message that is on no queue."""

from courier import ids
from courier.core.errors import BrokerError
from courier.core.types import Listener, Message, Queue
from courier.delivery import requests, secrets
from courier.delivery.services import PushServices
from courier.delivery.slots import Turn
from courier.delivery.transport import PushResult

BODY = b'{"test":true}'


async def send(services: PushServices, listener: Listener, queue: Queue) -> PushResult:
    """What came of it. Nothing is stored, and nothing is judged by it."""
    now_ms = services.clock.now_ms()
    id = ids.message_id(published_ms=now_ms, seq=0, queue=queue.id)
    message = Message(0, id, now_ms, BODY, "json", attempts=1)
    try:
        prepared = requests.prepared(
            listener,
            queue,
            secrets.opened(listener, services.sealer, now_ms=now_ms),
            {**secrets.request_headers(listener, services.sealer), "x-courier-test": "true"},
            services.spelling,
        )
        push = requests.request(
            listener, queue, message, prepared, services.spelling, wall_ms=services.clock.wall_ms()
        )
    except (BrokerError, ValueError) as error:
        return PushResult(0, 0, str(error))
    turn = Turn(services.probe_slots, tenant=listener.tenant, queue=listener.parent)
    try:
        async with turn:
            return await services.transport.send(push, timeout_ms=listener.timeout_ms, trial=True)
    finally:
        turn.close()
