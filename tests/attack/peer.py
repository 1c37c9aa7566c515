"""The other end of a connection, which need not keep to HTTP."""

import json
import select
import socket
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.server import Server

ANSWER_SECONDS_MAX = 10.0
SEND_SECONDS_MAX = 0.05


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """A socket to the server. Whatever it waits for, it waits `ANSWER_SECONDS_MAX` at most."""

    def __init__(self, server: Server) -> None:
        address = urlsplit(server.url)
        self._socket = socket.create_connection(
            (address.hostname, address.port), timeout=ANSWER_SECONDS_MAX
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Leave without a farewell: the server sees a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """False when the server hung up meanwhile; its answer may still be there to read."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_what_is_taken(self, data: bytes) -> None:
        """Send until all of it is sent, or the server reads no more, or hangs up."""
        self._socket.settimeout(SEND_SECONDS_MAX)
        with suppress(OSError):
            self._socket.sendall(data)
        self._socket.settimeout(ANSWER_SECONDS_MAX)

    def send_what_is_taken_at_once(self, data: bytes) -> None:
        """Send what the kernel has room for."""
        self._socket.setblocking(False)
        left = memoryview(data)
        with suppress(BlockingIOError):
            while left:
                left = left[self._socket.send(left) :]
        self._socket.settimeout(ANSWER_SECONDS_MAX)

    def answered(self, *, within_s: float) -> bool:
        """Whether the server has said something, or hung up, by then."""
        # Not select(), which knows the first 1,024 files only: some attacks hold more than that.
        watch = select.poll()
        watch.register(self._socket, select.POLLIN)
        return bool(self._unread or watch.poll(within_s * 1_000))

    def trickle(self, data: Iterator[bytes], *, every_s: float, seconds_max: float) -> float:
        """Send piece after piece until the server answers or hangs up; the seconds that took."""
        began = time.monotonic()
        for piece in data:
            if self.answered(within_s=every_s) or not self.send(piece):
                return time.monotonic() - began
            assert time.monotonic() - began < seconds_max, "the server still listens"
        raise AssertionError("nothing left to send")

    def answer(self, *, head: bool = False) -> Answer | None:
        """The next answer, or None when the server hung up instead. `head`: it has no body."""
        while b"\r\n\r\n" not in self._unread:
            if not self._receive():
                assert not self._unread, f"half an answer: {self._unread[:200]!r}"
                return None
        top, _, self._unread = self._unread.partition(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(first.split()[1])
        body = b"" if head or status in (100, 204, 304) else self._body(headers)
        return Answer(status, headers, body)

    def hung_up(self) -> bool:
        """Wait for the server to close the connection; False when it says something instead."""
        return not self._unread and not self._receive()

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._chunks())
        if "content-length" in headers:
            return self._take(int(headers["content-length"]))
        while self._receive():
            pass
        return self._take(len(self._unread))

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while b"\r\n" not in self._unread:
                assert self._receive(), "hung up within an answer"
            size, _, self._unread = self._unread.partition(b"\r\n")
            chunk = self._take(int(size, 16) + 2)[:-2]
            if not chunk:
                return
            yield chunk

    def _take(self, count: int) -> bytes:
        while len(self._unread) < count:
            assert self._receive(), "hung up within an answer"
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _receive(self) -> bool:
        """False at the end of the connection, however it ended."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            return False
        self._unread += data
        return bool(data)


class Client:
    """One of the server's APIs as raw requests see it: below `root`, with `token`."""

    def __init__(self, server: Server, root: str, token: str) -> None:
        self.server = server
        self.root = root
        self.token = token

    def head(self, method: str, path: str, *headers: str) -> bytes:
        """Request line and headers, without the empty line that ends them.

        The path is below the root unless it begins with a second slash.
        """
        target = path[1:] if path.startswith("//") else self.root + path
        lines = [
            f"{method} {target} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {self.token}",
            *headers,
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n"

    def request(self, method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
        """A whole request with a declared length."""
        length = f"Content-Length: {len(body)}"
        return self.head(method, path, length, *headers) + b"\r\n" + body

    def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> Answer:
        """One request on a connection of its own; a server that says nothing fails the test."""
        with Peer(self.server) as peer:
            peer.send(self.request(method, path, body, *headers))
            answer = peer.answer(head=method == "HEAD")
            assert answer is not None, f"no answer to {method} {path[:100]}"
            return answer


class Account(Client):
    """A tenant's Cloudflare account, the first one's if no credentials are given."""

    def __init__(self, server: Server, credentials: dict[str, Any] | None = None) -> None:
        own = (credentials or server.credentials)["cloudflare"]
        super().__init__(server, f"/client/v4/accounts/{own['account_id']}", str(own["api_token"]))


def refused(answer: Answer | None, *statuses: int, code: int | None = None) -> str:
    """Check that it is a refusal in the dialect's envelope; the sentence it gives."""
    assert answer is not None, "hung up without an answer"
    assert answer.status in statuses, f"{answer.status} instead of {statuses}: {answer.body!r}"
    assert answer.headers["content-type"].startswith("application/json")
    envelope = answer.json()
    assert envelope["success"] is False
    assert envelope["result"] is None
    assert envelope["messages"] == []
    error = envelope["errors"][0]
    assert isinstance(error["code"], int) and isinstance(error["message"], str), error
    assert error["message"], "a refusal says why"
    if code is not None:
        assert error["code"] == code, error
    return str(error["message"])


def accepted(answer: Answer | None) -> Any:
    """Check that it is a success in the dialect's envelope; its result."""
    assert answer is not None, "hung up without an answer"
    assert answer.status == 200, f"{answer.status}: {answer.body[:500]!r}"
    envelope = answer.json()
    assert envelope["success"] is True and envelope["errors"] == []
    return envelope["result"]


def turned_away(answer: Answer | None) -> None:
    """What is not HTTP, or not quite, gets a refusal or a closed connection; never a success."""
    assert answer is None or 400 <= answer.status < 500, f"{answer.status}: {answer.body[:500]!r}"


def new_tenant(server: Server) -> dict[str, Any]:
    """The credentials of one that has nothing yet."""
    name = f"t-{uuid.uuid4().hex[:16]}"
    made = server.operate("POST", "/courier/v1/tenants", json={"name": name})
    assert made.is_success, made.text
    credentials: dict[str, Any] = made.json()["credentials"]
    return credentials
