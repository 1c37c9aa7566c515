"""What stands before bodies: targets of requests, status lines and headers of answers."""

import http

import httptools
import msgspec

from courier.web import JSON, Response

_STATUS = {status.value: f"{status.value} {status.phrase}".encode() for status in http.HTTPStatus}
_USUAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
# A byte is looked for much faster as a number.
_HASH = ord("#")
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
    if url.startswith(b"/") and _HASH not in url:
        path, _, query = url.partition(b"?")
        return path, query
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise Refused(400, "target", "the request target is not a URL") from error
    if not url.startswith(b"/") and (parsed.schema is None or parsed.host is None):
        raise Refused(400, "target", "the request target is not a path")
    return parsed.path or b"/", parsed.query or b""


def framing(headers: dict[bytes, bytes], version: str) -> bytes:
    """A head that says nothing but how the body of a request with these headers is sent."""
    names = (b"content-length", b"transfer-encoding")
    lines = [b"%s: %s\r\n" % (name, headers[name]) for name in names if name in headers]
    return b"POST / HTTP/%s\r\n%s\r\n" % (version.encode(), b"".join(lines))


def head(response: Response) -> bytes:
    """Status line and headers, without the line that ends them."""
    plain = response.content_type is JSON and not response.headers and response.stream is None
    if plain and response.status == 200:
        return _USUAL_HEAD % len(response.body)
    lines = b"HTTP/1.1 %s\r\n" % _STATUS[response.status]
    if response.status not in _BODILESS:
        lines += b"content-type: %s\r\n" % response.content_type
        if response.stream is None:
            lines += b"content-length: %d\r\n" % len(response.body)
    for name, value in response.headers:
        lines += b"%s: %s\r\n" % (name, value)
    return lines


def refusal(why: Refused) -> bytes:
    """The whole answer to what no site has seen, and so is in no vendor's shape."""
    body = msgspec.json.encode({"error": {"code": why.code, "message": str(why)}})
    again = ((b"retry-after", b"1"),) if why.status == http.HTTPStatus.SERVICE_UNAVAILABLE else ()
    return head(Response(body, why.status, headers=again)) + b"connection: close\r\n\r\n" + body
