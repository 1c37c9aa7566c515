"""The server's Discue API as raw requests see it, and what an attack on it aims at."""

import json
from typing import Any, NamedTuple

from tests.attack.peer import Answer, Client
from tests.server import Server

JSON = "Content-Type: application/json"
KINDS = ("queues", "listeners", "messages", "api_keys", "domains")


class Discue(Client):
    """One organization, by its key."""

    def __init__(self, server: Server, key: str | None = None) -> None:
        super().__init__(server, "/v1", key or server.credentials["discue"]["api_key"])

    def head(self, method: str, path: str, *headers: str) -> bytes:
        target = path[1:] if path.startswith("//") else self.root + path
        first = f"{method} {target} HTTP/1.1"
        lines = [first, "Host: 127.0.0.1", f"X-API-KEY: {self.token}", JSON, *headers]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n"

    def make(self, path: str, value: Any) -> Any:
        """Create something; its first member."""
        made = accepted(self.ask("POST", path, body(value)))
        [member] = [member for name, member in made.items() if name not in ("_links", "id")]
        return member

    def everything(self) -> list[Any]:
        """What a stranger must not be able to change, and what a refused request did not."""
        return [accepted(self.ask("GET", f"/{kind}")) for kind in KINDS]


class Spot(NamedTuple):
    """A queue with a schema, a listener and a message; a key and a domain beside it."""

    discue: Discue
    queue: str
    schema: str
    listener: str
    message: str
    key: str
    domain: str

    def requests(self) -> list[tuple[str, str, Any]]:
        """Every request there is on what is here. Those that take something away come last."""
        queue = f"/queues/{self.queue}"
        listener, message = f"{queue}/listeners/{self.listener}", f"{queue}/messages/{self.message}"
        key, domain = f"/api_keys/{self.key}", f"/domains/{self.domain}"
        return [
            ("GET", queue, None),
            ("PUT", queue, {"name": "stolen-queue"}),
            ("GET", f"{queue}/schemas/{self.schema}", None),
            ("GET", f"{queue}/listeners", None),
            ("POST", f"{queue}/listeners", listens("stolen")),
            ("GET", listener, None),
            ("PUT", listener, {"name": "stolen-too"}),
            ("POST", f"{listener}/rotate_secret", None),
            ("POST", f"{listener}/backfill", {}),
            ("GET", f"{queue}/messages", None),
            ("POST", f"{queue}/messages", {"data": '{"a": "stolen"}'}),
            ("GET", message, None),
            ("PUT", message, {"name": "stolen"}),
            ("POST", f"{message}/deliveries/{self.listener}/retry", None),
            ("GET", key, None),
            ("PUT", key, {"status": "disabled"}),
            ("GET", domain, None),
            ("PUT", domain, {"alias": "stolen"}),
            ("POST", f"{domain}/verify", None),
            ("DELETE", domain, None),
            ("DELETE", key, None),
            ("DELETE", message, None),
            ("DELETE", listener, None),
            ("DELETE", queue, None),
        ]


def listens(name: str) -> dict[str, str]:
    url = "https://nowhere.invalid/"
    return {"name": name, "notify_url": url, "liveness_url": url}


def settle_down(discue: Discue, name: str) -> Spot:
    schema = {"a": {"type": "string"}}
    queue = discue.make("/queues", {"name": name, "schema": schema})
    path = f"/queues/{queue['id']}"
    listener = discue.make(f"{path}/listeners", {**listens("spot"), "status": "disabled"})
    message = discue.make(f"{path}/messages", {"data": '{"a": "b"}'})
    key = discue.make("/api_keys", {"alias": f"key-{name}"})
    domain = {"alias": f"domain-{name}", "hostname": "nowhere.invalid", "port": 443}
    return Spot(
        discue,
        queue["id"],
        queue["schema_id"],
        listener["id"],
        message["id"],
        key["id"],
        discue.make("/domains", domain)["id"],
    )


def body(value: Any) -> bytes:
    """As JSON, unless it is bytes already; None is no body."""
    if value is None or isinstance(value, bytes):
        return value or b""
    return json.dumps(value).encode()


def accepted(answer: Answer | None) -> Any:
    assert answer is not None, "hung up without an answer"
    assert answer.status == 200, f"{answer.status}: {answer.body[:500]!r}"
    assert "_links" in answer.json()
    return answer.json()


def refused(answer: Answer | None, *statuses: int) -> dict[str, Any]:
    """Check that it is a refusal of this API; what it says."""
    assert answer is not None, "hung up without an answer"
    assert answer.status in statuses, (
        f"{answer.status} instead of {statuses}: {answer.body[:500]!r}"
    )
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    failure = answer.json()
    assert set(failure) - {"errors"} == {"title", "status", "detail", "request_id"}, failure
    assert failure["status"] == answer.status
    assert 0 < len(failure["detail"]) < 2_000, "a refusal says why, and does not repeat it all"
    found: dict[str, Any] = failure
    return found
