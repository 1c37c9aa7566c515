"""New listeners and workers, with the secrets that their requests are signed with."""

from msgspec.structs import replace

from courier import ids
from courier.clock import Clock
from courier.core.listeners import check_title, record_name
from courier.core.sealed import Sealer
from courier.core.types import Listener, Queue, Worker
from courier.delivery import signing
from courier.delivery.secrets import opened, resealed, sealed
from courier.delivery.urls import Rules


class Newcomers:
    def __init__(self, sealer: Sealer, urls: Rules, clock: Clock) -> None:
        self._sealer = sealer
        self._urls = urls
        self._clock = clock

    def listener(self, queue: Queue, title: str, url: str) -> tuple[Listener, str]:
        """A listener of the queue and its secret; raises InvalidRequest."""
        check_title(title)
        self._urls.check(url, queue.tenant, field="url")
        id, now_ms, secret = ids.new_id(), self._clock.now_ms(), signing.new_secret()
        listener = Listener(
            id=id,
            tenant=queue.tenant,
            parent=queue.id,
            name=record_name(queue.id, title),
            created_ms=now_ms,
            modified_ms=now_ms,
            title=title,
            url=url,
            liveness_url=url,
            secrets=(sealed(secret, self._sealer, Listener, tenant=queue.tenant, id=id),),
        )
        return listener, secret

    def worker(self, tenant: str, name: str, url: str, known: Worker | None) -> Worker:
        """A worker of that name, or the known one at another URL."""
        if known is not None:
            return replace(known, url=url, secrets=resealed(known, self._sealer).secrets)
        id, secret = ids.new_id(), signing.new_secret()
        return Worker(
            id=id,
            tenant=tenant,
            name=name,
            created_ms=self._clock.now_ms(),
            url=url,
            secrets=(sealed(secret, self._sealer, Worker, tenant=tenant, id=id),),
        )

    def secret(self, worker: Worker) -> str:
        """What calls to it are signed with."""
        return opened(worker, self._sealer, now_ms=self._clock.now_ms())[0]
