"""HTTP to a server, one bounded exchange at a time: for the command and for the Spark side."""

import http.client
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, urlsplit

ANSWER_S_MAX = 60.0
ANSWER_BYTES_MAX = 256 << 20
_KINDS: dict[str, type[http.client.HTTPConnection]] = {
    "http": http.client.HTTPConnection,
    "https": http.client.HTTPSConnection,
}


class BadAddress(ValueError):
    """No server can have this address."""


class TooLong(Exception):
    """The answer has more than ANSWER_BYTES_MAX bytes."""


class Reply(NamedTuple):
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Requester:
    """One connection to a server, kept until it fails or is closed. Not shared between threads."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError:
            # Its words can hold a part of a password.
            raise BadAddress("its host or its port cannot be") from None
        plain = quote(parts.path, safe="/%:@!$&'()*+,;=~") == parts.path
        if parts.scheme not in _KINDS or not parts.hostname or not plain:
            raise BadAddress("it names no host, or its path is not written as in a URL")
        if parts.username is not None:
            raise BadAddress("it holds credentials")
        self._kind, self._host = _KINDS[parts.scheme], parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        """Raises OSError or HTTPException where no answer comes, UnicodeError for a host that
        cannot be, TooLong. The connection is closed then.
        """
        try:
            return self._ask(method, self._prefix + path, content, headers)
        except BaseException:
            self.close()
            raise

    def _ask(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        if self._connection is None:
            self._connection = self._kind(self._host, self._port, timeout=ANSWER_S_MAX)
            self._connection.connect()
        # A body over the server's cap is refused before it is read; the answer is there.
        with suppress(ConnectionError):
            self._connection.request(method, target, content, dict(headers))
        answer = self._connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
        if not answer.isclosed():
            if answer.read(1):
                raise TooLong(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MB is not read")
            if answer.length:
                raise http.client.IncompleteRead(body, answer.length)
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, told, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
