"""What stands before bodies: targets of requests, status lines and headers of answers."""

import http
from collections.abc import Mapping
from functools import lru_cache

import httptools
import msgspec

from courier.web import Head, Response

_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in http.HTTPStatus}
_USUAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
# Heads of admitted requests that are remembered, and how long and full they may be.
HEADS_REMEMBERED_MAX = 1_024
HEAD_REMEMBERED_BYTES_MAX = 1_024
FIELDS_REMEMBERED_MAX = 24
_LENGTH = b"\r\ncontent-length: "
_CUT = b"ength: "
LENGTHS_REMEMBERED_MAX = 2_048
# A byte is looked for much faster as a number.
_HASH = ord("#")
# Bytes of a name or address, with or without a port.
_HOST = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-._~%:[]"
# Answers that have no body, and do not say how long it is.
_BODILESS = (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED)


class Refused(Exception):
    """What came is no request that a site could answer. Raised in the parser, it stops it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target, which proxies write as a whole URL."""
    if _HASH in url:
        raise Refused(400, "target", "the request target has a fragment")
    if url.startswith(b"/"):
        path, _, query = url.partition(b"?")
        return path, query
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise Refused(400, "target", "the request target is not a URL") from error
    if parsed.schema not in (b"http", b"https") or parsed.host is None:
        raise Refused(400, "target", "the request target is neither a path nor an http URL")
    return parsed.path or b"/", parsed.query or b""


def check(headers: dict[bytes, bytes], version: str) -> None:
    """Raises Refused where two readers could take the request for different ones: by its host, or
    by where its body ends."""
    host = headers.get(b"host")
    if host is None and version == "1.1":
        raise Refused(400, "host", "the Host header is missing")
    if host and host.translate(None, _HOST):
        raise Refused(400, "host", "the Host header is not one host")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        raise Refused(400, "coding", "the only transfer coding is chunked, and not of HTTP/1.0")


def spelled(data: bytes) -> tuple[bytes, bytes] | None:
    """What came, if it is nothing but one request, as far as can be told without parsing it.

    Its head without the digits of its content-length, and its body.
    """
    end = data.find(b"\r\n\r\n") + 4
    if not 4 <= end <= HEAD_REMEMBERED_BYTES_MAX:
        return None
    body = data[end:]
    at = data.find(_CUT, 0, end)
    if at < 0:
        return None if body else (data, body)
    at += len(_CUT)
    stop = data.find(b"\r", at)
    digits = data[at:stop]
    if not digits.isdigit() or int(digits) != len(body):
        return None
    return data[:at] + data[stop:end], body


class Heads:
    """Heads that were parsed before: what is spelled alike means the same, but for the length.

    Only heads are remembered that leave no doubt about that: a request is all that `spelled` was
    given, its body has a length or is not there, and the connection goes on after it as before.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self.find = self._known.get

    def keep(self, spelling: bytes, head: Head) -> None:
        names = head.headers.keys()
        if len(names) > FIELDS_REMEMBERED_MAX:
            return
        ended = head.old or not head.keep_alive or head.method == "CONNECT"
        if ended or not names.isdisjoint((b"transfer-encoding", b"expect", b"upgrade")):
            return
        before, cut, _ = spelling.lower().partition(_CUT)
        if bool(cut) != (b"content-length" in names):
            return
        if cut and not (before + cut).endswith(_LENGTH):
            return
        if len(self._known) >= HEADS_REMEMBERED_MAX:
            self._known.clear()
        self._known[spelling] = head


def framing(headers: Mapping[bytes, bytes], version: str) -> bytes:
    """A head that says nothing but how the body of a request with these headers is sent."""
    names = (b"content-length", b"transfer-encoding")
    lines = [b"%s: %s\r\n" % (name, headers[name]) for name in names if name in headers]
    return b"POST / HTTP/%s\r\n%s\r\n" % (version.encode(), b"".join(lines))


@lru_cache(maxsize=LENGTHS_REMEMBERED_MAX)
def usual_head(length: int) -> bytes:
    """All that stands before the JSON of an answer after which the connection goes on."""
    return _USUAL_HEAD % length


def head(response: Response) -> bytes:
    """Status line and headers, without the line that ends them."""
    lines = b"HTTP/1.1 %s\r\n" % _STATUS[response.status]
    if response.status not in _BODILESS:
        lines += b"content-type: %s\r\n" % response.content_type
        if response.stream is None:
            lines += b"content-length: %d\r\n" % len(response.body)
    for name, value in response.headers:
        lines += b"%s: %s\r\n" % (name, value)
    return lines


def ending(asked: Head, *, keep: bool) -> bytes:
    """The line that ends the head of an answer, after the one that says whether others follow."""
    if not keep:
        return b"connection: close\r\n\r\n"
    return b"connection: keep-alive\r\n\r\n" if asked.old else b"\r\n"


def refusal(why: Refused) -> bytes:
    """The whole answer to what no site has seen, and so is in no vendor's shape."""
    body = msgspec.json.encode({"error": {"code": why.code, "message": str(why)}})
    again = ((b"retry-after", b"1"),) if why.status == http.HTTPStatus.SERVICE_UNAVAILABLE else ()
    return head(Response(body, why.status, headers=again)) + b"connection: close\r\n\r\n" + body
