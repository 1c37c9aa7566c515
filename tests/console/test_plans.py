"""Plans: a dry run, then exactly that, a receipt, an undo; also when the server is killed."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.console.plans import add_ranges, extend_ranges, within
from courier.dialects.discue.names import shown
from tests.console.conftest import Visitor, new_key, new_queue
from tests.server import Server


def _publish(server: Server, queue: str, count: int, first: int = 0) -> None:
    with server.client() as http:
        for low in range(first, first + count, 100):
            numbers = range(low, min(low + 100, first + count))
            batch = [{"body": {"n": n}, "content_type": "json"} for n in numbers]
            http.post(f"/queues/{queue}/messages/batch", json={"messages": batch})


def _lease(server: Server, queue: str, count: int) -> list[dict[str, Any]]:
    with server.client() as http:
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        body = {"batch_size": count, "visibility_timeout_ms": 600_000}
        got = http.post(f"/queues/{queue}/messages/pull", json=body)
        return list(got.json()["result"]["messages"])


def _events(server: Server, queue: str, *kinds: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        params = {"after": after, "limit": 50_000}
        page = httpx.get(f"{server.url}/journal", params=params, headers=headers, timeout=60)
        lines = [json.loads(line) for line in page.text.splitlines()]
        if not lines:
            return found
        after = lines[-1]["offset"]
        found += [each for each in lines if each["queue"] == queue and each["kind"] in kinds]


def _planned(visitor: Visitor, action: str, /, **fields: str) -> str:
    """The path of a new plan."""
    page = visitor.follow(visitor.post("/console/plans", action=action, **fields))
    assert page.status_code == 200, page.text
    return page.url.path


def _ran(visitor: Visitor, path: str, verb: str = "run", /, **fields: str) -> dict[str, Any]:
    """The facts of a plan once it is over."""
    path = visitor.follow(visitor.post(f"{path}/{verb}", **fields)).url.path
    deadline = time.monotonic() + 30
    while (facts := visitor.facts(path))["state"] in ("running", "choosing"):
        assert time.monotonic() < deadline, facts
        time.sleep(0.05)
    return dict(facts, path=path)


def _numbers(visitor: Visitor, queue: str) -> list[int]:
    facts = visitor.facts(f"/console/queues/{queue}?order=oldest")
    return [json.loads(row["body"])["n"] for row in facts["messages"]["rows"]]


def test_a_purge_is_shown_confirmed_done_and_undone(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "purged")
    _publish(server, queue, 120)
    leased = _lease(server, queue, 3)
    path = _planned(operator, "purge", queue=queue)
    page = operator.get(path).text
    assert "Delete 120 messages of purged" in page and "3 of them are leased now" in page
    _publish(server, queue, 1, first=500)
    for wrong in ("", "119"):
        refused = operator.post(f"{path}/run", confirm=wrong)
        assert refused.status_code == 400 and "type 120" in refused.text
    assert operator.post(f"{path}/undo").status_code == 409
    assert _events(server, queue, "deleted") == []
    facts = _ran(operator, path, confirm="120")
    assert (facts["state"], facts["done"], facts["skipped"]) == ("done", 117, 3)
    deleted = _events(server, queue, "deleted")
    key = facts["plan"]["actors"]
    assert {(each["actor"], each["dialect"]) for each in deleted} == {(key[0], "console")}
    offsets = [each["offset"] for each in deleted]
    assert all(within(facts["plan"]["offsets"] and _ranges(facts), each) for each in offsets)
    assert sum(last - first + 1 for first, last in facts["plan"]["offsets"]) == 117
    assert operator.post(f"{path}/run").status_code == 409
    undo = _ran(operator, path, "undo")
    assert (undo["state"], undo["done"]) == ("done", 117)
    assert operator.facts(f"/console/queues/{queue}")["now"]["count"] == 121
    back = _events(server, queue, "published")[-117:]
    assert {each["dialect"] for each in back} == {"console"}
    assert [each["headers"]["courier-replay-message"] for each in back] == [
        each["message_id"] for each in deleted
    ]
    assert back[0]["headers"]["courier-replay-queue"] == "purged"
    assert operator.post(f"{path}/undo").status_code == 409
    with server.client() as http:
        acks = [{"lease_id": each["lease_id"]} for each in leased]
        assert http.post(f"/queues/{queue}/messages/ack", json={"acks": acks}).json()["success"]


def _ranges(facts: dict[str, Any]) -> list[tuple[int, int]]:
    return [(first, last) for first, last in facts["plan"]["offsets"]]


def test_exactly_what_matches_is_deleted(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "matched")
    _publish(server, queue, 30)
    rows = operator.facts(f"/console/queues/{queue}?order=oldest")["messages"]["rows"]
    some = ",".join(str(row["seq"]) for row in rows[:3])
    facts = _ran(operator, _planned(operator, "delete", queue=queue, selected=some))
    assert facts["done"] == 3 and _numbers(operator, queue) == [*range(3, 30)]
    path = _planned(operator, "delete", queue=queue, which="all", q="7", path="n")
    assert "n = 7" in operator.get(path).text
    assert _ran(operator, path)["done"] == 1
    assert 7 not in _numbers(operator, queue)
    nothing = operator.post("/console/plans", action="delete", queue=queue)
    assert nothing.status_code == 400 and "Select messages first" in nothing.text


def test_what_was_settled_meanwhile_is_left_out(server: Server, operator: Visitor) -> None:
    queue = new_queue(server, "settled")
    _publish(server, queue, 10)
    path = _planned(operator, "purge", queue=queue)
    with server.client() as http:
        acks = [{"lease_id": each["lease_id"]} for each in _lease(server, queue, 4)]
        http.post(f"/queues/{queue}/messages/ack", json={"acks": acks})
    facts = _ran(operator, path)
    assert (facts["done"], facts["skipped"]) == (6, 4)
    assert _ran(operator, path, "undo")["done"] == 6
    assert _numbers(operator, queue) == [*range(4, 10)]
    second = _ran(operator, _planned(operator, "purge", queue=queue))
    assert second["done"] == 6


def test_a_redrive_is_taken_back_as_far_as_nobody_leased(server: Server, operator: Visitor) -> None:
    source, dead = new_queue(server, "source"), new_queue(server, "source-dead")
    with server.client() as http:
        consumer = {"type": "http_pull", "dead_letter_queue": "source-dead",
                    "settings": {"max_retries": 0}}  # fmt: skip
        http.post(f"/queues/{source}/consumers", json=consumer)
        _publish(server, source, 8)
        pulled = http.post(f"/queues/{source}/messages/pull", json={"batch_size": 8}).json()
        retries = [{"lease_id": each["lease_id"]} for each in pulled["result"]["messages"]]
        http.post(f"/queues/{source}/messages/ack", json={"retries": retries})
    path = _planned(operator, "redrive", selected=dead)
    assert "Redrive 8 dead letters of source-dead" in operator.get(path).text
    facts = _ran(operator, path)
    assert facts["done"] == 8 and len(_numbers(operator, source)) == 8
    _lease(server, source, 3)
    undo = _ran(operator, path, "undo")
    assert (undo["done"], undo["plan"]["apart"]) == (5, 3)
    assert operator.facts(f"/console/queues/{source}")["now"]["count"] == 3
    assert len(_numbers(operator, dead)) == 5
    # They are dead letters of that queue still: listed there, and redriven once more.
    listed = operator.facts(f"/console/queues/{source}?state=dead")["messages"]["rows"]
    assert [row["buried_from"] for row in listed] == [source] * 5
    purge = _planned(operator, "purge", queue=dead)
    assert _ran(operator, purge)["done"] == 5
    assert _ran(operator, purge, "undo")["done"] == 5
    assert _ran(operator, _planned(operator, "redrive", selected=dead))["done"] == 5
    assert operator.facts(f"/console/queues/{source}")["now"]["count"] == 8


def test_a_queue_is_deleted_and_created_again(server: Server, operator: Visitor) -> None:
    queue, burier = new_queue(server, "doomed"), new_queue(server, "burier")
    with server.client() as http:
        http.patch(f"/queues/{queue}", json={"settings": {"delivery_delay": 7}})
        http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
        http.post(f"/queues/{burier}/consumers", json={"type": "http_pull",
                  "dead_letter_queue": "doomed"})  # fmt: skip
    _publish(server, queue, 5)
    path = _planned(operator, "delete_queue", queue=queue)
    assert "burier buries into it" in operator.get(path).text
    assert operator.post(f"{path}/run", confirm="dooomed").status_code == 400
    _publish(server, queue, 1, first=5)
    changed = operator.post(f"{path}/run", confirm="doomed")
    assert changed.status_code == 409 and "its 6 messages" in changed.text
    facts = _ran(operator, path, confirm="doomed")
    assert facts["done"] == 6
    assert "This queue was deleted" in operator.get(f"/console/queues/{queue}").text
    assert len(_events(server, queue, "queue_deleted")) == 1
    undo = _ran(operator, path, "undo")
    again = undo["plan"]["target"]
    made = operator.facts(f"/console/queues/{again}")
    assert made["settings"]["delay_ms"] == 7_000 and made["now"]["count"] == 6
    assert operator.facts(f"/console/queues/{burier}")["dead_letter_id"] == again
    with server.client() as http:
        assert len(http.get(f"/queues/{again}/consumers").json()["result"]) == 1


def test_keys_and_tenants_go_when_their_name_is_typed(server: Server, operator: Visitor) -> None:
    made = new_key(server, "to-go", ["read"])["key"]["id"]
    path = _planned(operator, "delete_key", target=made)
    assert "cannot be undone" in operator.get(path).text
    assert operator.post(f"{path}/run", confirm="other").status_code == 400
    assert _ran(operator, path, confirm="to-go")["state"] == "done"
    assert operator.post(f"{path}/undo").status_code == 409
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    tenants = f"{server.url}/courier/v1/tenants"
    assert httpx.post(tenants, json={"name": "leaver"}, headers=admin).status_code == 200
    rows = operator.facts("/console/settings/tenants")["tenants"]
    target = next(row["id"] for row in rows if row["name"] == "leaver")
    path = _planned(operator, "delete_tenant", target=target)
    assert _ran(operator, path, confirm="leaver")["state"] == "done"
    assert "leaver" not in operator.get("/console/settings/tenants").text
    titles = [row["title"] for row in operator.facts("/console/plans")["rows"]]
    assert titles[0] == "Delete tenant leaver and all it owns"


def test_failed_pushes_are_retried_and_a_listener_is_backfilled(
    server: Server, operator: Visitor
) -> None:
    queue = new_queue(server, "pushed")
    _publish(server, queue, 4)
    url = "http://127.0.0.1:9/x"
    body = {"name": "away", "notify_url": url, "liveness_url": url, "max_attempts": 1}
    made = httpx.post(
        f"{server.url}/v1/queues/{shown(queue)}/listeners",
        json=body,
        headers={"X-API-KEY": server.credentials["discue"]["api_key"]},
    )
    assert made.status_code < 300, made.text
    listener = operator.facts(f"/console/queues/{queue}")["listeners"][0]["id"]
    path = _planned(operator, "backfill", queue=queue, target=listener)
    assert "Push 4 messages of pushed to away" in operator.get(path).text
    assert _ran(operator, path)["done"] == 4
    deadline = time.monotonic() + 20
    while operator.facts(f"/console/queues/{queue}")["listeners"][0]["missed"] < 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    path = _planned(operator, "retry_pushes", queue=queue, target=listener)
    facts = _ran(operator, path)
    assert facts["state"] == "done" and facts["done"] + facts["skipped"] >= 1
    assert operator.post(f"{path}/undo").status_code == 409


def test_many_queues_are_switched_at_once(server: Server, operator: Visitor) -> None:
    queues = [new_queue(server, f"many-{n}") for n in range(3)]
    data = {"token": operator.token(), "action": "pause", "selected": queues[:2]}
    paused = operator.http.post("/console/plans", data=data,
                                headers={"Sec-Fetch-Site": "same-origin"})  # fmt: skip
    assert paused.status_code == 303
    states = [operator.facts(f"/console/queues/{id}")["settings"]["paused"] for id in queues]
    assert states == [True, True, False]
    assert operator.post("/console/plans", action="pause").status_code == 400
    assert operator.post("/console/plans", action="paint", queue=queues[0]).status_code == 400


def test_two_consoles_purge_one_queue_and_count_each_message_once(
    server: Server, visitor: Callable[..., Visitor]
) -> None:
    """At the same time: one of them is refused, or finds nothing left."""
    queue, count = new_queue(server, "purged-twice"), 1_500
    _publish(server, queue, count)
    both = [visitor(server.credentials["admin"]["token"]) for _ in range(2)]
    plans = [_planned(each, "purge", queue=queue) for each in both]

    def run(place: int) -> int:
        return both[place].post(f"{plans[place]}/run", confirm=str(count)).status_code

    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(run, range(2)))
    assert sorted(answers) in ([303, 303], [303, 409])
    facts = [_settled(each, path) for each, path in zip(both, plans, strict=True)]
    if 409 in answers:
        late = answers.index(409)
        assert facts[late]["state"] == "planned"
        facts[late] = _ran(both[late], plans[late], confirm=str(count))
    assert sum(each["done"] for each in facts) == count
    assert sum(each["skipped"] for each in facts) == count
    deleted = [each["message_id"] for each in _events(server, queue, "deleted")]
    assert len(deleted) == len(set(deleted)) == count


def _settled(visitor: Visitor, path: str) -> dict[str, Any]:
    """The facts of a plan that does not run."""
    deadline = time.monotonic() + 60
    while (facts := visitor.facts(path))["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return dict(facts)


def test_a_key_without_the_scope_makes_no_plan(
    server: Server, visitor: Callable[..., Visitor], operator: Visitor
) -> None:
    queue = new_queue(server, "unscoped")
    path = _planned(operator, "purge", queue=queue)
    reader = visitor(new_key(server, "reader", ["read"])["token"])
    assert reader.get(path).status_code == 200 and "/run" not in reader.get(path).text
    for place in ("/console/plans", f"{path}/run", f"{path}/stop", f"{path}/undo"):
        assert reader.post(place, action="purge", queue=queue).status_code == 403
    writer = visitor(new_key(server, "writer", ["write"])["token"])
    assert writer.post("/console/plans", action="delete_key", target="x").status_code == 403


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, args=("--plans-bytes-max", str(1 << 20))).start() as server:
        yield server


def test_more_than_there_is_room_for_cannot_be_undone(alone: Server) -> None:
    visitor = Visitor(alone)
    visitor.sign_in(alone.credentials["admin"]["token"])
    queue = new_queue(alone, "large")
    with alone.client() as http:
        for n in range(12):
            body = {"body": f"{n}" + "x" * 120_000, "content_type": "text"}
            assert http.post(f"/queues/{queue}/messages", json=body).status_code == 200
    small = _planned(visitor, "delete", queue=queue, which="all", q="11x")
    path = _planned(visitor, "purge", queue=queue)
    assert "This cannot be undone" in visitor.get(path).text
    assert visitor.get(small).status_code == 404  # it had to go for room
    facts = _ran(visitor, path)
    assert (facts["done"], facts["undo"]) == (12, "")
    assert visitor.post(f"{path}/undo").status_code == 409
    kept = alone.data / "plans"
    assert {file.stat().st_mode & 0o777 for file in kept.iterdir()} == {0o600}
    visitor.close()


@pytest.mark.slow
def test_a_plan_that_is_killed_goes_on_and_counts_each_message_once(tmp_path: Path) -> None:
    """Twice in the middle of the deletion, and twice in the middle of its undo."""
    count = 12_000
    with Server(tmp_path).start() as server:
        visitor = Visitor(server)
        visitor.sign_in(server.credentials["admin"]["token"])
        queue = new_queue(server, "killed")
        _publish(server, queue, count)
        path = _planned(visitor, "purge", queue=queue)
        facts = _killed_twice(server, visitor, path, confirm=str(count))
        assert (facts["done"], facts["skipped"]) == (count, 0)
        deleted = [each["message_id"] for each in _events(server, queue, "deleted")]
        assert len(deleted) == count == len(set(deleted))
        offsets = sum(last - first + 1 for first, last in facts["plan"]["offsets"])
        assert offsets == count
        facts = _killed_twice(server, visitor, path, verb="undo")
        assert facts["done"] == count
        back = _events(server, queue, "published")[count:]
        origins = [each["headers"]["courier-replay-message"] for each in back]
        assert sorted(origins) == sorted(deleted)
        assert visitor.facts(f"/console/queues/{queue}")["now"]["count"] == count
        visitor.close()


def _killed_twice(
    server: Server, visitor: Visitor, path: str, *, verb: str = "run", confirm: str = ""
) -> dict[str, Any]:
    """Run a plan, or undo one; kill the server at a third and at two thirds of it."""
    known = {*(server.data / "plans").glob("*.json")}
    file = server.data / "plans" / f"{path.rpartition('/')[2]}.json"
    for share in (0.3, 0.6):
        threading.Thread(
            target=_post, args=(server, f"{path}/{verb}", confirm), daemon=True
        ).start()
        while verb == "undo" and file in known:
            file = next(iter({*file.parent.glob("*.json")} - known), file)
        path, verb = f"/console/plans/{file.stem}", "run"
        while (plan := json.loads(file.read_bytes()))["place"] < share * max(1, plan["pages"]):
            time.sleep(0.001)
        server.kill()
        assert json.loads(file.read_bytes())["state"] == "running"
        server.start()
        visitor.sign_in(server.credentials["admin"]["token"])
        assert visitor.facts(path)["state"] == "interrupted"
        assert "Nothing is done twice" in visitor.get(path).text
    return _ran(visitor, path)


def _post(server: Server, path: str, confirm: str) -> None:
    bearer = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    with suppress(httpx.TransportError):  # killed meanwhile
        httpx.post(f"{server.url}{path}", json={"confirm": confirm}, headers=bearer)


def test_ranges_hold_what_was_added() -> None:
    ranges: list[tuple[int, int]] = []
    add_ranges(ranges, [1, 2, 3, 7])
    extend_ranges(ranges, [(8, 9), (9, 12), (20, 20)])
    assert ranges == [(1, 3), (7, 12), (20, 20)]
    assert [n for n in range(25) if within(ranges, n)] == [1, 2, 3, *range(7, 13), 20]
