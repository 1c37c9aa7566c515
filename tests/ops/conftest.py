"""A server whose journal holds a small known story."""

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.server import Server


class Journal:
    """The journal over HTTP, with the operator's token unless told otherwise."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.token: str = server.credentials["admin"]["token"]
        self._http = httpx.Client(base_url=server.url, timeout=30.0, trust_env=False, verify=False)

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {token or self.token}", **headers}
        return self._http.request(method, path, json=body, headers=bearer)

    def events(self, *, token: str | None = None, **query: int) -> list[dict[str, Any]]:
        path = "/journal?" + "&".join(f"{name}={value}" for name, value in query.items())
        answer = self.call("GET", path, token=token)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.text.splitlines()]

    def table(self, **query: int) -> pa.Table:
        path = "/journal?" + "&".join(f"{name}={value}" for name, value in query.items())
        answer = self.call("GET", path, Accept="application/vnd.apache.arrow.stream")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
        with pa.ipc.open_stream(io.BytesIO(answer.content)) as reader:
            return reader.read_all()

    def head(self) -> dict[str, Any]:
        head: dict[str, Any] = self.call("GET", "/journal/head").json()
        return head

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    """A queue, four messages in two requests, a pull of three, an ack, a retry and a purge."""
    server = Server(tmp_path_factory.mktemp("journal")).start()
    with server.client() as http:
        queue = http.post("/queues", json={"queue_name": "story"}).json()["result"]["queue_id"]
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        http.post(f"/queues/{queue}/messages", json={"body": {"n": 1}})
        many = [{"body": f"text {n}", "content_type": "text"} for n in (2, 3, 4)]
        http.post(f"/queues/{queue}/messages/batch", json={"messages": many})
        pulled = http.post(f"/queues/{queue}/messages/pull", json={"batch_size": 3}).json()
        one, two, _ = [each["lease_id"] for each in pulled["result"]["messages"]]
        settled = {"acks": [{"lease_id": one}], "retries": [{"lease_id": two}]}
        http.post(f"/queues/{queue}/messages/ack", json=settled)
        http.post(f"/queues/{queue}/purge", json={})
    journal = Journal(server)
    yield journal
    journal.close()
    server.stop()
