"""Numbers in the query of a request."""

from courier.core.errors import InvalidRequest
from courier.web import Request


def number(request: Request, name: str, *, default: int, high: int, low: int = 0) -> int:
    text = request.query.get(name, [""])[-1]
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise InvalidRequest(name, f"expected a number from {low} to {high}, not '{text[:40]}'")
    return int(text)
