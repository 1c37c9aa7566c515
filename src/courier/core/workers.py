"""Workers: where the operator runs the scripts that push consumers name."""

from collections.abc import Callable
from urllib.parse import urlsplit

from courier.clock import Clock
from courier.core.errors import InvalidRequest, NotFound, OverLimit
from courier.core.store import Store
from courier.core.turns import Turn
from courier.core.types import Actor, Worker

NAME_CHARACTERS_MAX = 255
URL_CHARACTERS_MAX = 2_048
WORKERS_MAX = 1_000


class Workers:
    def __init__(self, store: Store, clock: Clock, turn: Turn) -> None:
        self._store = store
        self._clock = clock
        self._turn = turn

    async def find(self, tenant: str, name: str) -> Worker | None:
        return await self._store.named(Worker, tenant=tenant, name=name)

    async def list(self, tenant: str) -> list[Worker]:
        return await self._store.scan(Worker, tenant=tenant)

    async def put(
        self, tenant: str, name: str, edit: Callable[[Worker | None], Worker], *, actor: Actor
    ) -> Worker:
        """Create the worker of that name or change it; `edit` gets it if it exists."""
        check_name(name)
        async with self._turn:
            known = await self.find(tenant, name)
            worker = edit(known)
            check_url(worker.url)
            count = len(await self.list(tenant)) + (known is None)
            if count > WORKERS_MAX:
                raise OverLimit("workers", limit=WORKERS_MAX, actual=count)
            now_ms = self._clock.now_ms()
            await self._store.change(puts=[worker], actor=actor, now_ms=now_ms)
            return worker

    async def remove(self, tenant: str, name: str, *, actor: Actor) -> None:
        async with self._turn:
            worker = await self.find(tenant, name)
            if worker is None:
                raise NotFound("worker", name)
            await self._store.change(drops=[worker], actor=actor, now_ms=self._clock.now_ms())


def check_name(name: str) -> None:
    if not (1 <= len(name) <= NAME_CHARACTERS_MAX and name.isprintable()):
        raise InvalidRequest(
            "name", f"must have 1 to {NAME_CHARACTERS_MAX} characters that can be printed"
        )


def check_url(url: str) -> None:
    """Raises InvalidRequest. Where it leads is not judged: it is the operator's own word."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest("url", f"is not an address: {error}") from error
    if len(url) > URL_CHARACTERS_MAX:
        raise InvalidRequest("url", f"must have at most {URL_CHARACTERS_MAX} characters")
    if not (url.isascii() and url.isprintable()) or set(url) & set(' "<>\\^`{|}'):
        raise InvalidRequest("url", "holds characters that must be percent-encoded")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidRequest("url", "must be an http:// or https:// address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidRequest("url", "must have neither user information nor a fragment")
