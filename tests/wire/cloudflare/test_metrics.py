"""The numbers of a queue, once or as a stream."""

import json
import time
from collections.abc import Iterator

import httpx

from tests.server import Server, account_client
from tests.wire.cloudflare import shapes
from tests.wire.cloudflare.envelope import fail, ok
from tests.wire.cloudflare.queue import UNKNOWN_ID, Queue

NOTHING = {"backlog_count": 0, "backlog_bytes": 0, "oldest_message_timestamp_ms": 0}
STREAM = {"Accept": "text/event-stream"}


def test_an_empty_queue_has_no_backlog(queue: Queue) -> None:
    assert queue.metrics() == NOTHING


def test_the_backlog_is_every_message_not_yet_acknowledged(pull_queue: Queue) -> None:
    pull_queue.push("leased")
    message = pull_queue.pull_one()
    pull_queue.push("é")
    pull_queue.push("delayed", delay_seconds=600)
    assert pull_queue.metrics() == {
        "backlog_count": 3,
        "backlog_bytes": len("leased") + 2 + len("delayed"),
        "oldest_message_timestamp_ms": message["timestamp_ms"],
    }
    pull_queue.settle(acks=[message["lease_id"]])
    metrics = pull_queue.metrics()
    assert (metrics["backlog_count"], metrics["backlog_bytes"]) == (2, 2 + len("delayed"))
    assert metrics["oldest_message_timestamp_ms"] >= message["timestamp_ms"]


def test_an_emptied_queue_has_no_backlog(pull_queue: Queue) -> None:
    pull_queue.push("a")
    pull_queue.settle(acks=[pull_queue.pull_one()["lease_id"]])
    assert pull_queue.metrics() == NOTHING


def events(response: httpx.Response) -> Iterator[dict[str, int]]:
    for line in response.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))


def test_metrics_can_be_streamed_once_a_second(queue: Queue) -> None:
    started = time.monotonic()
    with queue.http.stream("GET", queue.at("/metrics"), headers=STREAM) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        stream = events(response)
        first = next(stream)
        first_after = time.monotonic() - started
        queue.push("12345")
        second = next(stream)
        second_after = time.monotonic() - started
    for metrics in (first, second):
        shapes.check_metrics(metrics)
    assert first == NOTHING
    assert (second["backlog_count"], second["backlog_bytes"]) == (1, 5)
    assert second_after - first_after > 0.7


def test_a_client_that_takes_anything_gets_json(queue: Queue) -> None:
    for accept in ("*/*", "application/json", "application/json, text/plain, */*"):
        assert ok(queue.http.get(queue.at("/metrics"), headers={"Accept": accept})) == NOTHING


def test_a_stream_of_an_unknown_queue_is_not_found(http: httpx.Client) -> None:
    fail(http.get(f"/queues/{UNKNOWN_ID}/metrics", headers=STREAM), 404, 11000)


def test_an_open_stream_does_not_hold_the_server_up_when_it_stops(fresh_server: Server) -> None:
    with account_client(fresh_server.credentials) as http:
        queue = Queue.create(http)
        with http.stream("GET", queue.at("/metrics"), headers=STREAM) as response:
            stream = events(response)
            next(stream)
            started = time.monotonic()
            fresh_server.stop()
            assert time.monotonic() - started < 5
            assert len(list(stream)) <= 5, "the stream went on"
    assert "Traceback" not in fresh_server.log()
