"""What a request's headers and query say about the answer: its form, its version, its spaces."""

import re
from hashlib import blake2b

from courier.dialects.discue.errors import NotAcceptable, WrongMedia
from courier.dialects.site import InvalidQuery
from courier.web import Request

_TRUE, _FALSE = ("", "1", "true"), ("0", "false")
_NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0*)?")


def pretty(request: Request) -> bool:
    """Whether the answer is for a person to read. Raises InvalidQuery."""
    if not request.head.query_string:
        return False
    text = request.query.get("pretty", ["false"])[-1].lower()
    if text not in (*_TRUE, *_FALSE):
        raise InvalidQuery("pretty", "must be true or false")
    return text in _TRUE


def etag(body: bytes) -> str:
    """The version of an answer."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def matches(header: str, etag: str) -> bool:
    """Whether `If-Match` or `If-None-Match` names this version."""
    wanted = [part.strip().removeprefix("W/") for part in header.split(",")]
    return bool(header) and ("*" in wanted or etag in wanted)


def check_accept(header: str) -> None:
    """JSON is all there is; a client that wants none of it is told so."""
    wanted: dict[str, bool] = {}
    for part in header.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        wanted[kind] = not any(_NO_WEIGHT.fullmatch(each) for each in parameters)
    # Of several ranges the most exact one counts.
    others = [kind for kind in wanted if kind.endswith("+json")]
    ranges = ("application/json", "application/*", "*/*", *others)
    if not next((wanted[kind] for kind in ranges if kind in wanted), not header.strip()):
        raise NotAcceptable(header)


def check_media(header: str) -> None:
    """That a request's body is JSON, as far as its header says."""
    kind = header.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise WrongMedia(kind)
