"""What is kept of every delivery, and what is told about it."""

import json

from tests.clients.discue import ok
from tests.delivery import receiver as answers
from tests.delivery.listeners.organization import Organization
from tests.delivery.receiver import Receiver
from tests.faults.connection import Connection

PAGE = 10_000


def test_of_two_listeners_the_failing_one_misses_the_message_until_it_recovers(
    organization: Organization, receiver: Receiver
) -> None:
    queue = organization.queue()
    receiver.on("/bad", answers.status(500), answers.status(503), answers.hang, answers.OK)
    bad, good = queue.listen("/bad", timeout_ms=1_000), queue.listen("/good")
    message = queue.add("hello")
    good.wait(message, "acknowledged", attempts=1)
    receiver.wait("/bad", 3)
    assert bad.get()["messages"]["missed"] == [message]
    assert good.get()["messages"]["missed"] == []
    assert queue.message(message)["state"] == "delivering"
    bad.wait(message, "acknowledged", attempts=4)
    told = bad.get()["messages"]
    assert (told["missed"], told["missed_count"], told["acknowledged_count"]) == ([], 0, 1)
    assert told["last_success_at"] >= told["last_failure_at"] > 0
    assert queue.message(message)["state"] == "delivered"
    failed = organization.events(queue, "message_published_not_ok")
    assert [(each["attempt"], each["status"] or 0) for each in failed] == [
        (1, 500),
        (2, 503),
        (3, 0),
    ]
    assert {each["listener"]["id"] for each in failed} == {bad.id}
    assert {each["message"]["id"] for each in failed} == {message}
    sent = organization.events(queue, "message_published_ok")
    assert {(each["listener"]["id"], each["attempt"]) for each in sent} == {
        (bad.id, 4),
        (good.id, 1),
    }


def test_the_journal_has_every_attempt_and_no_secret(
    organization: Organization, receiver: Receiver
) -> None:
    queue = organization.queue()
    receiver.on("/hook", answers.status(500, b"answer-of-the-listener"), answers.OK)
    secrets = ["header-secret-1", "bearer-secret-2"]
    listener = queue.listen(
        "/hook",
        headers={"X-Secret": secrets[0]},
        auth={"type": "bearer", "token": secrets[1]},
    )
    secrets += [listener.secret, listener.rotate()]
    message = queue.add("hello")
    listener.wait(message, "acknowledged", attempts=2)
    listener.put(headers={"X-Secret": "header-secret-3"})
    secrets.append("header-secret-3")
    listener.delete()
    connection = Connection(organization.server)
    head = connection.journal_last()
    events = connection.journal(after=max(0, head - PAGE), limit=PAGE)
    connection.close()
    attempts = [
        (event["kind"], event["attempt"], event["detail"]["status"])
        for event in events
        if event["queue_name"] == queue.name and event["kind"] in ("pushed", "push_failed")
    ]
    assert attempts == [("push_failed", 1, 500), ("pushed", 2, 200)]
    told = json.dumps(events) + organization.server.log()
    for secret in secrets:
        assert secret not in told
        assert secret.removeprefix("whsec_") not in told


def test_all_that_failed_is_retried_in_one_call_and_every_attempt_is_listed(
    organization: Organization, receiver: Receiver
) -> None:
    queue = organization.queue()
    receiver.on("/bad", answers.status(500))
    bad, other = queue.listen("/bad", max_attempts=1), queue.listen("/bad", max_attempts=1)
    messages = [queue.add(f"m{number}") for number in range(3)]
    for message in messages:
        bad.wait(message, "exhausted", attempts=1)
        other.wait(message, "exhausted", attempts=1)
    receiver.on("/bad", answers.OK)
    done = ok(organization.client.post(f"{bad.path}/retry_failed"))
    assert done["retried"] == {"retried": 3, "more": False}
    for message in messages:
        bad.wait(message, "acknowledged", attempts=2)
    assert bad.get()["messages"]["missed"] == []
    assert sorted(other.get()["messages"]["missed"]) == sorted(messages)
    log = ok(organization.client.get(f"{bad.path}/attempts"))["attempts"]
    assert [each["ok"] for each in log] == [True] * 3 + [False] * 3
    assert {each["message_id"] for each in log} == set(messages)
    assert {each["listener"]["name"] for each in log} == {bad.name}
    assert [each["status"] for each in log] == [200] * 3 + [500] * 3
    path = f"{queue.path}/messages/{messages[0]}/attempts"
    of_message = ok(organization.client.get(path))["attempts"]
    assert {(each["listener"]["id"], each["attempt"]) for each in of_message} == {
        (bad.id, 2),
        (bad.id, 1),
        (other.id, 1),
    }
    seen: list[str] = []
    while path:
        page = ok(organization.client.get(f"{path}{'&' if '?' in path else '?'}limit=1"))
        seen += [each["delivery_id"] for each in page["attempts"]]
        path = page["_links"].get("next", {}).get("href", "").partition("/v1")[2]
    assert seen == [each["delivery_id"] for each in of_message]
