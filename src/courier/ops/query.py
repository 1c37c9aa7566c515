"""Numbers and flags in the query of a request."""

from courier.core.errors import InvalidRequest
from courier.web import Request


def number(request: Request, name: str, *, default: int, high: int, low: int = 0) -> int:
    text = request.query.get(name, [""])[-1]
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise InvalidRequest(name, f"expected a number from {low} to {high}, not '{text[:40]}'")
    return int(text)


def flag(request: Request, name: str) -> bool:
    text = request.query.get(name, ["false"])[-1]
    if text not in ("true", "false"):
        raise InvalidRequest(name, f"expected true or false, not '{text[:40]}'")
    return text == "true"
