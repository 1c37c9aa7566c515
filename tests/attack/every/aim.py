"""Any route of any site, with a request that is good but for the one thing under test."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from courier.web import PUBLIC_BODY_BYTES_MAX, Route, Site
from tests.attack import discue, environment, peer
from tests.attack.peer import Answer, Peer
from tests.conformance.reach import aims
from tests.conformance.reach.tables import Place
from tests.conformance.reach.world import Credential, Side, World
from tests.routes import tables

T = TypeVar("T")

# A soak run sends every value to every route: STEP=1.
STEP = int(os.environ.get("STEP", "5"))
# The console's forms are tried in tests/console. Discue's routes stand under two prefixes.
SITES = ("cloudflare", "anypoint", "discue", "courier")
CLAIMS = ("claim_messages", "read_claim", "extend_claim", "ack_claim")
# A PUT on a name of the caller's own choice creates it.
CHOSEN = {
    ("put_queue", "queueId"),
    ("put_exchange", "exchangeId"),
    ("publish", "messageId"),
    *((operation, "name") for operation in CLAIMS),
    ("put_worker", "worker"),
    ("commit_pipeline", "name"),
    ("service", "service"),
}


class Aim(NamedTuple):
    """A route, what it may be sent at most, and how a good request to it looks."""

    site: Site
    route: Route
    number: int

    def __str__(self) -> str:
        return f"{self.site.name} {self.route.method} {self.site.prefix}{self.route.path}"

    @property
    def place(self) -> Place:
        return Place(self.site.name, self.site.prefix, self.route)

    @property
    def bytes_max(self) -> int:
        """Of its body."""
        if self.route.scope is None:
            return PUBLIC_BODY_BYTES_MAX
        return self.route.body_bytes_max or self.site.body_bytes_max

    def share(self, values: Sequence[T], number: int = 0) -> Sequence[T]:
        """Its part of values that one piece of code reads for many routes: the next route is sent
        others, and all of them together are sent all. `number`: of a field, or a parameter."""
        return values[(self.number + number) % STEP :: STEP]

    @property
    def by_operator(self) -> bool:
        return self.route.scope in ("admin", "metrics")

    def sample(self, side: Side) -> Any:
        """A body that is good."""
        return aims.BODIES[self.site.name, self.route.operation](side)

    def headers(self, world: World) -> dict[str, str]:
        by = world.own
        if self.by_operator:
            by = Credential(world.server.credentials["admin"]["token"], "", ())
        return by.headers(self.site.name)

    def target(self, side: Side, query: str = "", **params: str) -> str:
        """Path and query; `params` stand in the places of good ones."""
        known = {**side.params[self.site.name], **params}
        whole = {**side.params, self.site.name: known}
        aimed = aims.path(self.place, replace(side, params=whole))
        wanted = aims.QUERIES.get((self.site.name, self.route.operation))
        parts = [urlencode(wanted(side))] if wanted else []
        queries = "&".join(part for part in (*parts, query) if part)
        return f"{aimed}?{queries}" if queries else aimed

    def ask(
        self,
        world: World,
        side: Side,
        body: Any = None,
        *,
        target: str = "",
        method: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`body`: bytes as they are, other values as JSON, None for the good one."""
        if body is None:
            body = self.sample(side) if self.route.body is not None else b""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {
            **self.headers(world),
            **({"Content-Type": aims.ARROW if self.route.body is bytes else "application/json"}),
            **(headers or {}),
            "Content-Length": str(len(raw)),
        }
        first = f"{method or self.route.method} {target or self.target(side)} HTTP/1.1"
        lines = [first, "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in sent.items()]
        with Peer(world.server) as client:
            client.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + raw)
            answer = client.answer()
        assert answer is not None, f"no answer: {self} {raw[:100]!r}"
        assert answer.status < 500 or answer.status == self.route.status, (str(self), answer)
        assert "x-injected" not in answer.headers
        return answer

    def refused(self, answer: Answer | None, *statuses: int) -> str:
        """Check that it is a refusal in the site's own shape; what it says."""
        assert answer is not None, f"hung up without an answer: {self}"
        told = f"{self}: {answer.status}, not {statuses}: {answer.body[:300]!r}"
        assert answer.status in statuses, told
        match self.site.name, self.site.prefix:
            case "cloudflare", _:
                return peer.refused(answer, *statuses)
            case "anypoint", "/api/v1":
                return environment.refused(answer, *statuses)
            case "anypoint", "/accounts":
                assert answer.headers["content-type"].startswith("text/plain"), told
                return answer.body.decode()
            case "anypoint", _:
                return environment.complained(answer, *statuses)
            case "discue", _:
                return json.dumps(discue.refused(answer, *statuses))
        error = answer.json()["error"]
        assert error["code"] and 0 < len(error["message"]) < 2_000, told
        return str(error["message"])


def aims_of(**wanted: bool) -> list[Aim]:
    """Every route, or those with a `body` of JSON, or a `key`."""
    return [each for each in _all() if all(_is(each, name) == wanted[name] for name in wanted)]


def _is(aim: Aim, name: str) -> bool:
    if name == "key":
        return aim.route.scope is not None
    return aim.route.body not in (None, bytes) and aim.route.scope is not None


def _all() -> Iterator[Aim]:
    with tempfile.TemporaryDirectory() as directory:
        for number, (site, route) in enumerate(tables(Path(directory))):
            if site.name in SITES and (site.name, site.prefix) != ("discue", ""):
                yield Aim(site, route, number)
