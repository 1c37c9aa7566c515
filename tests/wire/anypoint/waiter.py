"""A GET on a connection of its own, which its caller may leave at any moment."""

import http.client
import json
import socket
import struct
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.wire.anypoint.destination import Message, Queue, check_message
from tests.wire.anypoint.environment import bearer

ANSWER_SECONDS_MAX = 30.0
_RESET = struct.pack("ii", 1, 0)


class Waiter:
    def __init__(self, queue: Queue, **query: Any) -> None:
        env = queue.env
        url = urlsplit(str(env.http.base_url))
        path = f"{env.broker_path}/{queue.at()}?{urlencode(query)}"
        assert url.hostname is not None
        self._line = http.client.HTTPConnection(url.hostname, url.port, timeout=ANSWER_SECONDS_MAX)
        self._line.request("GET", path, headers=bearer(env.tokens.app))

    def answer(self) -> tuple[int, Any]:
        """Status and body of the answer, waiting for it."""
        with self._line.getresponse() as response:
            raw = response.read()
            status = response.status
        self._line.close()
        return status, json.loads(raw) if raw else None

    def message(self) -> Message:
        """The one message of the answer."""
        status, body = self.answer()
        assert status == 200, (status, body)
        [element] = body
        return check_message(element)

    def leave(self) -> None:
        """Be gone, without a word and without listening."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._line.close()

    def hang_up(self) -> list[Message]:
        """Say that nothing more will come, and listen to what is still said: the messages got."""
        self._socket.shutdown(socket.SHUT_WR)
        heard = b""
        try:
            while part := self._socket.recv(65_536):
                heard += part
        except ConnectionError:
            pass
        self._line.close()
        _, _, body = heard.partition(b"\r\n\r\n")
        return [check_message(element) for element in json.loads(body)] if body else []

    @property
    def _socket(self) -> socket.socket:
        line = self._line.sock
        assert isinstance(line, socket.socket)
        return line
