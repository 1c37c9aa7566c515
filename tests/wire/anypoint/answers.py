"""What holds for all answers. These functions are the only way the tests open one."""

from typing import Any

import httpx

JSON = "application/json; charset=UTF-8"


def ok(response: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that must be this success."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert response.headers["content-type"] == JSON
    return response.json()


def nothing(response: httpx.Response) -> None:
    """The answer must be a success that says nothing."""
    assert response.status_code == 204, f"{response.status_code}: {response.text}"
    assert response.content == b""


def result(response: httpx.Response, message_id: str, status: int = 200) -> str:
    """The text of a broker's answer that must report this message's success."""
    body = ok(response, status)
    assert set(body) == {"messageId", "status", "statusMessage"}, body
    assert (body["messageId"], body["status"]) == (message_id, "successful")
    return _filled(body["statusMessage"])


def fail(response: httpx.Response, status: int, message_id: str | None = None) -> str:
    """The text of a broker's answer that must be this failure."""
    body = ok(response, status)
    assert set(body) - {"lockId", "messageId"} == {"status", "statusMessage"}, body
    assert body["status"] == "failure"
    assert body.get("messageId") == message_id
    return _filled(body["statusMessage"])


def results(
    response: httpx.Response, status: int = 200, *, locks: bool = False
) -> list[dict[str, str]]:
    """The results of a batch; those about locks name them."""
    body = ok(response, status)
    assert isinstance(body, list)
    for each in body:
        named = {"lockId"} if locks else set()
        assert set(each) == {"messageId", "status", "statusMessage"} | named, each
        assert each["status"] in ("successful", "failure")
        assert all(isinstance(value, str) for value in each.values()), each
        _filled(each["statusMessage"])
    found: list[dict[str, str]] = body
    return found


def admin_fail(response: httpx.Response, status: int) -> str:
    """The text of an Admin or Stats answer that must be this failure."""
    body = ok(response, status)
    assert set(body) == {"status", "message"}, body
    assert body["status"] == status
    return _filled(body["message"])


def _filled(text: Any) -> str:
    assert isinstance(text, str)
    assert text
    return text
