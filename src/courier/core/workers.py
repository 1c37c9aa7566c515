"""Workers: where the operator runs the scripts that push consumers name."""

from collections.abc import Callable
from urllib.parse import urlsplit

from courier.core.decider import Decider
from courier.core.errors import InvalidRequest, OverLimit
from courier.core.records import Change, Records
from courier.core.types import Actor, Worker

NAME_CHARACTERS_MAX = 255
URL_CHARACTERS_MAX = 2_048
WORKERS_MAX = 1_000


class Workers(Decider):
    def find(self, tenant: str, name: str) -> Worker | None:
        return self._records.named(Worker, tenant=tenant, name=name)

    def list(self, tenant: str) -> list[Worker]:
        return self._records.scan(Worker, tenant=tenant)

    async def put(
        self, tenant: str, name: str, edit: Callable[[Worker | None], Worker], *, actor: Actor
    ) -> Worker:
        """Create the worker of that name or change it; `edit` gets it if it exists."""
        check_name(name)

        def decide(records: Records) -> Change[Worker]:
            known = records.named(Worker, tenant=tenant, name=name)
            worker = edit(known)
            check_url(worker.url)
            count = records.count(Worker, tenant=tenant) + (known is None)
            if count > WORKERS_MAX:
                raise OverLimit("workers", limit=WORKERS_MAX, actual=count)
            return Change(puts=[worker], answer=worker)

        return await self._change(decide, actor=actor)

    async def remove(self, tenant: str, name: str, *, actor: Actor) -> None:
        def decide(records: Records) -> Change[None]:
            return Change(drops=[records.require_named(Worker, tenant=tenant, name=name)])

        await self._change(decide, actor=actor)


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
        raise InvalidRequest("url", "is not an address: its host or port is invalid") from error
    if len(url) > URL_CHARACTERS_MAX:
        raise InvalidRequest("url", f"must have at most {URL_CHARACTERS_MAX} characters")
    if not (url.isascii() and url.isprintable()) or set(url) & set(' "<>\\^`{|}'):
        raise InvalidRequest("url", "holds characters that must be percent-encoded")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InvalidRequest("url", "must be an http:// or https:// address")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidRequest("url", "must have neither user information nor a fragment")
