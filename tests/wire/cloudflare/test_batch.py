"""Pushing many messages at once: all of them, or none."""

from typing import Any

import pytest

from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import Queue, unfolded

BATCH_BYTES_MAX = 256_000
GOOD: dict[str, Any] = {"body": "good", "content_type": "text"}


def text(size: int) -> dict[str, Any]:
    return {"body": "x" * size, "content_type": "text"}


def test_the_answer_counts_every_message_of_the_batch(pull_queue: Queue) -> None:
    metrics = pull_queue.push_texts(["a", "bb", "ccc"])
    assert (metrics["backlog_count"], metrics["backlog_bytes"]) == (3, 6)
    assert [message["body"] for message in pull_queue.pull()] == ["a", "bb", "ccc"]


def test_text_and_json_go_together(pull_queue: Queue) -> None:
    content = (
        b'{"messages": [{"body": "t", "content_type": "text"}, {"body": 1.10},'
        b' {"body": {"b": 1, "a": 1e2}, "content_type": "json"}, {"body": null}]}'
    )
    ok(pull_queue.http.post(pull_queue.at("/messages/batch"), content=content))
    first, *others = pull_queue.pull()
    assert first["body"] == "t"
    assert [unfolded(message) for message in others] == ["1.10", '{"b":1,"a":1e2}', "null"]


@pytest.mark.parametrize("count", [1, 100])
def test_a_batch_within_its_limits_is_accepted(pull_queue: Queue, count: int) -> None:
    bodies = [str(number) for number in range(count)]
    assert pull_queue.push_texts(bodies)["backlog_count"] == count
    assert [message["body"] for message in pull_queue.pull(batch_size=100)] == bodies


@pytest.mark.parametrize("count", [0, 101, 1000])
def test_a_batch_beyond_its_limits_is_refused(standing_queue: Queue, count: int) -> None:
    response = standing_queue.post("/messages/batch", {"messages": [GOOD] * count})
    assert "100" in fail(response, 413, 10206)
    assert standing_queue.backlog() == 0


@pytest.mark.parametrize("sizes", [[128_000, 128_000], [2_560] * 100, [128_000, 127_999, 1]])
def test_the_largest_batch_is_accepted(queue: Queue, sizes: list[int]) -> None:
    result = ok(queue.post("/messages/batch", {"messages": [text(size) for size in sizes]}))
    assert result["metadata"]["metrics"]["backlog_bytes"] == BATCH_BYTES_MAX


@pytest.mark.parametrize("sizes", [[128_000, 128_000, 1], [2_560] * 99 + [2_561]])
def test_one_byte_more_than_the_largest_batch_is_refused(
    standing_queue: Queue, sizes: list[int]
) -> None:
    response = standing_queue.post("/messages/batch", {"messages": [text(n) for n in sizes]})
    assert "256000" in fail(response, 413, 10205).replace(",", "")
    assert standing_queue.backlog() == 0


def test_the_size_of_a_batch_is_what_is_stored(queue: Queue) -> None:
    spaced = b'{"body": [' + b" " * 100_000 + b"]}"
    content = b'{"messages": [' + b",".join([spaced] * 5) + b"]}"
    result = ok(queue.http.post(queue.at("/messages/batch"), content=content))
    assert result["metadata"]["metrics"]["backlog_bytes"] == 10
    accented = {"body": "é" * 64_000, "content_type": "text"}
    response = queue.post("/messages/batch", {"messages": [accented, accented, text(1)]})
    fail(response, 413, 10205)


def test_one_message_too_large_is_refused_as_such(standing_queue: Queue) -> None:
    response = standing_queue.post("/messages/batch", {"messages": [GOOD, text(128_001)]})
    fail(response, 413, 10204)
    assert standing_queue.backlog() == 0


def test_a_batch_without_messages_is_refused(standing_queue: Queue) -> None:
    path = standing_queue.at("/messages/batch")
    for body in ("{}", '{"body": 1}', '{"messages": {}}', '{"messages": null}', "[]"):
        fail(standing_queue.http.post(path, content=body.encode()), 400, 10207)


BAD_ELEMENTS: list[tuple[Any, int]] = [
    ({"content_type": "text"}, 10207),
    ({"body": 5, "content_type": "text"}, 10207),
    ("x", 10207),
    ({"body": 1, "content_type": "bytes"}, 10203),
    ({"body": 1, "delay_seconds": 86_401}, 10203),
]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("element", "code"), BAD_ELEMENTS)
def test_one_bad_message_rejects_the_whole_batch(
    standing_queue: Queue, element: Any, code: int, place: int
) -> None:
    messages = [GOOD, GOOD]
    messages.insert(place, element)
    said = fail(standing_queue.post("/messages/batch", {"messages": messages}), 400, code)
    assert f"messages[{place}]" in said
    assert standing_queue.backlog() == 0


@pytest.mark.parametrize("delay", [0, 1, 86_400])
def test_a_batch_delay_within_its_limits_is_accepted(queue: Queue, delay: int) -> None:
    assert queue.push_texts(["a", "b"], delay_seconds=delay)["backlog_count"] == 2


@pytest.mark.parametrize("delay", [-1, 86_401])
def test_a_batch_delay_beyond_its_limits_is_refused(standing_queue: Queue, delay: Any) -> None:
    body = {"messages": [GOOD], "delay_seconds": delay}
    assert "delay_seconds" in fail(standing_queue.post("/messages/batch", body), 400, 10202)
    assert standing_queue.backlog() == 0
