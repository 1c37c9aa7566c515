"""Pure: what the end of an attempt without an ack does to a delivery."""

from typing import NamedTuple

from courier.core.types import Queue

# The group of messages on a FIFO queue that were published without one.
GROUP_DEFAULT = "default"
# The header that holds a message's name, where it has one.
NAME_HEADER = "name"


class Again(NamedTuple):
    """Ready again at `due_ms`."""

    due_ms: int


class Bury(NamedTuple):
    """No attempts left; `into` is the dead-letter queue's id, None drops the message."""

    into: str | None


def after_failure(
    queue: Queue, *, attempt: int, delay_ms: int | None, ended_ms: int
) -> Again | Bury:
    """The attempt ended at `ended_ms` by a retry (with its own delay, or None) or by expiry."""
    if queue.attempts_max is not None and attempt >= queue.attempts_max:
        return Bury(queue.dead_letter)
    return Again(ended_ms + (queue.retry_delay_ms if delay_ms is None else delay_ms))


def expires_ms(queue: Queue, *, published_ms: int, own_ms: int | None) -> int:
    """When a message leaves the queue whatever its state: by its own expiry, else the queue's."""
    return published_ms + queue.retention_ms if own_ms is None else own_ms
