"""The official Python SDK works unchanged: all it can do with queues, with only its URL changed."""

import base64
import json
import time
from collections.abc import Iterator
from typing import TypeVar

import httpx
import pytest
from cloudflare import (
    APIStatusError,
    BadRequestError,
    Cloudflare,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
)
from cloudflare.types.queues import MessagePullResponse, Queue
from cloudflare.types.queues.message_pull_response import Message

from tests.server import Server

pytestmark = pytest.mark.slow


T = TypeVar("T")
DAY_SECONDS = 86_400
NOBODY = "0123456789abcdef0123456789abcdef"
PURGE_SECONDS_MAX = 10.0


@pytest.fixture
def account(server: Server) -> str:
    return str(server.credentials["cloudflare"]["account_id"])


@pytest.fixture
def sent() -> list[httpx.Request]:
    """Every request the SDK has made, its own repetitions included."""
    return []


@pytest.fixture
def sdk(server: Server, sent: list[httpx.Request]) -> Iterator[Cloudflare]:
    yield from connected(server, sent, token=server.credentials["cloudflare"]["api_token"])


@pytest.fixture
def stranger(server: Server, sent: list[httpx.Request]) -> Iterator[Cloudflare]:
    """The SDK with a token that was never given out."""
    yield from connected(server, sent, token="not-a-token-of-this-server")


def connected(server: Server, sent: list[httpx.Request], *, token: str) -> Iterator[Cloudflare]:
    seen_by = httpx.Client(event_hooks={"request": [sent.append]}, trust_env=False, verify=False)
    base_url = server.credentials["cloudflare"]["base_url"]
    with Cloudflare(api_token=token, base_url=base_url, http_client=seen_by) as sdk:
        yield sdk


@pytest.fixture
def queue(sdk: Cloudflare, account: str, queue_name: str) -> str:
    """The id of a queue without a consumer."""
    made = sdk.queues.create(account_id=account, queue_name=queue_name)
    return str(some(some(made).queue_id))


@pytest.fixture
def pulled(sdk: Cloudflare, account: str, queue: str) -> str:
    """The id of a queue that may be pulled from."""
    sdk.queues.consumers.create(queue, account_id=account, type="http_pull")
    return queue


def some(value: T | None) -> T:
    assert value is not None
    return value


def messages(answer: MessagePullResponse | None) -> list[Message]:
    return some(some(answer).messages)


def codes(error: APIStatusError) -> list[float | None]:
    return [entry.code for entry in error.errors]


# --- queues ----------------------------------------------------------------------------------


def test_created_queue_has_its_name_and_the_default_settings(
    sdk: Cloudflare, account: str, queue_name: str
) -> None:
    made = some(sdk.queues.create(account_id=account, queue_name=queue_name))
    assert made.queue_name == queue_name
    assert len(some(made.queue_id)) == 32
    assert made.created_on == made.modified_on
    assert made.jurisdiction is None
    assert (made.producers, made.producers_total_count) == ([], 0)
    assert (made.consumers, made.consumers_total_count) == ([], 0)
    assert some(made.settings).to_dict() == {
        "delivery_delay": 0,
        "delivery_paused": False,
        "message_retention_period": 4 * DAY_SECONDS,
    }


def test_jurisdiction_given_at_creation_is_shown(
    sdk: Cloudflare, account: str, queue_name: str
) -> None:
    made = sdk.queues.create(account_id=account, queue_name=queue_name, jurisdiction="eu")
    got = sdk.queues.get(some(some(made).queue_id), account_id=account)
    assert some(got).jurisdiction == "eu"


def test_got_queue_is_the_created_one(sdk: Cloudflare, account: str, queue_name: str) -> None:
    made = some(sdk.queues.create(account_id=account, queue_name=queue_name))
    assert sdk.queues.get(some(made.queue_id), account_id=account) == made


def test_list_returns_more_queues_than_one_page_holds(
    sdk: Cloudflare, account: str, queue_name: str, sent: list[httpx.Request]
) -> None:
    names = [f"{queue_name}-{i}" for i in range(105)]
    for name in names:
        sdk.queues.create(account_id=account, queue_name=name)
    sent.clear()
    listed = [some(found.queue_name) for found in sdk.queues.list(account_id=account)]
    assert [name for name in listed if name in set(names)] == names
    assert len(sent) == 1


def test_update_replaces_the_settings_and_renames(
    sdk: Cloudflare, account: str, queue: str, queue_name: str
) -> None:
    first = sdk.queues.update(
        queue, account_id=account, settings={"delivery_delay": 5, "message_retention_period": 600}
    )
    assert some(first).queue_name == queue_name
    assert some(some(first).settings).delivery_delay == 5

    second = sdk.queues.update(
        queue,
        account_id=account,
        queue_name=f"{queue_name}-2",
        settings={"message_retention_period": 3600},
    )
    assert some(second).queue_id == queue
    assert some(second).queue_name == f"{queue_name}-2"
    assert some(some(second).settings).to_dict() == {
        "delivery_delay": 0,
        "delivery_paused": False,
        "message_retention_period": 3600,
    }


def test_edit_changes_only_the_settings_it_names(
    sdk: Cloudflare, account: str, queue: str, queue_name: str
) -> None:
    sdk.queues.edit(queue, account_id=account, settings={"delivery_delay": 7})
    edited = sdk.queues.edit(
        queue, account_id=account, queue_name=queue_name, settings={"delivery_paused": True}
    )
    assert some(edited).queue_name == queue_name
    assert some(some(edited).settings).to_dict() == {
        "delivery_delay": 7,
        "delivery_paused": True,
        "message_retention_period": 4 * DAY_SECONDS,
    }


def test_deleted_queue_is_gone(sdk: Cloudflare, account: str, queue: str) -> None:
    answer = some(sdk.queues.delete(queue, account_id=account))
    assert (answer.success, answer.errors, answer.messages) == (True, [], [])
    with pytest.raises(NotFoundError) as refused:
        sdk.queues.get(queue, account_id=account)
    assert codes(refused.value) == [11000]


def test_metrics_count_what_is_stored(sdk: Cloudflare, account: str, queue: str) -> None:
    empty = some(sdk.queues.get_metrics(queue, account_id=account))
    assert empty.to_dict() == {
        "backlog_bytes": 0,
        "backlog_count": 0,
        "oldest_message_timestamp_ms": 0,
    }
    sdk.queues.messages.push(queue, account_id=account, body="1234", content_type="text")
    metrics = some(sdk.queues.get_metrics(queue, account_id=account))
    assert (metrics.backlog_count, metrics.backlog_bytes) == (1, 4)
    assert abs(metrics.oldest_message_timestamp_ms / 1000 - time.time()) < 60


# --- consumers -------------------------------------------------------------------------------


def test_pull_consumer_lives_from_creation_to_deletion(
    sdk: Cloudflare, account: str, queue: str, queue_name: str
) -> None:
    consumers = sdk.queues.consumers
    made = consumers.create(
        queue,
        account_id=account,
        type="http_pull",
        dead_letter_queue=f"{queue_name}-dead",
        settings={"batch_size": 50, "max_retries": 1, "visibility_timeout_ms": 6000},
    )
    assert made is not None and made.type == "http_pull"
    assert made.queue_name == queue_name
    assert made.dead_letter_queue == f"{queue_name}-dead"
    assert some(made.created_on).tzinfo is not None
    assert some(made.settings).to_dict() == {
        "batch_size": 50,
        "max_retries": 1,
        "retry_delay": 0,
        "visibility_timeout_ms": 6000,
    }
    id = some(made.consumer_id)
    assert list(consumers.list(queue, account_id=account)) == [made]
    assert consumers.get(id, account_id=account, queue_id=queue) == made
    shown: Queue = some(sdk.queues.get(queue, account_id=account))
    assert (shown.consumers, shown.consumers_total_count) == ([made], 1)

    changed = consumers.update(
        id, account_id=account, queue_id=queue, type="http_pull", settings={"retry_delay": 9}
    )
    assert changed is not None and changed.type == "http_pull"
    assert (changed.consumer_id, changed.created_on) == (id, made.created_on)
    assert changed.dead_letter_queue == ""
    assert some(changed.settings).to_dict() == {
        "batch_size": 5,
        "max_retries": 3,
        "retry_delay": 9,
        "visibility_timeout_ms": 30_000,
    }

    answer = some(consumers.delete(id, account_id=account, queue_id=queue))
    assert (answer.success, answer.errors) == (True, [])
    assert list(consumers.list(queue, account_id=account)) == []


def test_worker_consumer_lives_from_creation_to_deletion(
    sdk: Cloudflare, account: str, queue: str, queue_name: str
) -> None:
    consumers = sdk.queues.consumers
    made = consumers.create(
        queue,
        account_id=account,
        type="worker",
        script_name="resize-images",
        settings={"batch_size": 20, "max_wait_time_ms": 250, "max_concurrency": 4},
    )
    assert made is not None and made.type == "worker"
    assert (made.queue_name, made.script_name) == (queue_name, "resize-images")
    assert made.dead_letter_queue == ""
    assert some(made.settings).to_dict() == {
        "batch_size": 20,
        "max_concurrency": 4,
        "max_retries": 3,
        "max_wait_time_ms": 250,
        "retry_delay": 0,
    }
    id = some(made.consumer_id)
    assert list(consumers.list(queue, account_id=account)) == [made]
    assert consumers.get(id, account_id=account, queue_id=queue) == made

    changed = consumers.update(
        id, account_id=account, queue_id=queue, type="worker", script_name="crop-images"
    )
    assert changed is not None and changed.type == "worker"
    assert (changed.consumer_id, changed.script_name) == (id, "crop-images")
    assert some(changed.settings).to_dict() == {
        "batch_size": 10,
        "max_concurrency": None,
        "max_retries": 3,
        "max_wait_time_ms": 5000,
        "retry_delay": 0,
    }

    consumers.delete(id, account_id=account, queue_id=queue)
    with pytest.raises(NotFoundError) as refused:
        consumers.get(id, account_id=account, queue_id=queue)
    assert codes(refused.value) == [11002]


def test_queue_takes_only_one_consumer(
    sdk: Cloudflare, account: str, pulled: str, queue_name: str
) -> None:
    with pytest.raises(BadRequestError, match="already has a consumer") as refused:
        sdk.queues.consumers.create(pulled, account_id=account, type="worker", script_name="other")
    assert codes(refused.value) == [11004]
    assert queue_name in str(refused.value)


# --- messages --------------------------------------------------------------------------------


def test_pushed_text_is_pulled_and_acked(sdk: Cloudflare, account: str, pulled: str) -> None:
    verbs = sdk.queues.messages
    text = "Grüße, 世界 \N{ROCKET}"
    answer = verbs.push(pulled, account_id=account, body=text, content_type="text")
    stored = some(some(some(answer).metadata).metrics)
    assert (stored.backlog_count, stored.backlog_bytes) == (1, len(text.encode()))

    batch = some(verbs.pull(pulled, account_id=account))
    (message,) = messages(batch)
    assert message.body == text
    assert message.attempts == 1
    assert len(some(message.id)) == 32
    assert message.timestamp_ms == stored.oldest_message_timestamp_ms
    assert isinstance(message.metadata, dict)
    assert message.metadata["CF-Content-Type"] == "text"
    assert batch.message_backlog_count == 1
    assert some(some(batch.metadata).metrics).to_dict() == stored.to_dict()

    done = some(verbs.ack(pulled, account_id=account, acks=[{"lease_id": some(message.lease_id)}]))
    assert (done.ack_count, done.retry_count, done.warnings) == (1, 0, {})
    assert some(sdk.queues.get_metrics(pulled, account_id=account)).backlog_count == 0


@pytest.mark.parametrize("value", [{"b": [1, None, True], "a": 1.50}, [], 12, False, None])
def test_pushed_json_is_pulled_as_base64_of_its_text(
    sdk: Cloudflare, account: str, pulled: str, value: object
) -> None:
    sdk.queues.messages.push(pulled, account_id=account, body=value, content_type="json")
    (message,) = messages(sdk.queues.messages.pull(pulled, account_id=account))
    assert isinstance(message.metadata, dict)
    assert message.metadata["CF-Content-Type"] == "json"
    assert json.loads(base64.b64decode(some(message.body), validate=True)) == value


def test_bulk_push_is_pulled_in_order_and_in_batches(
    sdk: Cloudflare, account: str, pulled: str
) -> None:
    verbs = sdk.queues.messages
    answer = verbs.bulk_push(
        pulled,
        account_id=account,
        messages=[{"body": f"message {i}", "content_type": "text"} for i in range(7)],
    )
    assert some(some(some(answer).metadata).metrics).backlog_count == 7

    # The SDK says numbers as floats; 3.0 has to mean 3.
    first = messages(
        verbs.pull(pulled, account_id=account, batch_size=3.0, visibility_timeout_ms=60_000.0)
    )
    rest = messages(verbs.pull(pulled, account_id=account, batch_size=100))
    assert [message.body for message in first] == ["message 0", "message 1", "message 2"]
    assert [message.body for message in rest] == [f"message {i}" for i in range(3, 7)]
    assert messages(verbs.pull(pulled, account_id=account)) == []


def test_delayed_message_counts_but_is_not_handed_out(
    sdk: Cloudflare, account: str, pulled: str
) -> None:
    verbs = sdk.queues.messages
    verbs.push(
        pulled, account_id=account, body="later", content_type="text", delay_seconds=DAY_SECONDS
    )
    verbs.bulk_push(
        pulled,
        account_id=account,
        delay_seconds=DAY_SECONDS,
        messages=[
            {"body": "later too", "content_type": "text"},
            {"body": "now", "content_type": "text", "delay_seconds": 0.0},
        ],
    )
    batch = some(verbs.pull(pulled, account_id=account))
    assert [message.body for message in messages(batch)] == ["now"]
    assert batch.message_backlog_count == 3


def test_retried_message_comes_back_with_a_new_lease(
    sdk: Cloudflare, account: str, pulled: str
) -> None:
    verbs = sdk.queues.messages
    verbs.push(pulled, account_id=account, body="again", content_type="text")
    (first,) = messages(verbs.pull(pulled, account_id=account))
    lease = some(first.lease_id)
    done = some(verbs.ack(pulled, account_id=account, retries=[{"lease_id": lease}]))
    assert (done.ack_count, done.retry_count) == (0, 1)

    (second,) = messages(verbs.pull(pulled, account_id=account))
    assert (second.id, second.body, second.attempts) == (first.id, "again", 2)
    assert second.timestamp_ms == first.timestamp_ms
    assert second.lease_id != lease

    later = some(
        verbs.ack(
            pulled,
            account_id=account,
            retries=[{"lease_id": some(second.lease_id), "delay_seconds": 60.0}],
        )
    )
    assert later.retry_count == 1
    assert messages(verbs.pull(pulled, account_id=account)) == []


def test_ack_of_a_lease_nobody_holds_is_a_warning(
    sdk: Cloudflare, account: str, pulled: str
) -> None:
    done = some(
        sdk.queues.messages.ack(pulled, account_id=account, acks=[{"lease_id": "no-such-lease"}])
    )
    assert (done.ack_count, done.retry_count) == (0, 0)
    assert list(some(done.warnings)) == ["no-such-lease"]


def test_message_out_of_attempts_moves_to_the_dead_letter_queue(
    sdk: Cloudflare, account: str, queue: str, queue_name: str
) -> None:
    verbs = sdk.queues.messages
    sdk.queues.consumers.create(
        queue,
        account_id=account,
        type="http_pull",
        dead_letter_queue=f"{queue_name}-dead",
        settings={"max_retries": 0},
    )
    (dead,) = (
        some(found.queue_id)
        for found in sdk.queues.list(account_id=account)
        if found.queue_name == f"{queue_name}-dead"
    )
    verbs.push(queue, account_id=account, body="poison", content_type="text")
    (message,) = messages(verbs.pull(queue, account_id=account))
    verbs.ack(queue, account_id=account, retries=[{"lease_id": some(message.lease_id)}])

    assert some(sdk.queues.get_metrics(queue, account_id=account)).backlog_count == 0
    (letter,) = some(some(verbs.peek(dead, account_id=account)).messages)
    assert (letter.body, letter.attempts) == ("poison", 0)

    with pytest.raises(BadRequestError) as refused:
        sdk.queues.delete(dead, account_id=account)
    assert codes(refused.value) == [11005]


def test_peeked_message_stays_until_it_is_purged_by_its_reference(
    sdk: Cloudflare, account: str, queue: str
) -> None:
    verbs = sdk.queues.messages
    for body in ("keep", "drop"):
        verbs.push(queue, account_id=account, body=body, content_type="text")
    peeked = some(some(verbs.peek(queue, account_id=account, batch_size=10.0)).messages)
    assert [(message.body, message.attempts) for message in peeked] == [("keep", 0), ("drop", 0)]

    refs = [some(peeked[1].ref), "no-such-ref"]
    answer = some(verbs.purge(queue, account_id=account, refs=[{"ref": ref} for ref in refs]))
    assert answer.errors == []
    assert list(some(answer.warnings)) == ["no-such-ref"]
    left = some(some(verbs.peek(queue, account_id=account)).messages)
    assert [message.body for message in left] == ["keep"]


def test_purge_empties_the_queue_and_says_when_it_is_done(
    sdk: Cloudflare, account: str, queue: str
) -> None:
    before = some(sdk.queues.purge.status(queue, account_id=account))
    assert (before.completed, before.started_at) == ("", "")
    sdk.queues.messages.bulk_push(
        queue, account_id=account, messages=[{"body": i, "content_type": "json"} for i in range(50)]
    )
    answer = sdk.queues.purge.start(queue, account_id=account, delete_messages_permanently=True)
    assert some(answer).queue_id == queue

    deadline = time.monotonic() + PURGE_SECONDS_MAX
    while some(sdk.queues.purge.status(queue, account_id=account)).completed != "true":
        assert time.monotonic() < deadline, "the purge did not end"
    assert some(sdk.queues.purge.status(queue, account_id=account)).started_at
    assert some(sdk.queues.get_metrics(queue, account_id=account)).backlog_count == 0


# --- event subscriptions ---------------------------------------------------------------------


def test_subscription_lives_from_creation_to_deletion(
    sdk: Cloudflare, account: str, queue: str
) -> None:
    subscriptions = sdk.queues.subscriptions
    made = some(
        subscriptions.create(
            account_id=account,
            name="models",
            enabled=True,
            source={"type": "workersAi.model", "model_name": "@cf/example/model"},
            destination={"type": "queues.queue", "queue_id": queue},
            events=["batch.queued", "batch.failed"],
        )
    )
    assert (made.name, made.enabled) == ("models", True)
    assert made.events == ["batch.queued", "batch.failed"]
    assert made.source.to_dict() == {"type": "workersAi.model", "model_name": "@cf/example/model"}
    assert made.destination.to_dict() == {"type": "queues.queue", "queue_id": queue}
    assert made.created_at == made.modified_at

    got = some(subscriptions.get(made.id, account_id=account))
    assert got.to_dict() == made.to_dict()

    changed = some(
        subscriptions.update(
            made.id, account_id=account, name="more", enabled=False, events=["batch.succeeded"]
        )
    )
    assert (changed.id, changed.name, changed.enabled) == (made.id, "more", False)
    assert changed.events == ["batch.succeeded"]
    assert changed.source.to_dict() == made.source.to_dict()

    gone = some(subscriptions.delete(made.id, account_id=account))
    assert gone.to_dict() == changed.to_dict()
    with pytest.raises(NotFoundError):
        subscriptions.get(made.id, account_id=account)


def test_iterating_subscriptions_walks_every_page_and_ends(
    sdk: Cloudflare, account: str, queue: str, sent: list[httpx.Request]
) -> None:
    subscriptions = sdk.queues.subscriptions
    names = [f"worker {i:02}" for i in range(25)]
    for name in reversed(names):
        subscriptions.create(
            account_id=account,
            name=name,
            source={"type": "workersBuilds.worker", "worker_name": name},
            destination={"type": "queues.queue", "queue_id": queue},
            events=["build.started"],
        )

    def mine(**options: object) -> list[str]:
        sent.clear()
        found = subscriptions.list(account_id=account, **options)
        return [one.name for one in found if one.destination.queue_id == queue]

    assert mine() == names
    assert mine(per_page=7, order="name", direction="desc") == names[::-1]
    assert len(sent) >= 5  # 25 rows in pages of 7, and the empty page that ends the walk
    assert mine(order="created_at", direction="asc") == names[::-1]


# --- errors ----------------------------------------------------------------------------------


def test_taken_name_is_a_conflict_that_is_not_tried_again(
    sdk: Cloudflare, account: str, queue: str, queue_name: str, sent: list[httpx.Request]
) -> None:
    sent.clear()
    with pytest.raises(ConflictError, match="is already taken") as refused:
        sdk.queues.create(account_id=account, queue_name=queue_name)
    assert codes(refused.value) == [11009]
    assert len(sent) == 1


def test_pull_from_a_paused_queue_is_a_conflict_that_is_not_tried_again(
    sdk: Cloudflare, account: str, pulled: str, sent: list[httpx.Request]
) -> None:
    sdk.queues.edit(pulled, account_id=account, settings={"delivery_paused": True})
    sent.clear()
    with pytest.raises(ConflictError, match="queue_delivery_paused"):
        sdk.queues.messages.pull(pulled, account_id=account)
    assert len(sent) == 1


def test_unknown_ids_are_not_found(sdk: Cloudflare, account: str, queue: str) -> None:
    with pytest.raises(NotFoundError) as refused:
        sdk.queues.edit(NOBODY, account_id=account, settings={"delivery_delay": 1})
    assert codes(refused.value) == [11000]
    with pytest.raises(NotFoundError) as refused:
        sdk.queues.messages.push(NOBODY, account_id=account, body="x", content_type="text")
    assert codes(refused.value) == [10104]
    with pytest.raises(NotFoundError) as refused:
        sdk.queues.consumers.delete(NOBODY, account_id=account, queue_id=queue)
    assert codes(refused.value) == [11002]
    with pytest.raises(NotFoundError) as refused:
        sdk.queues.subscriptions.delete(NOBODY, account_id=account)
    assert codes(refused.value) == [0]


def test_values_out_of_range_are_bad_requests(sdk: Cloudflare, account: str, queue: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        sdk.queues.create(account_id=account, queue_name="Not A Name")
    assert codes(refused.value) == [11003]
    with pytest.raises(BadRequestError) as refused:
        sdk.queues.edit(queue, account_id=account, settings={"message_retention_period": 59})
    assert codes(refused.value) == [100128]
    with pytest.raises(BadRequestError) as refused:
        sdk.queues.consumers.create(
            queue, account_id=account, type="http_pull", settings={"batch_size": 101}
        )
    assert codes(refused.value) == [100127]
    with pytest.raises(BadRequestError) as refused:
        sdk.queues.messages.push(
            queue, account_id=account, body="x", content_type="text", delay_seconds=0.5
        )
    assert codes(refused.value) == [10203]


def test_message_over_the_size_limit_is_refused(sdk: Cloudflare, account: str, queue: str) -> None:
    verbs = sdk.queues.messages
    verbs.push(queue, account_id=account, body="x" * 128_000, content_type="text")
    with pytest.raises(APIStatusError) as refused:
        verbs.push(queue, account_id=account, body="x" * 128_001, content_type="text")
    assert (refused.value.status_code, codes(refused.value)) == (413, [10204])
    assert some(sdk.queues.get_metrics(queue, account_id=account)).backlog_count == 1


def test_pull_needs_a_pull_consumer(sdk: Cloudflare, account: str, queue: str) -> None:
    with pytest.raises(APIStatusError, match="http_pull mode") as refused:
        sdk.queues.messages.pull(queue, account_id=account)
    assert (refused.value.status_code, codes(refused.value)) == (405, [0])


def test_unknown_token_is_denied(stranger: Cloudflare, account: str) -> None:
    with pytest.raises(PermissionDeniedError, match="Invalid access token") as refused:
        list(stranger.queues.list(account_id=account))
    assert codes(refused.value) == [9109]


def test_account_of_somebody_else_is_denied(sdk: Cloudflare) -> None:
    with pytest.raises(PermissionDeniedError, match="Authentication error") as refused:
        list(sdk.queues.list(account_id=NOBODY))
    assert codes(refused.value) == [10000]
