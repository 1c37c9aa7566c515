"""What is done in Discue, seen in the dialects that pull, and the reverse; as the docs say."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.discue import DiscueClient, discue_http, fail, ok
from tests.conformance.cross.anypoint import Anypoint
from tests.conformance.cross.cloudflare import Cloudflare
from tests.conformance.cross.test_dialects import DOCS, bodies, until
from tests.delivery.receiver import Receiver, status
from tests.faults.account import metrics_of
from tests.server import Server

DAY_S = 86_400


@pytest.fixture(scope="module")
def discue(both: Server) -> Iterator[DiscueClient]:
    with discue_http(both.url) as http:
        yield DiscueClient(http, both.credentials["discue"]["api_key"])


@pytest.fixture(params=["cloudflare", "discue"])
def shared(
    request: pytest.FixtureRequest, cloudflare: Cloudflare, discue: DiscueClient, queue_name: str
) -> str:
    """A queue made through a dialect that pulls, or through Discue, and open to pullers."""
    if request.param == "discue":
        discue.new_queue(queue_name)
    else:
        cloudflare.create(queue_name)
    cloudflare.consume(queue_name)
    return queue_name


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def test_every_row_of_the_table_has_its_section() -> None:
    table = DOCS.read_text().partition("## Discue and the others\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    sections = re.findall(r"^# --- (.+?) -+$", Path(__file__).read_text(), re.MULTILINE)
    assert rows[2:] == sections


# --- organization ----------------------------------------------------------------------------


def test_a_token_of_cloudflare_opens_discue_and_the_reverse(
    both: Server, cloudflare: Cloudflare, discue: DiscueClient, shared: str
) -> None:
    token, key = both.credentials["cloudflare"]["api_token"], both.credentials["discue"]["api_key"]
    as_token = DiscueClient(discue.http, token)
    assert shared in [queue["name"] for queue in as_token.queues()]
    fail(as_token.get("/api_keys"), 403)
    account = both.credentials["cloudflare"]["account_id"]
    with httpx.Client(base_url=both.url, trust_env=False, verify=False) as http:
        path = f"/client/v4/accounts/{account}/queues?name={shared}"
        answer = http.get(path, headers={"Authorization": f"Bearer {key}"})
    assert len(answer.json()["result"]) == 1


# --- queues and ids --------------------------------------------------------------------------


def test_a_queue_of_either_is_listed_in_all(
    cloudflare: Cloudflare, anypoint: Anypoint, discue: DiscueClient, shared: str
) -> None:
    assert shared in cloudflare.queues()
    assert shared in anypoint.queues()
    assert ok(discue.get(f"/queues/{discue.queue_named(shared)}"))["queue"]["name"] == shared


def test_a_name_with_a_slash_is_used_in_all(
    cloudflare: Cloudflare, anypoint: Anypoint, discue: DiscueClient, queue_name: str
) -> None:
    name = f"app.io/{queue_name}_x"
    discue.new_queue(name)
    assert name in cloudflare.queues() and name in anypoint.queues()
    assert cloudflare.attempt("POST", "/queues", {"queue_name": name}) == 400
    cloudflare.consume(name)
    cloudflare.publish(name, "a")
    assert bodies(cloudflare.pull(name)) == ["a"]


def test_a_queue_of_discue_keeps_messages_for_two_weeks(
    cloudflare: Cloudflare, discue: DiscueClient, queue_name: str
) -> None:
    discue.new_queue(queue_name)
    assert cloudflare.queue(queue_name)["settings"]["message_retention_period"] == 14 * DAY_S


# --- bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["plain", "ünï cødé 🚚", '{"not": "parsed"}', "a\nb\tc"])
def test_text_is_the_same_in_all(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str, text: str
) -> None:
    queue = discue.queue_named(shared)
    discue.add(queue, text)
    cloudflare.publish(shared, text)
    assert bodies(cloudflare.pull(shared)) == [text, text]
    assert {discue.message(queue, id)["data"] for id in discue.messages(queue)} == {text}


def test_json_is_its_text_in_discue(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str
) -> None:
    cloudflare.publish(shared, {"b": [1, None]}, kind="json")
    queue = discue.queue_named(shared)
    [id] = discue.messages(queue)
    assert discue.message(queue, id)["data"] == '{"b":[1,null]}'


# --- message ids -----------------------------------------------------------------------------


def test_discue_shows_a_made_id_also_of_a_message_that_has_its_own(
    anypoint: Anypoint, discue: DiscueClient, shared: str
) -> None:
    anypoint.publish(shared, "a", id="my-own-id")
    queue = discue.queue_named(shared)
    [id] = discue.messages(queue)
    assert re.fullmatch(r"[A-Za-z0-9-]{21}", id)
    assert discue.message(queue, id)["data"] == "a"


# --- message names ---------------------------------------------------------------------------


def test_a_name_is_the_property_of_that_name(
    anypoint: Anypoint, discue: DiscueClient, shared: str
) -> None:
    queue = discue.queue_named(shared)
    first = discue.add(queue, "a", name="order-1")
    anypoint.publish(shared, "b", properties={"name": "order-2"})
    [second] = [id for id in discue.messages(queue) if id != first]
    assert discue.message(queue, second)["name"] == "order-2"
    ok(discue.put(f"/queues/{queue}/messages/{second}", {"name": "order-3"}))
    found = {message["body"]: message["properties"]["name"] for message in anypoint.get(shared, 10)}
    assert found == {"a": "order-1", "b": "order-3"}


# --- delivery --------------------------------------------------------------------------------


def test_listeners_and_pullers_take_nothing_from_each_other(
    cloudflare: Cloudflare, anypoint: Anypoint, discue: DiscueClient, shared: str,
    receiver: Receiver,
) -> None:  # fmt: skip
    queue = discue.queue_named(shared)
    discue.new_listener(queue, receiver.url(f"/all/{queue}"))
    discue.add(queue, "from discue")
    cloudflare.publish(shared, "from cloudflare")
    anypoint.publish(shared, "from anypoint")
    wanted = {"from discue", "from cloudflare", "from anypoint"}
    until(lambda: set(receiver.bodies(f"/all/{queue}")) == wanted)
    assert set(bodies(cloudflare.pull(shared))) == wanted


def test_a_message_that_pullers_are_done_with_stays_for_its_listeners(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str
) -> None:
    queue = discue.queue_named(shared)
    listener = discue.new_listener(queue, "https://listener.invalid/", status="disabled")
    id = discue.add(queue, "a")
    [message] = cloudflare.pull(shared)
    cloudflare.ack(shared, message["lease_id"])
    assert cloudflare.metrics(shared)["backlog_count"] == 0
    assert discue.messages(queue) == [id]
    assert discue.message(queue, id)["deliveries"][0]["listener"]["id"] == listener["id"]


# --- state -----------------------------------------------------------------------------------


def test_attempts_of_pullers_and_pushes_are_counted_apart(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str, receiver: Receiver
) -> None:
    queue = discue.queue_named(shared)
    discue.new_listener(queue, receiver.url(f"/counted/{queue}"))
    id = discue.add(queue, "a")
    until(lambda: discue.message(queue, id)["state"] == "delivered")
    [message] = cloudflare.pull(shared)
    assert message["attempts"] == 1
    assert cloudflare.metrics(shared)["backlog_count"] == 1


def test_metrics_tell_what_listeners_took_and_are_owed(
    both: Server, discue: DiscueClient, shared: str, receiver: Receiver
) -> None:
    queue = discue.queue_named(shared)
    discue.new_listener(queue, receiver.url(f"/told/{queue}"), name="takes")
    discue.new_listener(queue, receiver.url("/never"), name="waits", status="disabled")
    id = discue.add(queue, "a")

    def state(name: str) -> str:
        deliveries = discue.message(queue, id)["deliveries"]
        return next(str(d["state"]) for d in deliveries if d["listener"]["name"] == name)

    until(lambda: state("takes") == "acknowledged")
    told = metrics_of(both).splitlines()
    lines = dict(line.rsplit(" ", 1) for line in told if not line.startswith("#"))
    label = f'queue="{shared}",tenant="default"}}'
    assert lines[f'courier_pushes_open{{listener="takes",{label}'] == "0.0"
    assert lines[f'courier_pushes_open{{listener="waits",{label}'] == "1.0"
    assert float(lines['courier_pushes_total{outcome="taken"}']) >= 1
    assert float(lines["courier_pushes_in_flight"]) >= 0


# --- schemas ---------------------------------------------------------------------------------


def test_a_schema_is_obeyed_in_every_dialect(
    cloudflare: Cloudflare, anypoint: Anypoint, discue: DiscueClient, queue_name: str
) -> None:
    queue = discue.new_queue(queue_name, schema={"n": {"type": "number"}})
    path = f"{cloudflare.path(queue_name)}/messages"
    assert cloudflare.attempt("POST", path, {"body": {"n": "one"}, "content_type": "json"}) == 400
    refused = anypoint.attempt(
        "PUT", f"{anypoint.messages_path(queue_name)}/m1", {"body": '{"m": 1}'}
    )
    assert refused.status_code == 400
    assert discue.messages(queue) == []
    cloudflare.publish(queue_name, {"n": 1}, kind="json")
    anypoint.publish(queue_name, '{"n": 2}')
    assert len(discue.messages(queue)) == 2


# --- paused and frozen -----------------------------------------------------------------------


def test_a_paused_queue_pushes_when_it_is_resumed(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str, receiver: Receiver
) -> None:
    queue = discue.queue_named(shared)
    discue.new_listener(queue, receiver.url(f"/paused/{queue}"))
    cloudflare.edit(shared, delivery_paused=True)
    id = discue.add(queue, "a")
    assert discue.message(queue, id)["state"] == "delivering"
    assert receiver.received(f"/paused/{queue}") == []
    cloudflare.edit(shared, delivery_paused=False)
    receiver.wait(f"/paused/{queue}", 1)


def test_nothing_is_added_to_a_frozen_queue(
    discue: DiscueClient, shared: str, operate: Callable[..., Any]
) -> None:
    operate("PUT", f"/queues/{shared}/frozen", {"frozen": True})
    queue = discue.queue_named(shared)
    refused = discue.post(f"/queues/{queue}/messages", {"data": "a"})
    fail(refused, 423)
    assert int(refused.headers["retry-after"]) > 0
    operate("PUT", f"/queues/{shared}/frozen", {"frozen": False})
    discue.add(queue, "a")


# --- exhausted pushes ------------------------------------------------------------------------


def test_an_exhausted_push_is_copied_to_the_dead_letters(
    cloudflare: Cloudflare, discue: DiscueClient, queue_name: str, receiver: Receiver
) -> None:
    cloudflare.create(queue_name)
    cloudflare.consume(queue_name, dead_letter=f"{queue_name}-dead")
    cloudflare.consume(f"{queue_name}-dead")
    queue = discue.queue_named(queue_name)
    receiver.on(f"/refuses/{queue}", status(500))
    discue.new_listener(queue, receiver.url(f"/refuses/{queue}"), max_attempts=1)
    id = discue.add(queue, "a")
    until(lambda: discue.message(queue, id)["state"] == "failed")
    assert bodies(cloudflare.pull(f"{queue_name}-dead")) == ["a"]


# --- deletion and purge ----------------------------------------------------------------------


def test_a_purge_ends_pushes_and_a_deletion_ends_leases(
    cloudflare: Cloudflare, discue: DiscueClient, shared: str
) -> None:
    queue = discue.queue_named(shared)
    listener = discue.new_listener(queue, "https://listener.invalid/", status="disabled")
    discue.add(queue, "a")
    cloudflare.purge(shared)
    until(lambda: discue.messages(queue) == [])
    id = discue.add(queue, "b")
    [message] = cloudflare.pull(shared)
    ok(discue.delete(f"/queues/{queue}/messages/{id}"))
    assert cloudflare.ack(shared, message["lease_id"]) == 0
    read = ok(discue.get(f"/queues/{queue}/listeners/{listener['id']}"))["listener"]
    assert read["messages"]["missed_count"] == 0
