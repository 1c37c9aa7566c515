"""A server with a console, and visitors to it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from courier import sealing
from tests import postgres
from tests.server import Server, free_port

SAME = {"Sec-Fetch-Site": "same-origin"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
_TOKEN = re.compile(r'name="token" value="([^"]+)"')


class Visitor:
    """A browser without a script: cookies, forms, redirects."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(
            base_url=server.url, timeout=30.0, trust_env=False, verify=False, headers=HTML
        )

    def sign_in(self, key: str) -> None:
        answer = self.http.post("/console/sign-in", data={"key": key}, headers=SAME)
        assert answer.status_code == 303, answer.text

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers=headers)

    def facts(self, path: str) -> Any:
        answer = self.http.get(path, headers={"Accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def token(self, path: str = "/console") -> str:
        found = _TOKEN.search(self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, /, **fields: str) -> httpx.Response:
        data = {"token": self.token(), **fields}
        return self.http.post(path, data=data, headers=SAME)

    def follow(self, answer: httpx.Response) -> httpx.Response:
        assert answer.status_code == 303, answer.text
        return self.http.get(answer.url.join(answer.headers["location"]))

    def close(self) -> None:
        self.http.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`STORE=postgres`: its messages are in a PostgreSQL."""
    place, args = tmp_path_factory.mktemp("console"), ["--push-networks", "127.0.0.0/8"]
    env: dict[str, str] = {}
    if os.environ.get("STORE") == "postgres":
        args += ["--store", postgres.server().url(f"console_{free_port()}")]
        env["COURIER_ENCRYPTION_KEYS"] = sealing.new_key()
    server = Server(place, args=args, env=env)
    if env:
        init = [sys.executable, "-m", "courier", "init", *args, "--data", str(server.data)]
        init += ["--port", str(server.port)]
        subprocess.run(init, env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL)
    with server.start():
        yield server
    assert "Traceback" not in server.log()


@pytest.fixture
def visitor(server: Server) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors, signed in with a key or not at all."""
    made: list[Visitor] = []

    def make(key: str = "") -> Visitor:
        visitor = Visitor(server)
        made.append(visitor)
        if key:
            visitor.sign_in(key)
        return visitor

    yield make
    for each in made:
        each.close()


@pytest.fixture
def operator(server: Server, visitor: Callable[..., Visitor]) -> Visitor:
    return visitor(server.credentials["admin"]["token"])


def new_key(server: Server, name: str, scopes: list[str], *targets: str) -> dict[str, Any]:
    """A key of the first tenant, and its secret as `token`."""
    body: dict[str, Any] = {"name": name, "scopes": scopes}
    if targets:
        body["targets"] = list(targets)
    made = httpx.post(
        f"{server.url}/courier/v1/tenants/default/keys",
        json=body,
        headers={"Authorization": f"Bearer {server.credentials['admin']['token']}"},
    )
    assert made.status_code == 200, made.text
    return dict(made.json())


def new_queue(server: Server, name: str) -> str:
    with server.client() as http:
        made = http.post("/queues", json={"queue_name": name}).json()
        return str(made["result"]["queue_id"])


@contextmanager
def anypoint(server: Server) -> Iterator[tuple[httpx.Client, str]]:
    """Somebody who is signed in to the Admin API, and the address of the region."""
    given = server.credentials["anypoint"]
    app = given["connected_app"]
    region = (
        f"{server.url}/mq/admin/api/v1/organizations/{given['organization_id']}/environments/"
        f"{given['environment_id']}/regions/{given['region']}"
    )
    with httpx.Client(trust_env=False) as http:
        asked = {"client_id": app["client_id"], "client_secret": app["client_secret"],
                 "grant_type": "client_credentials"}  # fmt: skip
        token = http.post(f"{server.url}/accounts/api/v2/oauth2/token", json=asked).json()
        http.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield http, region


def new_fifo_queue(server: Server, name: str) -> None:
    with anypoint(server) as (http, region):
        made = http.put(f"{region}/destinations/queues/{name}", json={"fifo": True})
        assert made.is_success, made.text


def new_exchange(server: Server, name: str, queues: list[str], *, country: str) -> None:
    """An exchange bound to queues; the first of them takes what has that country only."""
    with anypoint(server) as (http, region):
        made = http.put(f"{region}/destinations/exchanges/{name}", json={"encrypted": False})
        assert made.is_success, made.text
        bindings = f"{region}/bindings/exchanges/{name}/queues"
        for queue in queues:
            assert http.put(f"{bindings}/{queue}").is_success
        rule = {"propertyName": "country", "propertyType": "STRING", "matcherType": "EQ",
                "value": country}  # fmt: skip
        rules = {"routingRules": [rule]}
        assert http.put(f"{bindings}/{queues[0]}/rules/routing", json=rules).is_success
