"""The first tenant of a database that servers share, and the keys that all of them must have."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.app import credentials_file
from courier.core.errors import Conflict
from courier.core.types import Actor, Tenant
from courier.credentials import FIRST_TENANT
from courier.sealing import new_key
from tests import postgres
from tests.conformance.store.driver import SEALER
from tests.server import Server, free_port

pytestmark = pytest.mark.slow

END_SECONDS_MAX = 30.0


class Place:
    """A database, and commands on it, each with a data directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.url = postgres.server().url(f"init_{free_port()}")
        self.directory = directory
        self._count = 0

    def command(self, name: str, *keys: str) -> "subprocess.Popen[str]":
        self._count += 1
        env = {k: v for k, v in os.environ.items() if not k.startswith("COURIER_")}
        data = self.directory / f"{name}{self._count}"
        more = ["--port", str(free_port())] if name == "serve" else []
        return subprocess.Popen(
            [sys.executable, "-m", "courier", name, "--store", self.url, "--data", data, *more],
            env={**env, "COURIER_ENCRYPTION_KEYS": ",".join(keys)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def refusal(self, name: str, *keys: str) -> str:
        return refused(self.command(name, *keys))

    def files(self, name: str) -> list[str]:
        return sorted(path.name for path in self.directory.glob(f"*/{name}"))

    def server(self, *keys: str) -> Server:
        self._count += 1
        place = self.directory / f"node{self._count}"
        place.mkdir()
        env = {"COURIER_ENCRYPTION_KEYS": ",".join(keys)}
        return Server(place, args=["--store", self.url], env=env)


def refused(command: "subprocess.Popen[str]") -> str:
    """The one sentence with which it ends."""
    out, error = command.communicate(timeout=END_SECONDS_MAX)
    assert (command.returncode, out) == (1, ""), out + error
    said = [line for line in error.splitlines() if line.startswith("courier: ")]
    assert len(said) == 1 and "Traceback" not in error, error
    return said[0]


class Late:
    """Settings in which another server has made the tenant meanwhile."""

    def new_tenant(self, name: str, *, beside: str) -> Tenant:
        return Tenant(id="c0" + "1" * 30, tenant="", name=name, created_ms=0, organization="o")

    async def add_tenant(self, tenant: Tenant, keys: object, *, actor: Actor) -> None:
        raise Conflict("tenant", tenant.name)


def test_who_is_too_late_is_left_with_no_credentials(tmp_path: Path) -> None:
    late: Any = Late()
    credentials = credentials_file(late, SEALER, data=tmp_path, url="http://a", region="r")
    with pytest.raises(Conflict):
        asyncio.run(credentials.create_tenant(FIRST_TENANT))
    assert not list(tmp_path.iterdir())


def test_servers_need_the_keys_of_the_others_and_a_first_tenant(tmp_path: Path) -> None:
    place = Place(tmp_path)
    old, new = new_key(), new_key()
    for name in ("init", "serve"):
        assert "set encryption_keys" in place.refusal(name)
    assert "32 bytes in base64" in place.refusal("serve", "short")
    assert not place.files("encryption.key"), "nobody may rely on a key that others do not have"
    assert "run `courier init`" in place.refusal("serve", old)
    # Of many who do it at once, one does; nobody else is left with credentials of no use.
    inits = [place.command("init", old) for _ in range(3)]
    ended = [(*each.communicate(timeout=END_SECONDS_MAX), each.returncode) for each in inits]
    assert sorted(status for *_, status in ended) == [0, 1, 1], ended
    [made] = [json.loads(out) for out, _, status in ended if not status]
    assert place.files("credentials.json") == ["credentials.json"]
    assert "default" in place.refusal("init", old)
    assert "was encrypted with key" in place.refusal("serve", new)
    path = f"/client/v4/accounts/{made['cloudflare']['account_id']}/queues"
    headers = {"Authorization": f"Bearer {made['cloudflare']['api_token']}"}

    def status(server: Server) -> int:
        url = f"{server.url}{path}"
        return httpx.get(url, headers=headers, trust_env=False, timeout=30).status_code

    with place.server(old).start() as first:
        assert status(first) == 200
        # Another key comes into use, and the old one stays good where both are known.
        with place.server(new, old).start() as second:
            assert status(first) == status(second) == 200
        assert "was encrypted with key" in place.refusal("serve", old)
        assert status(first) == 200, "those who run are not disturbed"
    with place.server(new).start() as third:
        assert status(third) == 200
    assert not place.files("encryption.key")
