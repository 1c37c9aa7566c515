"""One caller's connection to a server that may die at any moment."""

import http.client
import json
from typing import Any

from tests.server import Server

ANSWER_SECONDS_MAX = 30.0
UNAVAILABLE = 503

Answer = tuple[int, http.client.HTTPMessage, bytes]


class Refused(Exception):
    """Nobody listens and nothing was sent, or the answer says that nothing has happened."""


class InDoubt(Exception):
    """The request went out and no whole answer came back; it may have taken effect."""


class Channel:
    """Sends JSON and reads whole answers.

    A request is sent once: nothing here tries again, so the caller knows what it asked for.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def send(self, method: str, target: str, token: str, body: Any = None) -> Answer:
        channel = self._connected()
        data = None if body is None else json.dumps(body).encode()
        try:
            channel.request(method, target, data, {"Authorization": f"Bearer {token}"})
            answer = channel.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise InDoubt(f"{method} {target}") from error

    def _connected(self) -> http.client.HTTPConnection:
        if self._http is None:
            host, port = self._server.address()
            channel = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
            try:
                channel.connect()
            except OSError as error:
                channel.close()
                raise Refused from error
            self._http = channel
        return self._http


class Connection(Channel):
    """Speaks to the Cloudflare account and to the routes of our own."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        credentials = server.credentials
        account = credentials["cloudflare"]
        self._root = f"/client/v4/accounts/{account['account_id']}"
        self._token = account["api_token"]
        self._admin_token = credentials["admin"]["token"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The result of a request that must succeed. Raises Refused if the store is away."""
        status, _, answer = self.try_ask(method, path, body)
        if status == UNAVAILABLE:
            raise Refused
        assert status == 200, f"{method} {path}: {status} {answer[:500]!r}"
        return json.loads(answer)["result"]

    def try_ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.send(method, self._root + path, self._token, body)

    def journal(self, *, after: int, limit: int) -> list[dict[str, Any]]:
        path = f"/journal?after={after}&limit={limit}"
        status, _, answer = self.send("GET", path, self._admin_token)
        assert status == 200, f"GET {path}: {status} {answer[:500]!r}"
        return [json.loads(line) for line in answer.splitlines()]

    def keep_journal(self) -> None:
        """Have a reader that has read nothing, for which no event may be trimmed."""
        path = "/journal/pipelines/reader"
        status, _, answer = self.send("PUT", path, self._admin_token, {"offset": 0})
        assert status == 200, f"PUT {path}: {status} {answer[:500]!r}"

    def journal_last(self) -> int:
        status, _, answer = self.send("GET", "/journal/head", self._admin_token)
        assert status == 200, f"GET /journal/head: {status} {answer[:500]!r}"
        return int(json.loads(answer)["last"])
