"""What is done in one dialect, seen in the other; section by section the table of the docs."""

import base64
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.conformance.cross.anypoint import Anypoint
from tests.conformance.cross.cloudflare import Cloudflare
from tests.server import Server

DOCS = Path(__file__).parents[3] / "docs" / "protocol" / "dialects.md"
DAY_S = 86_400
WAIT_S_MAX = 10.0
TEXTS = ["plain", "", " ", "ünï\u2028cødé 🚚", '{"not": "parsed"}', "line\nfeed\ttab\x01\x7f"]

T = TypeVar("T")


def until(ask: Callable[[], T]) -> T:
    """Ask until the answer is something, for a bounded time."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (answer := ask()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return answer


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_every_row_of_the_table_has_its_section() -> None:
    table = DOCS.read_text().partition("## The table\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    sections = re.findall(r"^# --- (.+?) -+$", Path(__file__).read_text(), re.MULTILINE)
    assert rows[2:] == sections


# --- tenant ----------------------------------------------------------------------------------


def test_an_environment_is_the_account_under_another_spelling(both: Server) -> None:
    account = both.credentials["cloudflare"]["account_id"]
    environment = both.credentials["anypoint"]["environment_id"]
    assert environment.replace("-", "") == account


def test_a_token_of_one_dialect_opens_nothing_in_the_other(
    both: Server, cloudflare: Cloudflare, anypoint: Anypoint
) -> None:
    known = both.credentials
    session = anypoint._http.headers["Authorization"]
    account = f"/client/v4/accounts/{known['cloudflare']['account_id']}/queues"
    with httpx.Client(base_url=both.url, trust_env=False, verify=False) as http:
        refused = http.get(account, headers={"Authorization": session})
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, 9109)
        api_token = {"Authorization": f"Bearer {known['cloudflare']['api_token']}"}
        assert http.get("/accounts/api/me", headers=api_token).status_code == 401


# --- queue -----------------------------------------------------------------------------------


def test_a_queue_of_either_dialect_is_listed_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    assert either in cloudflare.queues()
    assert either in anypoint.queues()


def test_a_name_is_taken_in_both_dialects(cloudflare: Cloudflare, either: str) -> None:
    assert cloudflare.attempt("POST", "/queues", {"queue_name": either}) == 409


def test_a_name_that_cloudflare_would_not_give_is_listed_and_used_there(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    name = f"Orders.{queue_name}-{'x' * 80}"
    anypoint.create(name)
    assert cloudflare.attempt("POST", "/queues", {"queue_name": name}) == 400
    assert name in cloudflare.queues()
    cloudflare.consume(name)
    cloudflare.publish(name, "a")
    assert bodies(cloudflare.pull(name)) == ["a"]


def test_such_a_name_may_be_a_dead_letter_queue_of_cloudflare(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.create(f"{queue_name}.Dead")
    cloudflare.create(queue_name)
    cloudflare.consume(queue_name, dead_letter=f"{queue_name}.Dead")
    assert anypoint.queue(queue_name)["deadLetterQueueId"] == f"{queue_name}.Dead"


def test_a_queue_that_is_renamed_has_its_new_name_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    cloudflare.publish(either, "a")
    cloudflare.call("PATCH", cloudflare.path(either), {"queue_name": f"{either}-new"})
    assert either not in anypoint.queues()
    assert bodies(anypoint.get(f"{either}-new")) == ["a"]


# --- region ----------------------------------------------------------------------------------


def test_cloudflare_sees_every_region_and_creates_in_the_servers_own(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    europe = anypoint.elsewhere("eu-west-1")
    europe.create(queue_name)
    assert queue_name not in anypoint.queues()
    assert f"{queue_name}@eu-west-1" in cloudflare.queues()
    assert queue_name not in cloudflare.queues()
    cloudflare.create(queue_name)
    assert queue_name in anypoint.queues()


def test_a_dead_letter_queue_of_another_region_is_shown_without_it(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.elsewhere("eu-west-1").create(f"{queue_name}-dead")
    cloudflare.create(queue_name)
    cloudflare.consume(queue_name, dead_letter=f"{queue_name}-dead@eu-west-1")
    assert anypoint.queue(queue_name)["deadLetterQueueId"] == f"{queue_name}-dead"


# --- consumer --------------------------------------------------------------------------------


def test_cloudflare_pulls_only_where_there_is_a_consumer_anypoint_everywhere(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.create(queue_name)
    anypoint.publish(queue_name, "a")
    pull = f"{cloudflare.path(queue_name)}/messages/pull"
    assert cloudflare.attempt("POST", pull, {}) == 405
    assert bodies(anypoint.get(queue_name)) == ["a"]


def test_a_new_consumer_replaces_lease_attempts_and_dead_letters(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.create(f"{queue_name}-dead")
    anypoint.create(queue_name, deadLetterQueueId=f"{queue_name}-dead", maxDeliveries=7)
    cloudflare.consume(queue_name)
    seen = anypoint.queue(queue_name)
    assert seen["defaultLockTtl"] == 30_000
    assert "deadLetterQueueId" not in seen
    assert cloudflare.consumer(queue_name)["settings"]["max_retries"] == 3


def test_a_deleted_consumer_leaves_the_defaults_behind(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, defaultLockTtl=1_000, deadLetterQueueId=f"{queue}-dead")
    consumer = cloudflare.consumer(queue)["consumer_id"]
    cloudflare.call("DELETE", f"{cloudflare.path(queue)}/consumers/{consumer}")
    seen = anypoint.queue(queue)
    assert (seen["defaultLockTtl"], "deadLetterQueueId" in seen) == (30_000, False)


def test_settings_put_by_anypoint_leave_the_consumer_and_replace_its_rules(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    anypoint.create(either)
    consumer = cloudflare.consumer(either)
    assert consumer["settings"]["visibility_timeout_ms"] == 120_000
    retention = cloudflare.queue(either)["settings"]["message_retention_period"]
    assert retention == 7 * DAY_S


# --- text body -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_text_published_in_either_dialect_arrives_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, text: str
) -> None:
    cloudflare.publish(queue, text)
    anypoint.publish(queue, text)
    first, second = anypoint.get(queue)
    assert (first["body"], first["properties"]) == (text, {})
    assert (second["body"], second["properties"]) == (text, {})
    assert anypoint.nack(queue, first, second) == 2
    pulled = cloudflare.pull(queue)
    assert bodies(pulled) == [text, text]
    assert {each["metadata"]["CF-Content-Type"] for each in pulled} == {"text"}


# --- JSON body -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{"a": [1, 2.50, None]}, [], "text", "", 7, True, None])
def test_json_arrives_as_compact_text_that_says_what_it_is(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, value: Any
) -> None:
    cloudflare.publish(queue, value, kind="json")
    [message] = anypoint.get(queue)
    assert message["body"] == json.dumps(value, separators=(",", ":"))
    assert message["properties"] == {"contentType": "application/json"}
    anypoint.nack(queue, message)
    [pulled] = cloudflare.pull(queue)
    assert pulled["body"] == message["body"]
    assert pulled["metadata"]["CF-Content-Type"] == "json"


def test_what_anypoint_calls_json_is_text_to_cloudflare(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.publish(queue, '{"a": 1}', properties={"contentType": "application/json"})
    [pulled] = cloudflare.pull(queue)
    assert pulled["body"] == '{"a": 1}'
    assert pulled["metadata"]["CF-Content-Type"] == "text"


# --- empty body ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["", None])
def test_a_message_without_a_body_has_an_empty_one(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, body: str | None
) -> None:
    anypoint.publish(queue, body)
    [pulled] = cloudflare.pull(queue)
    assert pulled["body"] == ""
    cloudflare.retry(queue, pulled["lease_id"])
    [message] = anypoint.get(queue)
    assert message["body"] == ""


# --- large body ------------------------------------------------------------------------------


def test_a_body_larger_than_cloudflare_takes_is_handed_out_there(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    text = "é\n" * 3_495_253  # all but a byte of 10 MiB
    anypoint.publish(queue, text)
    [pulled] = cloudflare.pull(queue)
    assert pulled["body"] == text
    assert cloudflare.metrics(queue)["backlog_bytes"] == len(text.encode())
    refused = {"body": text, "content_type": "text"}
    assert cloudflare.attempt("POST", f"{cloudflare.path(queue)}/messages", refused) == 413


# --- headers and properties ------------------------------------------------------------------


def test_headers_and_properties_outlast_a_delivery_to_cloudflare(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    headers = {"trace": "ü-1", "deep": {"er": [1]}}
    properties = {"text": "a", "number": 1.5, "yes": True, "contentType": "text/plain"}
    anypoint.publish(queue, "a", headers=headers, properties=properties)
    [pulled] = cloudflare.pull(queue)
    assert pulled["metadata"] == {"CF-Content-Type": "text", "CF-sourceMessageSource": "http"}
    cloudflare.retry(queue, pulled["lease_id"])
    [message] = anypoint.get(queue)
    assert message["properties"] == properties
    assert {name: message["headers"][name] for name in headers} == headers


# --- message id ------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["order-1", "a/b ?ü", "x" * 256])
def test_an_id_given_in_anypoint_is_the_id_in_cloudflare(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, id: str
) -> None:
    path = f"{anypoint.messages_path(queue)}"
    anypoint.call("PUT", path, [{"headers": {"messageId": id}, "body": "a"}])
    [pulled] = cloudflare.pull(queue)
    assert pulled["id"] == id


def test_an_id_made_for_cloudflare_is_the_id_in_anypoint(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    [peeked] = cloudflare.peek(queue)
    [message] = anypoint.get(queue)
    assert message["headers"]["messageId"] == peeked["id"]
    path = f"{anypoint.messages_path(queue)}/{peeked['id']}"
    anypoint.call("DELETE", path, {"lockId": message["headers"]["lockId"]})
    assert cloudflare.metrics(queue)["backlog_count"] == 0


# --- time of publication ---------------------------------------------------------------------


def test_the_time_of_publication_is_the_same_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    [peeked] = cloudflare.peek(queue)
    [message] = anypoint.get(queue)
    created = parsedate_to_datetime(message["headers"]["created"]).timestamp()
    assert created == peeked["timestamp_ms"] // 1_000


# --- retention -------------------------------------------------------------------------------


def test_retention_is_the_same_setting_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    cloudflare.edit(either, message_retention_period=7_200)
    assert anypoint.queue(either)["defaultTtl"] == 7_200_000
    anypoint.edit(either, defaultTtl=3_600_000)
    assert cloudflare.queue(either)["settings"]["message_retention_period"] == 3_600
    cloudflare.publish(either, "a")
    [message] = anypoint.get(either)
    assert message["headers"]["ttl"] == "3600000"


def test_each_dialect_has_a_default_of_its_own(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    cloudflare.create(f"{queue_name}-c")
    anypoint.create(f"{queue_name}-a")
    assert anypoint.queue(f"{queue_name}-c")["defaultTtl"] == 4 * DAY_S * 1_000
    retention = cloudflare.queue(f"{queue_name}-a")["settings"]["message_retention_period"]
    assert retention == 7 * DAY_S


def test_cloudflare_shows_whole_seconds(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.edit(queue, defaultTtl=60_999, defaultDeliveryDelay=1_999)
    settings = cloudflare.queue(queue)["settings"]
    assert settings["message_retention_period"] == 60
    assert settings["delivery_delay"] == 1


def test_a_message_with_a_life_of_its_own_ends_for_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.publish(queue, "a", headers={"ttl": 1_000})
    assert len(cloudflare.peek(queue)) == 1
    until(lambda: cloudflare.metrics(queue)["backlog_count"] == 0)
    assert cloudflare.pull(queue) == []


# --- delay -----------------------------------------------------------------------------------


def test_the_queues_delay_is_the_same_setting_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    cloudflare.edit(either, delivery_delay=60)
    assert anypoint.queue(either)["defaultDeliveryDelay"] == 60_000
    anypoint.edit(either, defaultDeliveryDelay=1_000)
    assert cloudflare.queue(either)["settings"]["delivery_delay"] == 1
    anypoint.publish(either, "a")
    assert cloudflare.pull(either) == []
    assert bodies(until(lambda: cloudflare.pull(either))) == ["a"]


def test_a_delay_longer_than_anypoint_would_take_is_shown_there(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.edit(queue, delivery_delay=DAY_S)
    assert anypoint.queue(queue)["defaultDeliveryDelay"] == DAY_S * 1_000


def test_a_messages_delay_holds_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "from cloudflare", delay_seconds=1)
    anypoint.publish(queue, "from anypoint", headers={"deliveryDelay": 900_000})
    assert (anypoint.get(queue), cloudflare.pull(queue)) == ([], [])
    assert cloudflare.metrics(queue)["backlog_count"] == 2
    [message] = anypoint.get(queue, wait_ms=20_000)
    assert message["body"] == "from cloudflare"
    assert message["headers"]["deliveryDelay"] == "1000"


# --- lease -----------------------------------------------------------------------------------


def test_the_lease_is_the_same_setting_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.edit(queue, defaultLockTtl=45_000)
    assert cloudflare.consumer(queue)["settings"]["visibility_timeout_ms"] == 45_000


def test_a_message_leased_in_one_dialect_is_hidden_in_the_other(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    cloudflare.publish(queue, "b")
    assert bodies(cloudflare.pull(queue, 1)) == ["a"]
    assert bodies(anypoint.get(queue)) == ["b"]
    assert (anypoint.get(queue), cloudflare.pull(queue)) == ([], [])


def test_a_message_acked_in_one_dialect_is_gone_in_the_other(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.publish(queue, "a")
    cloudflare.publish(queue, "b")
    [pulled] = cloudflare.pull(queue, 1)
    assert cloudflare.ack(queue, pulled["lease_id"]) == 1
    [message] = anypoint.get(queue)
    assert message["body"] == "b"
    assert anypoint.ack(queue, message) == 1
    assert anypoint.numbers(queue) == {"messages": 0, "inflightMessages": 0}
    assert cloudflare.metrics(queue)["backlog_count"] == 0


def test_a_lease_is_settled_in_the_dialect_that_took_it(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    [message] = anypoint.get(queue)
    assert cloudflare.ack(queue, message["headers"]["lockId"]) == 0
    assert anypoint.nack(queue, message) == 1
    [pulled] = cloudflare.pull(queue)
    as_lock = {"headers": {"messageId": pulled["id"], "lockId": pulled["lease_id"]}}
    assert anypoint.ack(queue, as_lock) == 0
    assert anypoint.extend(queue, as_lock, ttl_s=60) == 0
    assert cloudflare.ack(queue, pulled["lease_id"]) == 1


def test_a_late_ack_of_cloudflare_ends_a_lock_of_anypoint(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    [pulled] = cloudflare.pull(queue, lease_ms=0)
    [message] = until(lambda: anypoint.get(queue))
    assert cloudflare.ack(queue, pulled["lease_id"]) == 1
    assert anypoint.ack(queue, message) == 0


def test_a_late_ack_of_anypoint_leaves_a_lease_of_cloudflare_alone(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.publish(queue, "a")
    [message] = anypoint.get(queue, lockTtl=0)
    [pulled] = until(lambda: cloudflare.pull(queue))
    assert anypoint.ack(queue, message) == 0
    assert cloudflare.ack(queue, pulled["lease_id"]) == 1


# --- attempts --------------------------------------------------------------------------------


def test_attempts_are_counted_over_both_dialects(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    cloudflare.publish(either, "a")
    [message] = anypoint.get(either)
    assert message["headers"]["deliveryCount"] == "1"
    anypoint.nack(either, message)
    [pulled] = cloudflare.pull(either)
    assert pulled["attempts"] == 2
    cloudflare.retry(either, pulled["lease_id"])
    [message] = anypoint.get(either)
    assert message["headers"]["deliveryCount"] == "3"


def test_the_wait_after_a_retry_holds_for_anypoint_and_a_nack_has_none(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    cloudflare.create(queue_name)
    cloudflare.consume(queue_name, retry_delay=1)
    cloudflare.publish(queue_name, "a")
    [message] = anypoint.get(queue_name)
    anypoint.nack(queue_name, message)
    [pulled] = cloudflare.pull(queue_name)
    cloudflare.retry(queue_name, pulled["lease_id"])
    assert anypoint.get(queue_name) == []
    assert bodies(anypoint.get(queue_name, wait_ms=20_000)) == ["a"]


def test_without_dead_letters_anypoint_tries_for_ever_and_cloudflare_shows_its_most(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(queue)  # replaces the settings
    assert cloudflare.consumer(queue)["settings"]["max_retries"] == 100
    anypoint.publish(queue, "a")
    for attempt in range(1, 15):
        [message] = anypoint.get(queue)
        assert message["headers"]["deliveryCount"] == str(attempt)
        anypoint.nack(queue, message)


def test_more_attempts_than_cloudflare_would_allow_are_shown_there(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, deadLetterQueueId=f"{queue}-dead", maxDeliveries=1_000)
    consumer = cloudflare.consumer(queue)
    assert consumer["settings"]["max_retries"] == 999
    path = f"{cloudflare.path(queue)}/consumers/{consumer['consumer_id']}"
    body = {"type": "http_pull", "settings": consumer["settings"]}
    assert cloudflare.attempt("PUT", path, body) == 400


# --- dead letters ----------------------------------------------------------------------------


def test_dead_letters_are_the_same_setting_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, deadLetterQueueId=f"{queue}-dead", maxDeliveries=5)
    consumer = cloudflare.consumer(queue)
    assert consumer["dead_letter_queue"] == f"{queue}-dead"
    assert consumer["settings"]["max_retries"] == 4
    path = f"{cloudflare.path(queue)}/consumers/{consumer['consumer_id']}"
    body = {"type": "http_pull", "dead_letter_queue": f"{queue}-more"}
    cloudflare.call("PUT", path, {**body, "settings": {"max_retries": 0}})
    seen = anypoint.queue(queue)
    assert (seen["deadLetterQueueId"], seen["maxDeliveries"]) == (f"{queue}-more", 1)
    assert anypoint.queue(f"{queue}-more")["deadLetterSources"] == [queue]


def test_attempts_of_both_dialects_bury_a_message_that_keeps_its_id(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, deadLetterQueueId=f"{queue}-dead", maxDeliveries=2)
    anypoint.publish(queue, "a", id="poison", headers={"h": 1}, properties={"p": True})
    [message] = anypoint.get(queue)
    anypoint.nack(queue, message)
    [pulled] = cloudflare.pull(queue)
    cloudflare.retry(queue, pulled["lease_id"])
    assert cloudflare.metrics(queue)["backlog_count"] == 0
    [dead] = anypoint.get(f"{queue}-dead")
    assert (dead["headers"]["messageId"], dead["headers"]["deliveryCount"]) == ("poison", "1")
    assert (dead["headers"]["h"], dead["properties"], dead["body"]) == (1, {"p": True}, "a")


def test_dead_letters_of_anypoint_are_redriven_by_the_operator(
    anypoint: Anypoint, queue: str, operate: Callable[..., Any]
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, deadLetterQueueId=f"{queue}-dead", maxDeliveries=1)
    anypoint.publish(queue, "a", id="poison", properties={"p": 1})
    anypoint.nack(queue, *anypoint.get(queue))
    assert operate("POST", f"/queues/{queue}-dead/redrive")["redriven"] == 1
    [message] = anypoint.get(queue)
    assert (message["headers"]["messageId"], message["properties"]) == ("poison", {"p": 1})


# --- FIFO ------------------------------------------------------------------------------------


def group(name: str) -> dict[str, str]:
    return {"messageGroupId": name}


def test_pullers_of_cloudflare_get_a_group_in_order_and_wait_for_it(
    cloudflare: Cloudflare, anypoint: Anypoint, fifo: str
) -> None:
    for number in range(4):
        anypoint.publish(fifo, f"a{number}", headers=group("a"))
        anypoint.publish(fifo, f"b{number}", headers=group("b"))
    first, second = cloudflare.pull(fifo, 2)
    assert bodies([first, second]) == ["a0", "a1"]
    assert bodies(cloudflare.pull(fifo)) == ["b0", "b1", "b2", "b3"]
    assert (cloudflare.pull(fifo), anypoint.get(fifo)) == ([], [])
    cloudflare.ack(fifo, second["lease_id"])
    cloudflare.retry(fifo, first["lease_id"])
    assert bodies(anypoint.get(fifo)) == ["a0", "a2", "a3"]


def test_what_cloudflare_publishes_is_in_the_common_group(
    cloudflare: Cloudflare, anypoint: Anypoint, fifo: str
) -> None:
    anypoint.publish(fifo, "0")
    for number in (1, 2):
        cloudflare.publish(fifo, f"{number}")
    [first] = anypoint.get(fifo, 1)
    assert first["headers"]["messageGroupId"] == "default"
    assert cloudflare.pull(fifo) == []
    anypoint.ack(fifo, first)
    assert bodies(cloudflare.pull(fifo)) == ["1", "2"]


def test_a_dead_letter_queue_that_cloudflare_makes_for_a_fifo_queue_is_one(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.create(queue_name, fifo=True)
    cloudflare.consume(queue_name, dead_letter=f"{queue_name}-dead")
    assert anypoint.queue(f"{queue_name}-dead")["fifo"] is True


def test_a_fifo_queue_has_no_standard_dead_letter_queue(
    cloudflare: Cloudflare, anypoint: Anypoint, queue_name: str
) -> None:
    anypoint.create(queue_name, fifo=True)
    cloudflare.create(f"{queue_name}-dead")
    body = {"type": "http_pull", "dead_letter_queue": f"{queue_name}-dead"}
    assert cloudflare.attempt("POST", f"{cloudflare.path(queue_name)}/consumers", body) == 400


# --- de-duplication --------------------------------------------------------------------------


def test_anypoint_drops_repeated_ids_on_fifo_queues_only(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-fifo", fifo=True)
    for name in (queue, f"{queue}-fifo"):
        for body in ("first", "second"):
            anypoint.publish(name, body, id="same")
    cloudflare.consume(f"{queue}-fifo")
    assert bodies(cloudflare.pull(queue)) == ["first", "second"]
    assert bodies(cloudflare.pull(f"{queue}-fifo")) == ["first"]


def test_a_repeated_key_of_cloudflare_is_dropped_on_any_queue(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    path = f"{cloudflare.path(queue)}/messages"
    key = {"Idempotency-Key": "same"}
    for body in ("first", "second"):
        message = {"body": body, "content_type": "text"}
        assert cloudflare._http.post(path, json=message, headers=key).status_code == 200
    anypoint.publish(queue, "third", id="same")
    assert bodies(anypoint.get(queue)) == ["first", "third"]


# --- paused ----------------------------------------------------------------------------------


def test_a_paused_queue_takes_messages_and_hands_out_none(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.publish(queue, "a")
    [message] = anypoint.get(queue)
    cloudflare.edit(queue, delivery_paused=True)
    anypoint.publish(queue, "b")
    assert anypoint.get(queue) == []
    assert cloudflare.attempt("POST", f"{cloudflare.path(queue)}/messages/pull", {}) == 409
    assert anypoint.ack(queue, message) == 1
    cloudflare.edit(queue, delivery_paused=False)
    assert bodies(anypoint.get(queue)) == ["b"]


def test_settings_put_by_anypoint_leave_a_queue_paused(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    cloudflare.edit(queue, delivery_paused=True)
    anypoint.create(queue)
    assert cloudflare.queue(queue)["settings"]["delivery_paused"] is True


# --- frozen ----------------------------------------------------------------------------------


def test_a_frozen_queue_refuses_messages_and_hands_out_what_it_has(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, operate: Callable[..., Any]
) -> None:
    anypoint.publish(queue, "a")
    operate("PUT", f"/queues/{queue}/frozen", {"frozen": True})
    refused = anypoint.attempt("PUT", f"{anypoint.messages_path(queue)}/b", {"body": "b"})
    assert refused.status_code == 503
    message = {"body": "b", "content_type": "text"}
    assert cloudflare.attempt("POST", f"{cloudflare.path(queue)}/messages", message) == 429
    assert bodies(anypoint.get(queue)) == ["a"]


# --- encrypted -------------------------------------------------------------------------------


def test_an_encrypted_queue_reads_the_same_in_both(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.edit(queue, encrypted=True)
    cloudflare.publish(queue, {"secret": "ü"}, kind="json")
    anypoint.publish(queue, "secret ü", properties={"p": "clear"})
    assert bodies(cloudflare.pull(queue)) == ['{"secret":"ü"}', "secret ü"]


def test_what_cloudflare_publishes_to_an_encrypted_queue_is_nowhere_on_the_disk(
    both: Server, cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.edit(queue, encrypted=True)
    secret, clear = f"secret-of-{queue}", f"clear-of-{queue}"
    cloudflare.publish(queue, secret)
    anypoint.publish(queue, secret, properties={"p": clear})
    kept = b"".join(file.read_bytes() for file in both.data.glob("courier.db*"))
    assert secret.encode() not in kept
    assert clear.encode() in kept


def test_the_journal_tells_of_a_sealed_body_without_telling_it(
    both: Server, cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.edit(queue, encrypted=True)
    cloudflare.publish(queue, "secret")
    with both.operator("") as http:
        last = http.get("/journal/head").json()["last"]
        after, lines = max(0, last - 1_000), []
        while after < last:  # neighbours' large bodies make several pages of it
            answer = http.get("/journal", params={"after": after, "queues": queue})
            assert answer.status_code == 200, answer.text
            lines += answer.content.splitlines()
            after = int(answer.headers["x-courier-upto"])
    [event] = [each for each in map(json.loads, lines) if "seq" in each]
    assert (event["kind"], event["content_type"], "body" in event) == ("published", "text", False)
    assert re.fullmatch(r"[0-9a-f]{16}\.2", event["sealed"])
    assert b"secret" not in base64.b64decode(event["body_base64"])


# --- exchange --------------------------------------------------------------------------------


def test_what_an_exchange_copies_is_pulled_through_cloudflare(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.bind(f"{queue}-all", queue)
    anypoint.publish(f"{queue}-all", "a", id="one")
    [pulled] = cloudflare.pull(queue)
    assert (pulled["id"], pulled["body"]) == ("one", "a")


def test_an_exchange_is_no_queue_to_cloudflare_but_its_name_is_taken(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.bind(f"{queue}-all", queue)
    assert f"{queue}-all" not in cloudflare.queues()
    assert cloudflare.attempt("POST", "/queues", {"queue_name": f"{queue}-all"}) == 409


def test_a_queue_that_cloudflare_deletes_is_unbound(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.bind(f"{queue}-all", queue)
    assert anypoint.bindings(f"{queue}-all") == [queue]
    cloudflare.delete(queue)
    assert anypoint.bindings(f"{queue}-all") == []


# --- purge and deletion ----------------------------------------------------------------------


@pytest.mark.parametrize("purger", ["cloudflare", "anypoint"])
def test_a_purge_in_one_dialect_takes_what_the_other_has_leased(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str, purger: str
) -> None:
    for body in "abc":
        cloudflare.publish(queue, body)
    [message] = anypoint.get(queue, 1)
    [pulled] = cloudflare.pull(queue, 1)
    (cloudflare if purger == "cloudflare" else anypoint).purge(queue)
    assert anypoint.numbers(queue) == {"messages": 0, "inflightMessages": 0}
    assert (anypoint.ack(queue, message), cloudflare.ack(queue, pulled["lease_id"])) == (0, 0)


def test_a_queue_deleted_in_one_dialect_is_gone_in_the_other(
    cloudflare: Cloudflare, anypoint: Anypoint, either: str
) -> None:
    path = cloudflare.path(either)
    anypoint.delete(either)
    assert cloudflare.attempt("GET", path) == 404
    cloudflare.create(either)
    cloudflare.delete(either)
    assert anypoint.attempt("GET", anypoint.queue_path(either)).status_code == 404


def test_only_anypoint_deletes_a_queue_that_others_bury_in(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.create(f"{queue}-dead")
    anypoint.edit(queue, deadLetterQueueId=f"{queue}-dead")
    assert cloudflare.attempt("DELETE", cloudflare.path(f"{queue}-dead")) == 400
    anypoint.delete(f"{queue}-dead")
    assert cloudflare.consumer(queue)["dead_letter_queue"] == ""


# --- waiting for messages --------------------------------------------------------------------


def waiting_get(pool: ThreadPoolExecutor, anypoint: Anypoint, queue: str) -> Any:
    """A GET that waits for a message; returns once the server has begun with it."""
    path, before = anypoint.messages_path(queue), anypoint.use()["apiRequestCount"]
    waiting = pool.submit(lambda: anypoint.attempt("GET", path, pollingTime=20_000))
    until(lambda: anypoint.use()["apiRequestCount"] > before)
    return waiting


def test_a_message_of_cloudflare_wakes_who_waits_in_anypoint(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = waiting_get(pool, anypoint, queue)
        began = time.monotonic()
        cloudflare.publish(queue, "a")
        assert bodies(waiting.result().json()) == ["a"]
        assert time.monotonic() - began < WAIT_S_MAX


def test_a_queue_that_cloudflare_deletes_or_resumes_wakes_who_waits_in_anypoint(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    anypoint.publish(queue, "a")
    cloudflare.edit(queue, delivery_paused=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = waiting_get(pool, anypoint, queue)
        began = time.monotonic()
        cloudflare.edit(queue, delivery_paused=False)
        assert bodies(waiting.result().json()) == ["a"]
        waiting = waiting_get(pool, anypoint, queue)
        cloudflare.delete(queue)
        assert waiting.result().status_code == 404
        assert time.monotonic() - began < WAIT_S_MAX


# --- statistics ------------------------------------------------------------------------------


def test_the_backlog_of_cloudflare_is_what_anypoint_counts_apart(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    for body in ("a", "bb", "ccc"):
        cloudflare.publish(queue, body)
    anypoint.publish(queue, "dddd", headers={"deliveryDelay": 900_000})
    anypoint.get(queue, 1)
    cloudflare.pull(queue, 1)
    metrics = cloudflare.metrics(queue)
    assert (metrics["backlog_count"], metrics["backlog_bytes"]) == (4, 10)
    assert anypoint.numbers(queue) == {"messages": 2, "inflightMessages": 2}


def test_what_happens_in_cloudflare_is_in_the_statistics_of_anypoint(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    for body in "abc":
        cloudflare.publish(queue, body)
    first, _ = cloudflare.pull(queue, 2)
    cloudflare.ack(queue, first["lease_id"])
    assert anypoint.sums(queue) == {
        "messages": 1,
        "inflightMessages": 1,
        "messagesVisible": 1,
        "messagesSent": 3,
        "messagesReceived": 2,
        "messagesAcked": 1,
    }


def test_messages_of_cloudflare_are_use_of_the_environment_its_requests_are_not(
    cloudflare: Cloudflare, anypoint: Anypoint, queue: str
) -> None:
    before = anypoint.use()
    cloudflare.publish(queue, "x" * 100_000)
    cloudflare.pull(queue)
    after = anypoint.use()
    assert {name: after[name] - before[name] for name in after} == {
        "apiRequestCount": 0,
        "messageReceiptCount": 1,
        "billableUnitCount": 1,
        "messageByteCount": 200_000,
    }
