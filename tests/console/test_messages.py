"""Messages of a queue by their state, as a file, published again; settings set back."""

import asyncio
import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from courier.console.browsing import neighbours
from courier.console.consumers import Consumers
from courier.core import keys
from courier.core.types import BROKER, Ack, Actor, Draft, Message
from courier.store.embedded import EmbeddedStore
from courier.words import clock
from tests.console.conftest import SAME, Visitor, new_fifo_queue, new_key, new_queue
from tests.console.test_past import World
from tests.delivery.receiver import Receiver, status
from tests.server import Server
from tests.wire.cloudflare.patience import eventually

_NUMBERS = count()
NO_LAKE: Any = None


@pytest.fixture
def mixed(server: Server) -> str:
    """A queue with 60 messages that wait, three that are leased and two that are delayed."""
    queue = new_queue(server, f"mixed-{next(_NUMBERS)}")
    with server.client() as http:
        at = f"/queues/{queue}/messages"
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        batch = [{"body": {"n": n}, "content_type": "json"} for n in range(63)]
        http.post(f"{at}/batch", json={"messages": batch})
        late = [{"body": {"n": n}, "content_type": "json", "delay_seconds": 900} for n in (90, 91)]
        http.post(f"{at}/batch", json={"messages": late})
        asked = {"batch_size": 3, "visibility_timeout_ms": 900_000}
        assert len(http.post(f"{at}/pull", json=asked).json()["result"]["messages"]) == 3
    return queue


def listed(visitor: Visitor, queue: str, query: str) -> tuple[list[Any], dict[str, Any]]:
    """The numbers in bodies, and the facts about all of them."""
    messages = visitor.facts(f"/console/queues/{queue}?{query}")["messages"]
    return [json.loads(row["body"])["n"] for row in messages["rows"]], messages


@pytest.mark.parametrize(("order", "turn"), [("oldest", 1), ("newest", -1)])
def test_messages_are_listed_by_state_both_ways(
    server: Server, operator: Visitor, mixed: str, order: str, turn: int
) -> None:
    for state, numbers in (("leased", [0, 1, 2]), ("delayed", [90, 91])):
        found, facts = listed(operator, mixed, f"state={state}&order={order}")
        assert found == numbers[::turn]
        assert {row["state"] for row in facts["rows"]} == {state}
        assert all(row["until_ms"] > row["published_ms"] for row in facts["rows"])
    waiting = [*range(3, 63)][::turn]
    found, facts = listed(operator, mixed, f"state=waiting&order={order}")
    assert found == waiting[:50]
    more = f"state=waiting&order={order}&after={facts['next']}"
    assert listed(operator, mixed, more)[0] == waiting[50:]
    states = [row["state"] for row in listed(operator, mixed, "order=oldest")[1]["rows"]]
    assert states == ["leased"] * 3 + ["waiting"] * 47
    page = operator.get(f"/console/queues/{mixed}?state=delayed").text
    assert "<td>delayed <small>until " in page


def test_all_of_one_state_are_deleted_and_the_others_stay(
    server: Server, operator: Visitor, mixed: str
) -> None:
    planned = operator.post(
        "/console/plans", action="delete", queue=mixed, which="all", state="delayed"
    )
    page = operator.follow(planned)
    assert "Delete 2 messages" in page.text and "delayed" in page.text
    operator.follow(operator.post(f"{page.url.path}/run"))
    assert listed(operator, mixed, "state=delayed")[0] == []
    assert operator.facts(f"/console/queues/{mixed}")["now"]["count"] == 63
    wrong = operator.post("/console/plans", action="delete", queue=mixed, which="all", state="new")
    assert wrong.status_code == 400 and "waiting, leased, delayed" in wrong.text


def test_dead_letters_are_listed_where_they_came_from(server: Server, operator: Visitor) -> None:
    one, other = new_queue(server, "one"), new_queue(server, "other")
    dead = new_queue(server, "common-failed")
    with server.client() as http:
        for name, queue in (("one", one), ("other", other)):
            rules = {"type": "http_pull", "dead_letter_queue": "common-failed",
                     "settings": {"max_retries": 0}}  # fmt: skip
            http.post(f"/queues/{queue}/consumers", json=rules)
            http.post(f"/queues/{queue}/messages", json={"body": {"n": name}})
            at = f"/queues/{queue}/messages"
            [got] = http.post(f"{at}/pull", json={}).json()["result"]["messages"]
            http.post(f"{at}/ack", json={"retries": [{"lease_id": got["lease_id"]}]})
    found, facts = listed(operator, one, "state=dead")
    assert (found, facts["queue"]) == (["one"], dead)
    letter = f"/console/messages/{facts['rows'][0]['id']}?queue={dead}"
    assert operator.facts(letter)["why"].startswith("It is a dead letter of one, and nobody")
    assert 'aria-label="Redrive the message"' in operator.get(letter).text
    planned = operator.post("/console/plans", action="redrive", queue=dead, which="all", origin=one)
    page = operator.follow(planned)
    assert "Redrive 1 dead letter" in page.text
    operator.follow(operator.post(f"{page.url.path}/run"))
    found, facts = listed(operator, one, "")
    back = f"/console/messages/{facts['rows'][0]['id']}?queue={one}"
    assert found == ["one"] and "Redrive the message" not in operator.get(back).text
    assert listed(operator, dead, "")[0] == ["other"]
    assert "go where this key" in operator.get(f"/console/queues/{dead}?state=dead").text


def test_messages_are_downloaded_without_leasing(
    server: Server, operator: Visitor, mixed: str
) -> None:
    path = f"/console/queues/{mixed}/messages"
    everything = operator.post(path, which="all")
    assert everything.headers["content-disposition"].endswith('.jsonl"')
    lines = [json.loads(line) for line in everything.text.splitlines()]
    assert [json.loads(each["body"])["n"] for each in lines] == [*range(63), 90, 91]
    leased = operator.post(path, which="all", state="leased").text.splitlines()
    assert [json.loads(line)["seq"] for line in leased] == [1, 2, 3]
    data = {"token": operator.token(), "selected": ["5", "9"]}
    chosen = operator.http.post(path, data=data, headers=SAME).text.splitlines()
    assert [json.loads(line)["seq"] for line in chosen] == [5, 9]
    assert operator.post(path).status_code == 400
    now = operator.facts(f"/console/queues/{mixed}")["now"]
    assert (now["waiting"], now["leased"], now["delayed"]) == (60, 3, 2)


def test_without_reading_bodies_nothing_is_downloaded(
    server: Server, visitor: Any, mixed: str
) -> None:
    key = new_key(server, "no-bodies", ["queues:read", "queues:write"])["token"]
    answer = visitor(key).post(f"/console/queues/{mixed}/messages", which="all")
    assert answer.status_code == 403 and "messages:read" in answer.text


def test_a_message_is_changed_and_published_again(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "again")
    form = {"body": '{"order": 1}', "headers": '{"colour": "blue"}'}
    first = operator.follow(operator.post(f"/console/queues/{queue}/publish", **form))
    id = operator.facts(str(first.url))["id"]
    assert f"queues/{queue}?again={id}#publish" in first.text
    draft = operator.facts(f"/console/queues/{queue}?again={id}")["draft"]
    assert (draft["body"], draft["kind"]) == ('{"order": 1}', "json")
    assert json.loads(draft["headers"]) == {"colour": "blue"}
    page = operator.get(f"/console/queues/{queue}?again={id}").text
    assert '>{"order": 1}</textarea>' in page
    edited = {**draft, "body": '{"order": 2}'}
    second = operator.follow(operator.post(f"/console/queues/{queue}/publish", **edited))
    assert '"order": 2' in second.text and "colour" in second.text
    assert operator.get(f"/console/queues/{queue}?again=nothing").status_code == 404


def test_a_change_of_settings_is_set_back(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "set-back")
    new_queue(server, "set-back-failed")
    at = f"/console/queues/{queue}"
    kept = {"attempts": "", "retry": "0s", "delay": "0s", "retention": "4d"}

    def save(**changes: str) -> None:
        modified = str(operator.facts(at)["modified_ms"])
        form = {**kept, **changes, "modified": modified, "confirm": "true"}
        assert operator.post(f"{at}/settings", **form).status_code == 303

    save(lease="2m", dead_letter="set-back-failed", attempts="4")
    save(lease="5s", dead_letter="", attempts="4")
    events = operator.facts(f"/console/events?queue={queue}&kind=queue_updated")["rows"]
    assert [row["back"] for row in events] == [True, True]
    offset = events[0]["offset"]
    assert f"queues/{queue}/settings?event={offset}" in operator.get("/console/events").text
    page = operator.get(f"{at}/settings?event={offset}")
    assert page.status_code == 200
    assert "<td>5 s</td><td><strong>2 min</strong></td>" in page.text
    facts = operator.facts(f"{at}/settings?event={offset}")
    assert [each["setting"] for each in facts["changes"]] == ["lease_ms", "dead_letter"]
    form = {**facts["filled"], "modified": str(facts["modified_ms"]), "confirm": "true"}
    assert operator.post(f"{at}/settings", **form).status_code == 303
    now = operator.facts(at)
    assert (now["settings"]["lease_ms"], now["dead_letter"]) == (120_000, "set-back-failed")
    for wrong, refused in (("x", 400), ("1", 404), ("999999999", 404)):
        assert operator.get(f"{at}/settings?event={wrong}").status_code == refused


def test_each_setting_says_who_set_it_and_when(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor]
) -> None:
    queue = new_queue(server, "set-by")
    at = f"/console/queues/{queue}"
    deploy = visitor(new_key(server, "deploy", ["read", "write", "journal"])["token"])
    reader = visitor(new_key(server, "set-by-reader", ["read"])["token"])
    form = {"attempts": "4", "retry": "0s", "delay": "0s", "retention": "4d", "dead_letter": ""}
    for who, changes in ((operator, {"lease": "2m"}), (deploy, {"lease": "2m", "retry": "9s"})):
        modified = str(who.facts(at)["modified_ms"])
        filled = {**form, **changes, "modified": modified, "confirm": "true"}
        assert who.post(f"{at}/settings", **filled).status_code == 303
    assert operator.facts(at)["set_by"] is None
    found = operator.facts(f"{at}?who=1")["set_by"]
    names = {field: found[field]["name"] for field in ("lease_ms", "retry_delay_ms")}
    assert names["retry_delay_ms"] == "deploy" and names["lease_ms"] != "deploy"
    assert "delay_ms" not in found
    page = operator.get(f"{at}?who=1").text
    assert page.count(" by deploy</small>") == 1 and "as it was made" in page
    events = operator.facts(f"/console/events?queue={queue}&kind=queue_updated")["rows"]
    assert [found[field]["offset"] for field in ("retry_delay_ms", "lease_ms")] == [
        event["offset"] for event in events
    ]
    assert reader.facts(f"{at}?who=1")["set_by"] is None


def test_neighbours_are_runs_without_a_gap() -> None:
    assert neighbours([]) == []
    assert neighbours([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


def test_a_wait_says_how_many_came_before(server: Server, operator: Visitor) -> None:
    """Ten messages, pulled four at a time, and the first of each pull is retried."""
    queue = new_queue(server, f"before-{next(_NUMBERS)}")
    with server.client() as http:
        at = f"/queues/{queue}/messages"
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        batch = [{"body": {"n": n}, "content_type": "json"} for n in range(10)]
        http.post(f"{at}/batch", json={"messages": batch})
        for _ in range(3):
            asked = {"batch_size": 4, "visibility_timeout_ms": 900_000}
            pulled = http.post(f"{at}/pull", json=asked).json()["result"]["messages"]
            lease = {"lease_id": pulled[0]["lease_id"], "delay_seconds": 0}
            http.post(f"{at}/ack", json={"acks": [], "retries": [lease]})
    rows = operator.facts(f"/console/queues/{queue}?order=oldest")["messages"]["rows"]
    path = f"/console/messages/{rows[8]['id']}?queue={queue}"
    steps = operator.facts(path)["life"]["steps"]
    # The first four, the retry of the first and three more, then its next retry and the eighth.
    leases = [step["before"] for step in steps if step["kind"] == "leased"]
    order = [json.loads(row["body"])["n"] for row in rows]
    assert order == list(range(10)) and leases == [10]
    page = operator.get(path).text
    assert "waited: 10 before it" in page
    head = re.search(r"· published <time[^>]*>[^<]*</time> by (.*?) · (.*?) ·", page)
    assert head and head[1].endswith(" (cloudflare)") and head[2] == "7 B json"
    first = operator.facts(f"/console/messages/{rows[0]['id']}?queue={queue}")["life"]["steps"]
    assert [step["before"] for step in first if step["kind"] == "leased"] == [0, 0, 0]


def test_what_a_listener_answered_is_why_a_message_is_late(
    server: Server, operator: Visitor
) -> None:
    """The queue has no consumer, so nobody else is missing."""
    queue = new_queue(server, f"pushed-{next(_NUMBERS)}")
    with Receiver() as receiver, server.client() as http:
        receiver.on("/signup", status(500, b"oops!"))
        url = receiver.url("/signup")
        made = operator.post(f"/console/queues/{queue}/listeners", name="mailer", url=url)
        assert made.status_code == 200, made.text
        http.post(f"/queues/{queue}/messages", json={"body": "hello"})
        receiver.wait("/signup", 1)
        row = operator.facts(f"/console/queues/{queue}")["messages"]["rows"][0]
        path = f"/console/messages/{row['id']}?queue={queue}"
        why = eventually(
            lambda: said if "oops" in (said := operator.facts(path)["why"]) else "", seconds_max=60
        )
    assert why.startswith('Listener mailer did not take it: 500 "oops!". The next attempt is')
    assert "leased" not in why
    [look] = operator.facts(f"/console/queues/{queue}")["looks"]
    assert 'mailer fails and never took one: 500 "oops!"; 1 message not taken' in look["sentence"]


def test_a_pause_is_part_of_where_the_time_went(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, f"paused-{next(_NUMBERS)}")
    at = f"/console/queues/{queue}"
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        operator.post(f"{at}/pause")
        http.post(f"/queues/{queue}/messages", json={"body": "hello"})
        row = operator.facts(at)["messages"]["rows"][0]
        operator.post(f"{at}/resume")
        pulled = http.post(f"/queues/{queue}/messages/pull", json={}).json()["result"]["messages"]
        http.post(f"/queues/{queue}/messages/ack", json={"acks": [
            {"lease_id": pulled[0]["lease_id"]}]})  # fmt: skip
    took = operator.facts(f"/console/messages/{row['id']}?queue={queue}")["took"]
    assert "while the queue was paused" in took


def test_the_earlier_message_of_a_group_is_linked(server: Server, operator: Visitor) -> None:
    name = f"grouped-{next(_NUMBERS)}"
    new_fifo_queue(server, name)
    queue = operator.facts(f"/console?q={name}")["rows"][0]["id"]
    at = f"/console/queues/{queue}"
    for body in ("1", "2"):
        assert operator.post(f"{at}/publish", body=body, kind="json", group="g").status_code == 303
    rows = operator.facts(f"{at}?order=oldest")["messages"]["rows"]
    first, second = (f"/console/messages/{row['id']}?queue={queue}" for row in rows)
    facts = operator.facts(second)
    assert facts["why"] == "An earlier message of its group has to be done first."
    assert first.replace("/console", "") in operator.get(second).text
    assert operator.facts(first)["earlier"] == ""


def test_a_lease_that_is_shorter_than_the_work_is_why_a_message_is_late(tmp_path: Path) -> None:
    """Work takes 9 s; the lease was 2 min, and is 5 s now."""

    async def history() -> None:
        world = World(await EmbeddedStore.open(None), tmp_path)
        [queue] = await world.begin("orders")
        store, by = world.store, Actor("shop", "cloudflare")

        async def edit(lease_ms: int) -> None:
            await world.courier.admin.update_queue(
                world.tenant.id, queue.id, lambda each: replace(each, lease_ms=lease_ms),
                reach=keys.Reach("x"), actor=BROKER,
            )  # fmt: skip

        async def lease(lease_ms: int) -> Message:
            leased = {"count": 1, "lease_ms": lease_ms, "actor": by, "now_ms": world.now_ms}
            [message] = (await store.lease(queue.id, **leased)).messages
            return message  # type: ignore[no-any-return]

        await edit(120_000)
        drafts = [Draft(b"{}", "json")] * 5
        await store.publish([(queue.id, drafts)], actor=by, now_ms=world.now_ms)
        last = (await store.messages.browse(queue.id, after_seq=4, limit=1, now_ms=world.now_ms))[0]
        path, query = f"/console/messages/{last.id}", f"queue={queue.id}"
        for number in range(4):
            found = await lease(120_000)
            world.clock.advance(9_000)
            item = Ack(seq=found.seq, attempt=found.attempts)
            await store.settle(queue.id, [item], actor=by, now_ms=world.now_ms)
            usual = await Consumers(store, NO_LAKE).usual_work_ms(queue.id, 3)
            assert usual == (9_000 if number > 1 else None)
        await lease(120_000)
        why = (await world.facts(path, query))["why"]
        assert why.endswith(": attempt 1. Its work usually takes 9 s.")
        world.clock.advance(200_000)
        await edit(5_000)
        world.clock.advance(60_000)
        await lease(5_000)
        world.clock.advance(6_000)
        facts = await world.facts(path, query)
        since = clock(world.now_ms - 66_000, world.now_ms)
        said = (
            f"Its work usually takes 9 s: longer than the lease (5 s since {since}; before, 2 min)."
        )
        assert facts["why"].endswith(said)
        hints = [each["hint"] for each in facts["life"]["steps"] if each["kind"] == "lease_expired"]
        assert hints[-1] == "its work usually takes 9 s: longer than the lease"
        page = bytes((await world.get(path, query, html=True)).body).decode()
        assert "no answer" in page and hints[-1] in page
        await store.close()

    asyncio.run(history())
