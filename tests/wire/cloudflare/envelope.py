"""Every answer is an envelope. These functions are the only way the tests open one."""

from typing import Any

import httpx

ERROR_FIELDS = {"code", "message", "documentation_url", "source", "error_chain"}


def ok(response: httpx.Response) -> Any:
    """The result of an answer that must be a success and not a page of a list."""
    body = _opened(response)
    assert response.status_code == 200, response.text
    assert body["success"] is True
    assert body["errors"] == []
    assert set(body) == {"success", "errors", "messages", "result"}, response.text
    return body["result"]


def page(response: httpx.Response) -> tuple[list[Any], dict[str, int]]:
    """The rows and the `result_info` of an answer that must be a page of a list."""
    body = _opened(response)
    assert response.status_code == 200, response.text
    assert body["success"] is True
    assert body["errors"] == []
    assert set(body) == {"success", "errors", "messages", "result", "result_info"}, response.text
    rows, info = body["result"], body["result_info"]
    assert set(info) == {"page", "per_page", "count", "total_count", "total_pages"}
    assert all(type(value) is int for value in info.values()), info
    assert info["count"] == len(rows)
    assert info["page"] >= 1 and info["per_page"] >= 1, info
    assert info["total_pages"] == -(-info["total_count"] // info["per_page"]), info
    return rows, info


def fail(response: httpx.Response, status: int, *codes: int) -> str:
    """The message of an answer that must be this failure; no codes: the code is free."""
    body = _opened(response)
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    assert body["success"] is False
    assert set(body) == {"success", "errors", "messages", "result"}, response.text
    assert body["result"] is None
    (error,) = body["errors"]
    assert {"code", "message"} <= set(error) <= ERROR_FIELDS, error
    assert type(error["code"]) is int
    assert not codes or error["code"] in codes, response.text
    message = error["message"]
    assert isinstance(message, str)
    assert message
    # The SDKs send a request again after a 409, for nothing, unless they are told not to.
    assert status != 409 or response.headers["x-should-retry"] == "false"
    return message


def refused(response: httpx.Response) -> int:
    """The status of an answer that must be some failure the caller can mend."""
    assert 400 <= response.status_code < 500, f"{response.status_code}: {response.text}"
    fail(response, response.status_code)
    return response.status_code


def _opened(response: httpx.Response) -> dict[str, Any]:
    """What holds for all answers, good or bad."""
    assert response.headers["content-type"].split(";")[0].strip() == "application/json"
    body = response.json()
    assert isinstance(body, dict)
    assert type(body["success"]) is bool
    assert body["messages"] == []
    return body
