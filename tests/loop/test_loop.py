"""No request, however large or hostile, keeps the server from answering others.

Made from the route tables: a new route is asked too, with the same kinds of requests.
"""

import http.client
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx
import pytest

from courier.dialects.discue.names import shown
from courier.web import Route, Site
from tests.loop import crowd, hostile
from tests.loop.pulse import Pulse
from tests.routes import tables
from tests.server import Server
from tests.wire.anypoint.environment import Tokens

pytestmark = [pytest.mark.quiet, pytest.mark.timeout(1_800)]

# On a quiet machine nobody waits 100 ms; this one may be busy.
WAIT_MS_MAX = 250
# A busy machine is slow now and then, a route that holds the loop is so every time.
TRIES = 3
PAGES = 16
_PARAMETER = re.compile(r"{(\w+)}")
_WAITING = {"pollingTime": "0"}
_LARGE = {
    "limit": "1000000",
    "per_page": "100",
    "offset": "0",
    "inclusion": "all",
    "destinationIds": ",".join(f"q{number:05d}" for number in range(1_000)),
    "startDate": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 459 * 86_400)),
    "endDate": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "batchSize": "10",
    "lockTtl": "1",
}
_JUNK = {f"a{number}": "x" * 50 for number in range(900)}


class Asked(NamedTuple):
    what: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Place:
    """A crowded server, and how to speak to each of its sites."""

    def __init__(self, server: Server, found: crowd.Crowd, doomed: str) -> None:
        self.server = server
        self.doomed = doomed
        given = server.credentials
        anypoint = given["anypoint"]
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as client:
            tokens = Tokens.of(client, anypoint)
        self._headers = {
            "cloudflare": {"authorization": f"Bearer {given['cloudflare']['api_token']}"},
            "anypoint": {"authorization": f"Bearer {tokens.user}"},
            "discue": {"x-api-key": given["discue"]["api_key"]},
            "courier": {"authorization": f"Bearer {given['admin']['token']}"},
            "console": {"authorization": f"Bearer {given['admin']['token']}"},
        }
        self._broker = {"authorization": f"Bearer {tokens.app}"}
        self._common = {
            "account_id": given["cloudflare"]["account_id"],
            "organizationId": anypoint["organization_id"],
            "environmentId": anypoint["environment_id"],
            "regionId": anypoint["region"],
            "destinationId": "main",
            "queueId": "main",
            "exchangeId": "fan",
            "tenant": "default",
            "queue": "main",
            "listener": "l0",
            "worker": "w0",
        }
        self._ids = {
            "queue_id": found.main,
            "consumer_id": found.consumer,
            "subscription_id": found.subscription,
            "listener_id": found.listener,
            "message_id": found.message,
            "domain_id": found.domain,
            "api_key_id": found.key,
            "key": found.key,
        }
        self.strict = shown(found.strict)
        self.heavy = found.heavy
        self._heavy = {
            "queue_id": found.heavy,
            "message_id": found.heavy_message,
            "destinationId": "heavy",
            "queueId": "heavy",
            "queue": "heavy",
        }

    def headers(self, site: Site) -> dict[str, str]:
        return self._broker if site.prefix == "/api/v1" else self._headers[site.name]

    def path(self, site: Site, route: Route, **others: str) -> str:
        ids = self._ids
        if site.name == "discue":
            ids = {name: shown(id) for name, id in ids.items()}
        values = {**self._common, **ids}
        if site.name == "console":
            values |= {"queue": ids["queue_id"], "message": ids["message_id"]}
        values |= others
        path = _PARAMETER.sub(lambda match: quote(values.get(match[1], "x")), route.path)
        return site.prefix + path

    def heavy_path(self, site: Site, route: Route) -> str | None:
        """Where the longest messages are; None if the path names no queue."""
        if not {*self._heavy, "message"} & set(_PARAMETER.findall(route.path)):
            return None
        heavy = dict(self._heavy)
        if site.name == "discue":
            heavy = {name: shown(id) for name, id in heavy.items() if name.endswith("_id")}
        if site.name == "console":
            heavy |= {"queue": heavy["queue_id"], "message": heavy["message_id"]}
        if "/claims/" in route.path:
            heavy |= {"queue": "claimed", "name": crowd.HEAVY_CLAIM}
        return self.path(site, route, **heavy)


def requests(place: Place, site: Site, route: Route, seen: set[Any]) -> Iterator[Asked]:
    headers, path = place.headers(site), place.path(site, route)
    name = f"{route.method} {site.prefix}{route.path}"
    if route.body is not None:
        for what, kind, body in hostile.bodies(site, route, seen):
            # So many, each for 100 listeners, would take minutes.
            path = place.path(site, route, **({"queue": "work"} if what == "rows" else {}))
            yield Asked(
                f"{name}: {what}", route.method, path, {**headers, "content-type": kind}, body
            )
        if "redrive" in route.path:
            path = place.path(site, route, queue="dead")
            yield Asked(f"{name}: all", route.method, path, headers)
        return
    if route.method == "DELETE" and route.path.endswith("/tenants/{tenant}"):
        path = place.path(site, route, tenant=place.doomed)
    if route.method != "GET":
        yield Asked(name, route.method, path, headers)
        return
    queries: list[dict[str, str]] = [{}, _LARGE, _JUNK]
    if any(parameter.name == "period" for parameter in route.query):
        queries += [_LARGE | {"period": period} for period in ("1day", "1hour", "86400")]
    for query in queries:
        asked = path + "?" + urlencode(_WAITING | query)
        yield Asked(f"{name}?{','.join(query)[:60]}", "GET", asked, headers)
    arrow = {**headers, "accept": hostile.ARROW}
    yield Asked(f"{name} as Arrow", "GET", f"{path}?{urlencode(_WAITING | _LARGE)}", arrow)


def heavy_requests(place: Place, site: Site, route: Route) -> Iterator[Asked]:
    """What is answered with messages, where they are as long as they may be."""
    path = place.heavy_path(site, route)
    if path is None or _turn((site, route))[0] > 1 or not _answers_with_messages(route):
        return
    headers, name = place.headers(site), f"heavy {route.method} {site.prefix}{route.path}"
    if route.body is not None:
        kind = {**headers, "content-type": hostile.JSON}
        yield Asked(name, route.method, path, kind, hostile.asking_for_most(route))
        return
    if site.name == "console":
        path += "?" + urlencode({"queue": place.heavy})
    else:
        path += "?" + urlencode(_WAITING | _LARGE)
    yield Asked(name, "GET", path, headers)
    yield Asked(f"{name} as Arrow", "GET", path, {**headers, "accept": hostile.ARROW})
    if site.name == "console":
        for query in ({"q": "none"}, {"state": "ready"}, {"order": "oldest"}, {"body": "hex"}):
            yield Asked(f"{name} {query}", "GET", f"{path}&{urlencode(query)}", headers)


def _answers_with_messages(route: Route) -> bool:
    return route.method == "GET" or route.path.endswith(("/pull", "/peek", "/preview"))


def _turn(entry: tuple[Site, Route]) -> tuple[int, int]:
    """Reading first, then writing, then what ends things: small things before what holds them."""
    _, route = entry
    if route.method == "DELETE":
        return 3, -route.path.count("/")
    if route.path.endswith(("/purge", "/frozen")):
        return 2, 0
    return (0 if route.method == "GET" else 1), 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    limit = ("--request-bytes-max", str(hostile.SERVER_BYTES_MAX))
    server = Server(tmp_path_factory.mktemp("crowded"), args=limit)
    server.start()
    token = server.credentials["admin"]["token"]
    others = []
    with httpx.Client(base_url=server.url, trust_env=False, verify=False) as client:
        for body in ({"name": "doomed"}, {"name": "beside", "beside": "default"}):
            made = client.post(
                "/courier/v1/tenants", json=body, headers={"authorization": f"Bearer {token}"}
            )
            others.append(made.raise_for_status().json()["tenant"]["id"])
    server.stop()
    tenant = server.credentials["cloudflare"]["account_id"]
    found = crowd.fill(server.data, tenant=tenant, others=others)
    with server.start():
        yield Place(server, found, "doomed")


@pytest.fixture
def pulse(place: Place, tmp_path: Path) -> Iterator[Pulse]:
    with Pulse(place.server.port, tmp_path / "pulse") as pulse:
        yield pulse


def send(server: Server, asked: Asked) -> int:
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        link.request(asked.method, asked.path, asked.body or None, asked.headers)
        answer = link.getresponse()
        answer.read()
        return answer.status
    except (BrokenPipeError, ConnectionResetError):
        return 0  # refused before all of it was sent
    finally:
        link.close()


def waited(place: Place, pulse: Pulse, asked: Asked) -> tuple[float, int]:
    """The longest wait for /health during the request, in ms, and the request's status."""
    least, status = float("inf"), 0
    for _ in range(1 if asked.method == "DELETE" else TRIES):
        began_s = time.monotonic()
        status = send(place.server, asked)
        least = min(least, pulse.longest_ms(began_s, time.monotonic()))
        if least <= WAIT_MS_MAX:
            break
    return least, status


def judge(place: Place, pulse: Pulse, asking: Iterable[Asked]) -> None:
    waits: list[tuple[float, str]] = []
    broken: list[str] = []
    for asked in asking:
        wait, status = waited(place, pulse, asked)
        waits.append((wait, f"{asked.what} ({status})"))
        if status == 500:
            broken.append(waits[-1][1])
    worst = "\n".join(f"{wait:7.0f} ms  {what}" for wait, what in sorted(waits)[-40:])
    print(worst)  # for -rP
    assert not broken, f"{broken}\n{place.server.log()[-4_000:]}"
    assert max(waits)[0] <= WAIT_MS_MAX, f"others waited longer than {WAIT_MS_MAX} ms:\n{worst}"


def test_long_messages_hold_up_nobody(place: Place, pulse: Pulse, tmp_path: Path) -> None:
    judge(place, pulse, chain(*(heavy_requests(place, *each) for each in tables(tmp_path))))


def test_an_event_that_many_queues_are_told_of_holds_up_nobody(place: Place, pulse: Pulse) -> None:
    admin = {"authorization": f"Bearer {place.server.credentials['admin']['token']}"}
    told = {"source": {"type": "kv"}, "event": "namespace.created", "payload": {"a": "a" * 99_000}}
    path, body = "/courier/v1/tenants/default/events", json.dumps(told).encode()
    kind = {"content-type": hostile.JSON}
    judge(place, pulse, [Asked("event", "POST", path, admin | kind, body)])


def test_many_pages_of_the_journal_hold_up_nobody(place: Place, pulse: Pulse) -> None:
    """Each as full as may be, and all asked for at once."""
    admin = {"authorization": f"Bearer {place.server.credentials['admin']['token']}"}
    asked = Asked("journal", "GET", "/journal?limit=50000", admin)
    longest = []
    for _ in range(TRIES):
        began_s = time.monotonic()
        with ThreadPoolExecutor(PAGES) as pool:
            statuses = list(pool.map(partial(send, place.server), [asked] * PAGES))
        longest.append(pulse.longest_ms(began_s, time.monotonic()))
        assert set(statuses) <= {200, 503}
        if longest[-1] <= WAIT_MS_MAX:
            break
    assert min(longest) <= WAIT_MS_MAX, longest


@pytest.mark.parametrize("turns", [(0,), (1,), (2, 3)], ids=["reading", "writing", "ending"])
def test_no_route_holds_up_others(
    place: Place, pulse: Pulse, tmp_path: Path, turns: tuple[int, ...]
) -> None:
    seen: set[Any] = set()
    entries = [each for each in sorted(tables(tmp_path), key=_turn) if _turn(each)[0] in turns]
    judge(place, pulse, chain(*(requests(place, *each, seen) for each in entries)))


def test_long_messages_that_are_copied_hold_up_nobody(tmp_path: Path) -> None:
    """They are buried because of retries, redriven, and buried because their leases end."""
    server = Server(tmp_path).start()
    client = server.client()
    client.timeout = httpx.Timeout(120)

    def asked(path: str, body: Any) -> Any:
        return client.post(path, json=body).raise_for_status().json()["result"]

    def pulled(lease_ms: int) -> list[str]:
        ask = {"batch_size": 1, "visibility_timeout_ms": lease_ms}
        answers = [asked(f"{work}/messages/pull", ask) for _ in range(crowd.COPIED_MESSAGES)]
        return [message["lease_id"] for answer in answers for message in answer["messages"]]

    asked("/queues", {"queue_name": "dead"})
    queue = asked("/queues", {"queue_name": "work"})["queue_id"]
    work = f"/queues/{queue}"
    rules = {"type": "http_pull", "dead_letter_queue": "dead", "settings": {"max_retries": 0}}
    asked(f"{work}/consumers", rules)
    server.stop()
    crowd.fill_with_long_messages(server.data, queue)
    admin = {"authorization": f"Bearer {server.credentials['admin']['token']}"}
    redrive = f"{server.url}/courier/v1/tenants/default/queues/dead/redrive"
    with server.start(), closing(client), Pulse(server.port, tmp_path / "pulse") as pulse:
        waits: dict[str, float] = {}

        def timed(what: str, act: Callable[[], object]) -> None:
            began_s = time.monotonic()
            act()
            longest = pulse.longest_ms(began_s, time.monotonic())
            waits[what] = min(waits.get(what, longest), longest)

        for _ in range(TRIES):
            retries = [{"lease_id": lease} for lease in pulled(60_000)]
            timed("retried", partial(asked, f"{work}/messages/ack", {"retries": retries}))
            timed("redriven", lambda: client.post(redrive, json={}, headers=admin))
            pulled(3_000)
            timed("lease ended", lambda: time.sleep(6))
            timed("redriven", lambda: client.post(redrive, json={}, headers=admin))
            if max(waits.values()) <= WAIT_MS_MAX:
                break
    assert max(waits.values()) <= WAIT_MS_MAX, waits
