"""What the Discue API says when it refuses."""

from typing import Any

from tests.attack.peer import Answer


def refused(answer: Answer | None, *statuses: int) -> dict[str, Any]:
    """Check that it is a refusal of this API; what it says."""
    assert answer is not None, "hung up without an answer"
    assert answer.status in statuses, (
        f"{answer.status} instead of {statuses}: {answer.body[:500]!r}"
    )
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    failure = answer.json()
    assert set(failure) - {"errors"} == {"title", "status", "detail", "request_id"}, failure
    assert failure["status"] == answer.status
    assert 0 < len(failure["detail"]) < 2_000, "a refusal says why, and does not repeat it all"
    found: dict[str, Any] = failure
    return found
