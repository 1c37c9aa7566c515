"""Where credentials are traded for tokens."""

from typing import NamedTuple

from tests.attack.environment import Environment, complained, refused
from tests.attack.peer import Answer, Peer

FORM = "Content-Type: application/x-www-form-urlencoded"
MULTIPART = "Content-Type: multipart/form-data; boundary=xyz"


class Door(NamedTuple):
    """Where a token is given out, and to whom."""

    path: str
    names: tuple[str, str]
    json_errors: bool


APP = ("client_id", "client_secret")
DOORS = [
    Door("/api/v1/authorize", APP, True),
    Door("/mq/admin/api/v1/authorize", APP, True),
    Door("/accounts/oauth2/token", APP, False),
    Door("/accounts/api/v2/oauth2/token", APP, False),
    Door("/accounts/login", ("username", "password"), False),
    Door("/accounts/api/login", ("username", "password"), False),
]


def good(environment: Environment, door: Door) -> dict[str, str]:
    """What opens the door."""
    own = environment.own
    held = own["user"] if door.names != APP else own
    if door.path.startswith("/accounts/api/v2"):  # a query may hold anything
        held = own["connected_app"]
    return {name: str(held[name]) for name in door.names} | {"grant_type": "client_credentials"}


def ask(environment: Environment, door: Door, data: bytes, *headers: str) -> Answer:
    """Without a token: nobody has one yet."""
    lines = [f"POST {door.path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", *headers]
    with Peer(environment.server) as peer:
        peer.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)
        answer = peer.answer()
        assert answer is not None, f"no answer to {data[:100]!r}"
        return answer


def turned_down(environment: Environment, door: Door, answer: Answer, *statuses: int) -> None:
    """Refused in the API's own shape, and without giving anything away."""
    if door.path.startswith("/api/v1"):
        refused(answer, *statuses)
    elif door.json_errors:
        complained(answer, *statuses)
    else:
        assert answer.status in statuses, answer
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.body
    assert "access_token" not in answer.body.decode("latin-1")
    for secret in good(environment, door).values():
        assert secret == "client_credentials" or secret.encode() not in answer.body


def given(answer: Answer) -> str:
    assert answer.status == 200, answer
    return str(answer.json()["access_token"])


def part(name: str, value: str, *headers: str) -> str:
    lines = [f'Content-Disposition: form-data; name="{name}"', *headers]
    return "--xyz\r\n" + "\r\n".join(lines) + f"\r\n\r\n{value}\r\n"


def form(fields: dict[str, str]) -> str:
    return "".join(part(name, value) for name, value in fields.items()) + "--xyz--\r\n"
