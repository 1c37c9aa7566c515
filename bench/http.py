"""HTTP as the load speaks it: requests built beforehand, answers read no further than needed."""

import http.client
import json
import re
from collections.abc import Mapping
from typing import Any

from bench.client import Refused

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
# An answer without content, and so without its length.
NOTHING = b"HTTP/1.1 204 "
JSON = {"Accept": "application/json"}


def request(path: str, *, token: str, body: bytes = b"", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def whole(answer: bytes) -> bool:
    head_end = answer.find(_HEAD_END)
    if head_end < 0:
        return False
    length = _LENGTH.search(answer, 0, head_end)
    if length is None:
        if answer.startswith(NOTHING):
            return True
        raise Refused(f"no content length in {answer[:200]!r}")
    return len(answer) == head_end + len(_HEAD_END) + int(length[1])


def check(answer: bytes, status: bytes = b"HTTP/1.1 200 ") -> None:
    if not answer.startswith(status):
        raise Refused(answer[:500].decode(errors="replace"))


def ask(
    port: int,
    method: str,
    path: str,
    *,
    token: str = "",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """One request outside the measured time: JSON in, JSON out."""
    answer = fetch(port, method, path, token=token, body=body, headers=headers)
    return json.loads(answer)


def fetch(
    port: int,
    method: str,
    path: str,
    *,
    token: str = "",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise Refused(f"{method} {path}: {response.status} {answer[:500]!r}")
        return answer
    finally:
        connection.close()


def is_ready(port: int) -> bool:
    try:
        fetch(port, "GET", "/ready")
    except (OSError, Refused, http.client.HTTPException):
        return False
    return True
