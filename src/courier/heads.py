"""What stands before bodies: targets of requests, status lines and headers of answers."""

import http
from collections.abc import Mapping
from functools import lru_cache

import httptools
import msgspec

from courier.web import Head, Response

_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in http.HTTPStatus}
# Heads of admitted requests that are remembered, and how long and full they may be.
HEADS_REMEMBERED_MAX = 1_024
HEAD_REMEMBERED_BYTES_MAX = 1_024
FIELDS_REMEMBERED_MAX = 24
_LENGTH = b"\r\ncontent-length: "
_CUT = b"ength: "
USUAL_REMEMBERED_MAX = 2_048
_END = b" HTTP/1.1\r\n"
# What a name may be made of that is left out of a remembered path: nothing that means something.
_PLAIN = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-._~"
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
    text, end, body = data.partition(b"\r\n\r\n")
    if not end or len(text) > HEAD_REMEMBERED_BYTES_MAX:
        return None
    before, cut, after = text.partition(_CUT)
    if not cut:
        return None if body else (text, body)
    digits, _, _ = after.partition(b"\r")
    if not digits.isdigit() or int(digits) != len(body):
        return None
    return before + cut + after[len(digits) :], body


class Heads:
    """Heads that were parsed before: what is spelled alike means the same, but for the length.

    Only heads are remembered that leave no doubt about that: a request is all that `spelled` was
    given, its body has a length or is not there, and the connection goes on after it as before.

    A path that ends in a name that nobody is admitted by, such as a message's, is remembered
    without it: by what stands before the name and behind it.
    """

    def __init__(self) -> None:
        self._known: dict[bytes | tuple[bytes, bytes], Head] = {}
        self.find = self._known.get

    def named(self, spelling: bytes) -> tuple[Head, str] | None:
        """A head that is spelled alike but for the name that its path ends in, and the name."""
        end = spelling.find(_END)
        start = spelling.rfind(b"/", 0, end) + 1
        head = self._known.get((spelling[:start], spelling[end:]))
        name = spelling[start:end]
        if head is None or not name or name.translate(None, _PLAIN):
            return None
        text = name.decode()
        return None if head.names is None or text in head.names else (head, text)

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
        key: bytes | tuple[bytes, bytes] = spelling
        if head.seldom:
            end = spelling.find(_END)
            start = spelling.rfind(b"/", 0, end) + 1
            if head.names is None or spelling[:end].partition(b" ")[2] != head.raw_path:
                return
            key = spelling[:start], spelling[end:]
        if len(self._known) >= HEADS_REMEMBERED_MAX:
            self._known.clear()
        self._known[key] = head


def framing(headers: Mapping[bytes, bytes], version: str) -> bytes:
    """A head that says nothing but how the body of a request with these headers is sent."""
    names = (b"content-length", b"transfer-encoding")
    lines = [b"%s: %s\r\n" % (name, headers[name]) for name in names if name in headers]
    return b"POST / HTTP/%s\r\n%s\r\n" % (version.encode(), b"".join(lines))


@lru_cache(maxsize=USUAL_REMEMBERED_MAX)
def usual_head(length: int, status: int, content_type: bytes) -> bytes:
    """All that stands before the body of an answer without headers of its own, after which the
    connection goes on."""
    return _lines(length, status, content_type) + b"\r\n"


def _lines(length: int | None, status: int, content_type: bytes) -> bytes:
    """Status line and headers that every answer has; None: where its body ends is not known."""
    lines = b"HTTP/1.1 %s\r\n" % _STATUS[status]
    if status not in _BODILESS:
        lines += b"content-type: %s\r\n" % content_type
        if length is not None:
            lines += b"content-length: %d\r\n" % length
    return lines


def head(response: Response) -> bytes:
    """Status line and headers, without the line that ends them."""
    length = len(response.body) if response.stream is None else None
    lines = _lines(length, response.status, response.content_type)
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
