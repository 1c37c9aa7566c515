"""The Discue dialect as its clients use it. Every answer is checked on the way."""

import itertools
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

JSON = "application/json; charset=utf-8"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{20}")
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    423: "Locked",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


_names = itertools.count()


def new_name(prefix: str = "q") -> str:
    """One that no other test uses. What is made in the same millisecond is listed by name."""
    return f"{prefix}-{next(_names):06x}{uuid.uuid4().hex[:10]}"


def ok(response: httpx.Response) -> dict[str, Any]:
    """The body of an answer that must be a success: 200, an object, with links."""
    assert response.status_code == 200, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == JSON
    body = response.json()
    assert isinstance(body, dict)
    links = body["_links"]
    assert "self" in links
    for link in links.values():
        assert set(link) == {"href"}, links
        assert urlsplit(link["href"]).netloc, link
    return body


def fail(response: httpx.Response, status: int) -> dict[str, Any]:
    """The body of an answer that must be this failure."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == JSON
    body = response.json()
    assert set(body) - {"errors"} == {"title", "status", "detail", "request_id"}, body
    assert (body["title"], body["status"]) == (TITLES[status], status)
    assert isinstance(body["detail"], str) and body["detail"]
    for each in body.get("errors", ()):
        assert set(each) == {"pointer", "message"}, body
        assert each["message"] and (not each["pointer"] or each["pointer"].startswith("/")), body
    found: dict[str, Any] = body
    return found


def pointers(response: httpx.Response, status: int = 422) -> list[str]:
    """Where an answer that must be this failure says that rules are broken."""
    return [each["pointer"] for each in fail(response, status).get("errors", ())]


class DiscueClient:
    """One key's view of one server; `prefix` is `/v1` or nothing, `tenant` the key's owner."""

    def __init__(
        self, http: httpx.Client, key: str, *, prefix: str = "/v1", tenant: str = "default"
    ) -> None:
        self.http = http
        self.key = key
        self.prefix = prefix
        self.tenant = tenant

    def under(self, prefix: str) -> "DiscueClient":
        """The same key, with another prefix before its paths."""
        return DiscueClient(self.http, self.key, prefix=prefix, tenant=self.tenant)

    def request(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        sent = {"X-API-KEY": self.key, **(headers or {})}
        if json is not None:
            request["json"] = json
        return self.http.request(method, self.prefix + path, headers=sent, **request)

    def get(self, path: str, **request: Any) -> httpx.Response:
        return self.request("GET", path, **request)

    def post(self, path: str, json: Any = None, **request: Any) -> httpx.Response:
        return self.request("POST", path, json, **request)

    def put(self, path: str, json: Any = None, **request: Any) -> httpx.Response:
        return self.request("PUT", path, json, **request)

    def delete(self, path: str, **request: Any) -> httpx.Response:
        return self.request("DELETE", path, **request)

    # --- what most tests need first ---

    def new_queue(self, name: str | None = None, **members: Any) -> str:
        """A queue with nothing in it; its id."""
        body = {"name": name or new_name(), **members}
        id: str = ok(self.post("/queues", body))["queue"]["id"]
        assert ID.fullmatch(id), id
        return id

    def queues(self) -> list[dict[str, Any]]:
        """All of them: tests that share a server may have made more than one list shows."""
        pages = (f"/queues?page={number}&per_page=100" for number in itertools.count(1))
        found = (ok(self.get(page))["queues"] for page in pages)
        return [queue for rows in itertools.takewhile(bool, found) for queue in rows]

    def queue_named(self, name: str) -> str:
        """The id of a queue."""
        [id] = [str(queue["id"]) for queue in self.queues() if queue["name"] == name]
        return id

    def add(self, queue: str, data: str, **members: Any) -> str:
        """A message on a queue; its id."""
        body = {"data": data, **members}
        id: str = ok(self.post(f"/queues/{queue}/messages", body))["message"]["id"]
        assert ID.fullmatch(id), id
        return id

    def message(self, queue: str, message: str) -> dict[str, Any]:
        found: dict[str, Any] = ok(self.get(f"/queues/{queue}/messages/{message}"))["message"]
        return found

    def messages(self, queue: str) -> list[str]:
        """The ids of the messages that a queue holds."""
        found = ok(self.get(f"/queues/{queue}/messages"))["messages"]
        return [each["id"] for each in found]

    def new_listener(self, queue: str, url: str, **members: Any) -> dict[str, Any]:
        """A listener of a queue, with its signing secret."""
        body = {"name": new_name("l"), "notify_url": url, "liveness_url": url, **members}
        made: dict[str, Any] = ok(self.post(f"/queues/{queue}/listeners", body))["listener"]
        assert ID.fullmatch(made["id"]), made
        return made


@contextmanager
def discue_http(url: str, *, local_address: str | None = None) -> Iterator[httpx.Client]:
    """A server without a credential.

    `local_address` (any of 127.0.0.0/8) is where requests come from, for callers whose bad keys
    are not to be held against others.
    """
    transport = httpx.HTTPTransport(verify=False, local_address=local_address)
    with httpx.Client(base_url=url, timeout=30.0, trust_env=False, transport=transport) as client:
        yield client
