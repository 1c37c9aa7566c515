"""Who has the database and not the key can make no token that a server takes."""

import base64
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw
import httpx
import msgspec

from courier import sealing
from courier.core.sealed import open_text, store_place
from courier.ids import Tokens
from tests.clients.anypoint import environment_client
from tests.clients.cloudflare import CloudflareClient
from tests.server import Server


def session_token(secret: bytes, id: str) -> str:
    """As the server makes it."""
    mac = blake2b(id.encode(), key=secret[:64], digest_size=24, person=b"session")
    return id[2:] + base64.urlsafe_b64encode(mac.digest()).decode()


def copied(server: Server, folder: Path) -> apsw.Connection:
    """The database as it lies there while the server runs, and nothing else of its directory."""
    folder.mkdir()
    for file in server.data.glob("courier.db*"):
        shutil.copy(file, folder / file.name)
    return apsw.Connection(str(folder / "courier.db"))


def records(db: apsw.Connection, kind: str) -> list[dict[str, Any]]:
    rows = db.execute("SELECT body FROM record WHERE kind = ?", (kind,))
    return [msgspec.json.decode(body) for (body,) in rows]


def guesses(db: apsw.Connection) -> Iterator[bytes]:
    """What a thief would try as the secret: all that the file has in its place, and around it."""
    [(epoch, kept)] = [*db.execute("SELECT epoch, secret FROM meta")]
    _, _, text = kept.partition(b":")
    sealed = base64.b64decode(text)
    yield from (kept, text, sealed, sealed[12:], sealed[12:44], epoch.encode(), b"", bytes(32))
    for raw in (kept, sealed):
        yield from (raw[at : at + 32] for at in range(len(raw) - 31))


def test_tokens_made_from_the_database_alone_are_refused(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server, server.client() as http:
        site = server.credentials["anypoint"]
        with environment_client(site) as client:
            theirs = client.headers["Authorization"].removeprefix("Bearer ")
        queue = CloudflareClient(http, "orders")
        queue.publish_batch(["one", "two"])
        first, second = queue.pull(2)
        db = copied(server, tmp_path / "copy")
        [session] = records(db, "Session")
        [known] = [each for each in records(db, "Queue") if each["name"] == "orders"]

        def status(token: str) -> int:
            with httpx.Client(base_url=site["base_url"], trust_env=False, verify=False) as stranger:
                headers = {"Authorization": f"Bearer {token}"}
                return stranger.get("/accounts/api/me", headers=headers).status_code

        def leases(secret: bytes) -> list[str]:
            return Tokens(secret, "lease").mint_all(known["id"], [1, 2], [1, 1])

        tried = 0
        for guess in guesses(db):
            assert status(session_token(guess, session["id"])) == 401
            assert queue.ack(leases(guess)) == 0
            tried += 1
        assert tried > 50
        # With the key it is as the server does it, or the above would show nothing.
        sealer = sealing.KeySealer(sealing.keys("", file=server.data / "encryption.key"))
        kept = db.execute("SELECT secret FROM meta").get.decode()
        secret = open_text(kept, sealer, store_place("secret"))
        assert session_token(secret, session["id"]) == theirs
        assert status(theirs) == 200
        assert leases(secret) == [first.lease, second.lease]
        assert queue.ack([first.lease]) == 1
        # They are as good after a restart, and after the key has been changed.
        file = server.data / "encryption.key"
        new = base64.b64encode(b"n" * 32).decode()
        server.stop()
        file.write_text(f"{new},{file.read_text()}")
        server.start()
        server.stop()
        file.write_text(new)
        server.start()
        assert status(theirs) == 200
        assert queue.ack([second.lease]) == 1
        assert "secret_replaced" not in server.log()
