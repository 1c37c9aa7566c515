"""The console's page of the lake: SQL in a process of its own, and the audit."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.console.lake import AWAY, HELD, LakeAnswer, audited, chart
from courier.lake import lock, query
from tests.console.conftest import Visitor, new_key, new_queue
from tests.lake.lakes import SmallLake
from tests.server import Server

DOCS = Path(__file__).parents[2] / "docs" / "lake.md"


@pytest.fixture
def visitor(small: SmallLake) -> Iterator[Visitor]:
    visitor = Visitor(small.server)
    visitor.sign_in(small.server.credentials["admin"]["token"])
    yield visitor
    visitor.close()


def _asked(visitor: Visitor, sql: str, **more: str) -> httpx.Response:
    return visitor.http.get("/console/lake", params={"sql": sql, **more})


def test_a_question_is_answered_and_a_mistake_is_said_beside_the_box(visitor: Visitor) -> None:
    page = visitor.get("/console/lake").text
    assert "consumers_hours" in page and "last_leased_by" in page
    found = _asked(visitor, "select queue, count(*) as n from messages group by 1 order by 1")
    assert found.status_code == 200 and "<th scope" in found.text and "orders" in found.text
    wrong = _asked(visitor, "select nope from messages")
    assert wrong.status_code == 400 and "nope" in wrong.text and 'id="sql-problem"' in wrong.text
    changes = _asked(visitor, "drop view messages")
    assert changes.status_code == 400 and "one SELECT at a time" in changes.text
    files = _asked(visitor, "select * from read_text('/etc/hostname')")
    assert files.status_code == 400
    many = _asked(visitor, "select range from range(2000)")
    assert "1,000 rows, and there are more" in many.text
    assert "Ask, over 8 KB" in many.text
    posted = visitor.post("/console/lake", sql="select 41 + 1 as answer")
    assert posted.status_code == 200 and ">42<" in posted.text


def test_an_answer_is_downloaded_and_drawn(visitor: Visitor) -> None:
    sql = "select minute, published from queue_minutes order by 1"
    lines = _asked(visitor, "select '=1+1' as x, 2 as n", **{"as": "csv"}).text.splitlines()
    assert lines == ["x,n", "'=1+1,2"]
    told = _asked(visitor, sql, **{"as": "json"})
    assert told.json()[0]["published"] >= 0
    assert "attachment" in told.headers["content-disposition"]
    answer = LakeAnswer(["minute", "n"], ["time", "number"], [["a", 1], ["b", 3]])
    assert "polyline" in chart(answer) and chart(LakeAnswer(["n"], ["number"], [[1], [2]])) == ""


def test_a_tenants_key_sees_its_own_rows_only(small: SmallLake, visitor: Visitor) -> None:
    server = small.server
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    tenants = f"{server.url}/courier/v1/tenants"
    httpx.post(tenants, json={"name": "nosy"}, headers=admin)
    body = {"name": "nosy-key", "scopes": ["journal", "read"]}
    key = httpx.post(f"{tenants}/nosy/keys", json=body, headers=admin).json()["token"]
    own = new_key(server, "own-journal", ["journal", "read"])["token"]
    counts = {}
    for name, token in (("nosy", key), ("own", own)):
        bearer = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        for table in ("messages", "_messages_0", "events", "audit"):
            sql = f"select count(*) as n from {table}"
            found = httpx.get(f"{server.url}/console/lake", params={"sql": sql}, headers=bearer,
                              timeout=60)  # fmt: skip
            assert found.status_code == 200, found.text
            counts[name, table] = found.json()["answer"]["rows"][0][0]
    assert {counts["nosy", table] for table in ("messages", "_messages_0", "events", "audit")} == {
        0
    }
    assert counts["own", "messages"] == counts["own", "_messages_0"] > 0
    reader = new_key(server, "no-journal", ["read"])["token"]
    refused = httpx.get(f"{server.url}/console/lake", headers={"Authorization": f"Bearer {reader}"})
    assert refused.status_code == 403


def test_a_question_is_one_at_a_time_and_ends_with_its_page(
    small: SmallLake, visitor: Visitor
) -> None:
    long = "select count(*) from range(1000000) a, range(1000000) b"
    bearer = {"Authorization": f"Bearer {small.server.credentials['admin']['token']}"}
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{small.server.url}/console/lake", params={"sql": long}, headers=bearer,
                  timeout=3.0)  # fmt: skip
    deadline = time.monotonic() + 10
    while (again := _asked(visitor, "select 1 as one")).status_code == 429:
        assert time.monotonic() < deadline
        assert int(again.headers["retry-after"]) >= 1
        time.sleep(0.2)
    assert again.status_code == 200


def test_a_question_that_takes_too_much_memory_is_stopped(visitor: Visitor) -> None:
    sql = "select list(repeat('x', 1000) || range) from range(1000000)"
    stopped = _asked(visitor, sql)
    assert stopped.status_code == 400
    assert "memory" in stopped.text.lower()


def _planned(visitor: Visitor, **fields: str) -> tuple[str, dict[str, Any]]:
    """The path of a plan, and its facts once its messages are chosen."""
    path = visitor.follow(visitor.post("/console/plans", **fields)).url.path
    return path, _in_state(visitor, path, "planned")


def _in_state(visitor: Visitor, path: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (facts := visitor.facts(path))["state"] != state:
        assert time.monotonic() < deadline, facts
        time.sleep(0.1)
    return dict(facts)


def test_rows_of_an_answer_are_replayed_and_taken_back(small: SmallLake, visitor: Visitor) -> None:
    queue = new_queue(small.server, "again")
    sql = "select queue_id, seq from messages where queue = 'orders' and outcome = 'buried'"
    page = _asked(visitor, sql).text
    chosen = re.search(r'name="selected" value="([^"]+)"', page)
    assert chosen is not None and "Replay…" in page
    wanted = {"action": "replay", "sql": sql, "target": "again"}
    assert visitor.post("/console/plans", **wanted).status_code == 400
    assert visitor.post("/console/plans", **{**wanted, "target": "nowhere"}).status_code == 404
    for fields, count in (({"selected": chosen[1]}, 1), ({"which": "all"}, 3)):
        path, facts = _planned(visitor, **wanted, **fields)
        words = f"Replay {count} message{'s' if count > 1 else ''} into again"
        assert facts["title"] == words
        assert visitor.post(f"{path}/run").status_code == 303
        assert visitor.facts(path)["done"] == count
    rows = visitor.facts(f"/console/queues/{queue}")["messages"]["rows"]
    one = visitor.facts(f"/console/messages/{rows[0]['id']}?queue={queue}")
    assert one["headers"]["courier-replay-queue"] == "orders"
    undone = visitor.follow(visitor.post(f"{path}/undo")).url.path
    assert visitor.facts(undone)["done"] == 3
    assert visitor.facts(f"/console/queues/{queue}")["now"]["count"] == 1
    planned = visitor.post("/console/plans", action="delete_queue", queue=queue)
    path = visitor.follow(planned).url.path
    assert visitor.post(f"{path}/run", confirm="again").status_code == 303


def test_a_replay_keeps_to_its_rate(small: SmallLake, visitor: Visitor) -> None:
    queue = new_queue(small.server, "slowly")
    sql = "select queue_id, seq from messages where queue = 'orders' order by seq limit 6"
    wanted = {"action": "replay", "sql": sql, "target": "slowly", "which": "all"}
    for wrong in ("soon", "0", "-1", "1000000"):
        refused = visitor.post("/console/plans", **wanted, rate=wrong)
        assert refused.status_code == 400
        assert "not a number of messages a second" in refused.text
    path, facts = _planned(visitor, **wanted, rate="2")
    assert facts["effects"] == ["2 a second are published; it takes 3 s."]
    # Time passes for the server too, so it cannot be done sooner, however busy the machine is.
    began_s = time.monotonic()
    visitor.post(f"{path}/run")
    _in_state(visitor, path, "done")
    assert time.monotonic() - began_s >= 2.5
    assert visitor.facts(f"/console/queues/{queue}")["now"]["count"] == 6
    planned = visitor.follow(visitor.post("/console/plans", action="delete_queue", queue=queue))
    assert visitor.post(f"{planned.url.path}/run", confirm="slowly").status_code == 303


def test_messages_of_a_past_minute_come_from_the_lake(small: SmallLake) -> None:
    """Those that were published and not ended before, each with its state."""

    def asked(sql: str) -> list[list[Any]]:
        return [list(row) for row in query.ask(small.lake, sql, limit=1_000).rows]

    [[ended, queue]] = asked(
        "select max(epoch_ms(done_at)), max(queue_id) from messages where queue = 'orders'"
    )
    at_ms = (ended // 60_000 + 1) * 60_000
    live = asked(f"select seq from messages where queue_id = '{queue}' and outcome = 'live'")
    rows = asked(HELD.format(queue=queue, at_ms=at_ms))
    assert [row[1] for row in rows] == sorted(row[0] for row in live)
    assert {row[-1] for row in rows} <= {"waiting", "leased", "delayed"}
    assert asked(HELD.format(queue=queue, at_ms=0)) == []


def test_a_life_that_the_journal_does_not_find_comes_from_the_lake(
    small: SmallLake, visitor: Visitor
) -> None:
    """The id that a publisher chose does not say when it was, and its message has ended."""
    sql = """SELECT queue_id, message_id, count(*) AS events FROM events
        WHERE seq IS NOT NULL AND message_id NOT LIKE 'c0%' AND message_id IN (
            SELECT message_id FROM events WHERE kind = 'acked')
        GROUP BY ALL HAVING count(*) FILTER (kind = 'published') = 1 ORDER BY ALL"""
    [found, *_] = _asked(visitor, sql, **{"as": "json"}).json()
    path = f"/console/messages/{found['message_id']}?queue={found['queue_id']}"
    lived = visitor.facts(path)["life"]
    assert lived["archived"] and lived["whole"]
    kinds = [step["kind"] for step in lived["steps"]]
    assert len(kinds) == found["events"] and kinds[0] == "published" and "acked" in kinds
    assert all(step["wait_ms"] >= 0 for step in lived["steps"])
    page = visitor.get(path).text
    assert "they are from the lake" in page and "Where did the time go?" in page
    odd = visitor.get(f"/console/messages/no'; DROP--?queue={found['queue_id']}")
    assert odd.status_code == 404


def test_shares_of_consumers_come_from_the_lake(small: SmallLake, visitor: Visitor) -> None:
    sql = """SELECT queue_id, count(*) FILTER (kind = 'leased') AS leased,
        count(*) FILTER (kind = 'acked') AS acked, count(*) FILTER (kind = 'retried') AS returned
        FROM events WHERE queue = 'orders' GROUP BY ALL"""
    [told] = _asked(visitor, sql, **{"as": "json"}).json()
    path = f"/console/queues/{told.pop('queue_id')}"
    assert visitor.facts(path)["shares"] is None
    assert "Shares of the last 1h" in visitor.get(path).text
    [share] = visitor.facts(f"{path}?shares=1")["shares"]["rows"]
    assert share.items() >= {**told, "share": 1.0, "name": "first"}.items()
    page = visitor.get(f"{path}?shares=1&last=24h").text
    assert 'id="shares"' in page and '<td class="n">100 %</td>' in page
    before = f"{path}?shares=1&since=2026-01-01T00:00Z&until=2026-01-01T05:30Z"
    assert visitor.facts(before)["shares"]["rows"] == []
    assert "Nobody leased anything in these hours" in visitor.get(before).text


def test_the_audit_says_that_everything_adds_up(visitor: Visitor) -> None:
    page = visitor.get("/console/lake/audit")
    assert page.status_code == 200 and "Everything adds up" in page.text
    assert "lake and broker agree" in page.text and "It has never failed" in page.text
    file = visitor.get("/console/lake/audit?as=file")
    assert "attachment" in file.headers["content-disposition"]
    assert "<script" not in file.text and "Everything adds up" in file.text
    assert "QUALIFY" in file.text


def test_what_does_not_add_up_is_named() -> None:
    row = {"queue": "orders", "queue_id": "c0", "accepted": 9, "live_lake": 1, "live_broker": 1,
           "acked": 7, "buried": 0, "expired": 0, "purged": 0, "deleted": 0, "difference": 1,
           "gaps": 0, "run_at": "2026-11-17T14:05:12Z"}  # fmt: skip
    facts = audited([row], "", {})
    assert not facts.good and "difference 1 on orders" in facts.sentence
    assert facts.sentence.endswith("; checked 2026-11-17 14:05:12.")
    assert "not audited yet" in audited([], "", {}).sentence


def test_the_questions_are_those_of_the_documentation(visitor: Visitor) -> None:
    text = DOCS.read_text().partition("## Ten questions")[2]
    told = re.findall(r"\*\*\d+\. (.+?)\*\*.*?```sql\n(.*?)\n```", text, re.DOTALL)
    facts = visitor.facts("/console/lake")
    assert [tuple(each) for each in facts["questions"]] == told


def test_without_a_lake_there_is_one_sentence(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        visitor = Visitor(server)
        visitor.sign_in(server.credentials["admin"]["token"])
        for path in ("/console/lake", "/console/lake?sql=select+1", "/console/lake/audit"):
            assert visitor.facts(path)["away"] == AWAY
        visitor.close()


def test_a_lake_that_is_held_or_half_written_is_answered_with_what_it_is(
    small: SmallLake, tmp_path: Path
) -> None:
    with Server(tmp_path).start() as server:
        root = server.data / "lake"
        shutil.copytree(small.root, root)
        visitor = Visitor(server)
        visitor.sign_in(server.credentials["admin"]["token"])
        count = "select count(body) from messages"
        # The pipeline that writes it holds it, and is no obstacle.
        with lock.hold(str(root)):
            assert _asked(visitor, count).status_code == 200
        file = next((root / "messages").rglob("*.parquet"))
        whole = file.read_bytes()
        file.unlink()
        gone = _asked(visitor, count)
        assert gone.status_code == 400 and file.name in gone.text
        file.write_bytes(whole)
        assert _asked(visitor, count).status_code == 200
        commit = max((root / "queue_minutes" / "_delta_log").glob("*.json"))
        commit.write_bytes(commit.read_bytes()[:100])
        for asked in (_asked(visitor, count), visitor.get("/console/lake/audit")):
            assert asked.status_code == 400 and "queue_minutes is damaged" in asked.text
        assert "Traceback" not in server.log()
        visitor.close()
