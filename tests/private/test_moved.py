"""A sealed value copied to another row, field or tenant is unreadable there, and says why."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import msgspec

from courier.store.disk_sqlite import statements
from courier.store.disk_sqlite.sums import summed
from courier.store.engine.blocks import BlockRow, block_of
from tests.cli.command import Command
from tests.clients.anypoint import environment_client
from tests.clients.discue import DiscueClient, discue_http
from tests.server import Server

URL = "https://example.com/"


class Owner:
    """A tenant with a sealed body, an app and two listeners."""

    def __init__(self, server: Server, tenant: str) -> None:
        file = "credentials.json" if tenant == "default" else f"credentials.{tenant}.json"
        self._credentials = json.loads((server.data / file).read_bytes())
        self.tenant = self._credentials["cloudflare"]["account_id"]
        self._site = self._credentials["anypoint"]
        self._place = (
            f"/organizations/{self._site['organization_id']}"
            f"/environments/{self._site['environment_id']}"
        )

    def set_up(self) -> None:
        with environment_client(self._site) as client, self._discue() as discue:
            queues = f"/mq/admin/api/v1{self._place}/regions/us-east-1/destinations/queues"
            made = client.put(f"{queues}/vault", json={"encrypted": True})
            assert made.is_success, made.text
            body = {"headers": {}, "body": f"body of {self.tenant}"}
            client.put(f"/api/v1{self._place}/destinations/vault/messages/one", json=body)
            queue = discue.new_queue("pushed")
            for name in ("first", "second"):
                discue.new_listener(queue, URL, name=name, headers={"x-own": self.tenant + name})

    @contextmanager
    def _discue(self) -> Iterator[DiscueClient]:
        base = self._credentials["discue"]["base_url"].removesuffix("/v1")
        with discue_http(base) as http:
            yield DiscueClient(http, self._credentials["discue"]["api_key"])

    def read(self) -> dict[str, httpx.Response]:
        """An answer for everything that is sealed."""
        with environment_client(self._site) as client, self._discue() as discue:
            messages = f"/api/v1{self._place}/destinations/vault/messages"
            return {
                "body": client.get(f"{messages}?pollingTime=0&lockTtl=0"),
                "app": client.get(f"/mq/admin/api/v1{self._place}/clients"),
                "listeners": discue.get("/listeners"),
            }


def swap_bodies(db: apsw.Connection, owners: list[Owner]) -> None:
    """With checksums that are right: those keep out a bad disk, not somebody who writes to it."""
    rows = db.execute(statements.BLOCKS, (-(1 << 63), (1 << 63) - 1, 9)).fetchall()
    one, two = (block_of(BlockRow(*row)) for row in rows)  # type: ignore[arg-type]
    one.bodies, two.bodies = two.bodies, one.bodies
    sealed = one.rare[0].sealed, two.rare[0].sealed
    one.rare[0] = msgspec.structs.replace(one.rare[0], sealed=sealed[1])
    two.rare[0] = msgspec.structs.replace(two.rare[0], sealed=sealed[0])
    for block in (one, two):
        db.execute(statements.PUT_BLOCK, block.row())


def _swap(db: apsw.Connection, kind: str, found: list[dict[str, Any]], field: str) -> None:
    one, two = found
    one[field], two[field] = two[field], one[field]
    for each in found:
        body = msgspec.json.encode(each)
        row = summed((kind, each["id"], body))
        db.execute(statements.PUT_RECORD, row)


def _records(db: apsw.Connection, kind: str) -> list[dict[str, Any]]:
    rows = db.execute("SELECT body FROM record WHERE kind = ? ORDER BY id", (kind,))
    return [msgspec.json.decode(body) for (body,) in rows]


def swap_apps(db: apsw.Connection, owners: list[Owner]) -> None:
    apps = [each for each in _records(db, "Key") if each.get("kind") == "app"]
    _swap(db, "Key", apps, "sealed")


def swap_listeners_of_tenants(db: apsw.Connection, owners: list[Owner]) -> None:
    found = [each for each in _records(db, "Listener") if each["title"] == "first"]
    _swap(db, "Listener", found, "private")


def swap_listeners_of_one_tenant(db: apsw.Connection, owners: list[Owner]) -> None:
    found = [each for each in _records(db, "Listener") if each["tenant"] == owners[0].tenant]
    _swap(db, "Listener", found, "private")


SWAPS = {
    "bodies": (swap_bodies, "body", {0, 1}),
    "apps": (swap_apps, "app", {0, 1}),
    "listeners of two tenants": (swap_listeners_of_tenants, "listeners", {0, 1}),
    "listeners of one tenant": (swap_listeners_of_one_tenant, "listeners", {0}),
}


def test_a_sealed_value_that_was_moved_is_not_read(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        Command("--data", str(server.data))("tenant", "create", "acme")
        owners = [Owner(server, tenant) for tenant in ("default", "acme")]
        for owner in owners:
            owner.set_up()

        def edit(swap: Any) -> None:
            server.stop()
            db = apsw.Connection(str(server.data / "courier.db"))
            swap(db, owners)
            db.close()
            server.start()

        for name, (swap, part, struck) in SWAPS.items():
            edit(swap)
            for number, owner in enumerate(owners):
                for kind, answer in owner.read().items():
                    wanted = 503 if kind == part and number in struck else 200
                    assert answer.status_code == wanted, (name, kind, answer.text)
                    other = owners[1 - number].tenant
                    if kind != "app":
                        assert other not in answer.text, (name, kind, answer.text)
                    if wanted == 503:
                        assert "moved from where it belongs" in answer.text, answer.text
            edit(swap)
        for owner in owners:
            found = owner.read()
            assert all(answer.status_code == 200 for answer in found.values())
            assert f"body of {owner.tenant}" in found["body"].text
        assert "Traceback" not in server.log()
