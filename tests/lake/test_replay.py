"""Messages of the lake are chosen in SQL and published again, each once."""

import json
import os
import random
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from courier.cli import replay as command
from courier.lake import replay, selection
from courier.lake.replay import Asked, Chosen, Plans
from courier.lake.tables import BadRequest, LakeError
from tests.clients.cloudflare import CloudflareClient
from tests.lake import killed
from tests.lake.orders import BINARY, TEXT, Orders
from tests.lake.running import Toll, Victim, Victims
from tests.report import TOLD
from tests.server import Server

KILLS = int(os.environ.get("KILLS", "2"))
# So many kills or more come to every point of `killed.REPLAY`, too.
LONG = 10
ROWS_PER_KILL = 300
RATE = 200


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    with Server(tmp_path_factory.mktemp("orders")).start() as server:
        yield Orders(spark, server, many=ROWS_PER_KILL * KILLS + 3 * RATE)


def chosen(orders: Orders, asked: Asked, *, id: str = "look") -> Chosen:
    now_ms = replay.now_ms()
    return replay.choose(
        orders.spark, orders.lake, asked, tenant=orders.tenant, replay=id, now_ms=now_ms
    )


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("data:total::int >= 350", [35, 36, 37, 38, 39]),
        ("try_cast(data:total as int) < 30 and headers:region::string = 'eu'", [0, 2]),
        ("outcome = 'buried' and headers:weight::int > 11", [12, 13, 14]),
        ("body like '%\"n\": 7,%'", [7]),
        ("headers:tags[1]::int = 3 or attempts = 1 and data:n::int = 4", [3, 4]),
    ],
)
def test_a_predicate_sees_bodies_headers_and_outcomes(
    orders: Orders, where: str, numbers: list[int]
) -> None:
    found = chosen(orders, Asked(queue="orders", where=where)).rows.collect()
    assert sorted(json.loads(bytes(row["body"]))["n"] for row in found) == numbers


def test_what_the_dry_run_counts_is_what_is_published(orders: Orders) -> None:
    asked = Asked(
        queue="orders", into="again", where="outcome = 'acked' and headers:region::string = 'us'"
    )
    dry = chosen(orders, asked, id="dry")
    plan = replay.make(orders.plans, "dry", asked, dry)
    told: list[int] = []
    done = replay.publish(orders.plans, plan, orders.place, report=told.append)
    new = orders.published("again")
    old = {row["message_id"]: row for row in orders.published("orders")}
    assert dry.count == len(new) == done.total == told[-1] == 5
    assert dry.bytes == sum(row["size"] for row in new)
    for row in new:
        headers = row["headers"]
        origin = old[headers.pop("courier-replay-message")]
        assert headers.pop("courier-replay-id") == "dry"
        assert headers.pop("courier-replay-queue") == "orders"
        assert headers == origin["headers"]
        assert (row["body"], row["content_type"]) == (origin["body"], origin["content_type"])
    assert [json.loads(row["body"])["n"] for row in new] == [1, 3, 5, 7, 9]


def replayed(
    orders: Orders, asked: Asked, *, id: str, rate: int | None = None
) -> list[dict[str, Any]]:
    """Replay, and return what came of it."""
    plan = replay.make(orders.plans, id, asked, chosen(orders, asked, id=id))
    done = replay.publish(orders.plans, plan, orders.place, rate=rate)
    assert done.done
    rows = orders.published(plan.queue)
    return [row for row in rows if row["headers"].get("courier-replay-id") == id]


def test_every_kind_of_body_comes_back_as_it_was_and_in_order(orders: Orders) -> None:
    new = replayed(orders, Asked(queue="orders", into="elsewhere"), id="all")
    old = orders.published("orders")
    for key in ("body", "content_type", "size", "group", "sealed"):
        assert [row[key] for row in new] == [row[key] for row in old], key
    assert [new[-2]["body"], new[-1]["body"]] == [TEXT.encode(), BINARY]
    origins = [row["headers"]["courier-replay-message"] for row in new]
    assert origins == [row["message_id"] for row in old]


def test_what_is_published_is_edited_in_sql(orders: Orders) -> None:
    asked = Asked(
        queue="orders",
        into="again",
        where="data:n::int in (3, 4)",
        sets=(
            "body=named_struct('number', data:n::int, 'was', outcome)",
            "headers=map('region', upper(headers:region::string))",
            "delay_ms=1000 * data:n::int",
        ),
    )
    new = replayed(orders, asked, id="edit")
    assert [json.loads(row["body"]) for row in new] == [
        {"number": 3, "was": "acked"},
        {"number": 4, "was": "acked"},
    ]
    assert [row["headers"]["region"] for row in new] == ["US", "EU"]
    assert [row["delay_ms"] for row in new] == [3_000, 4_000]
    assert {row["content_type"] for row in new} == {"json"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Asked(where="nope = 1"), "--where: A column, variable, or function parameter with name"),
        (Asked(where="1 +"), "--where: Syntax error"),
        (Asked(where="data:n::int"), "--where:"),
        (Asked(where="data:total::int > 1 and raise_error('x') is null"), "--where or --set:"),
        (Asked(sets=("size=1",)), "--set is COLUMN=SQL for one of body, headers"),
        (Asked(sets=("body=1",)), "'body' must be text, bytes or what JSON can hold, and is int"),
        (Asked(sets=("delay_ms='x'",)), "'delay_ms' must be a whole number, and is string"),
        (Asked(sets=("body=upper(body)",)), "'body' is null for 1 of the 42 chosen messages"),
        (Asked(sets=("group='a'", "group='b'")), "'group' is set twice"),
        (Asked(since="yesterday"), "'yesterday' is neither a time such as"),
    ],
    ids=str,
)
def test_what_cannot_be_replayed_is_refused_in_a_sentence(
    orders: Orders, asked: Asked, told: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        chosen(orders, replace(asked, queue="orders"))
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_a_replay_is_not_continued_as_another(orders: Orders) -> None:
    asked = Asked(queue="orders", into="again", where="seq = 1")
    plan = replay.make(orders.plans, "first", asked, chosen(orders, asked))
    assert replay.find(orders.plans, "first", Asked()) == plan
    assert replay.find(orders.plans, "first", asked) == plan
    assert replay.find(orders.plans, "second", asked) is None
    with pytest.raises(BadRequest, match="begun with another --where: 'seq = 1'"):
        replay.find(orders.plans, "first", replace(asked, where="seq = 2"))
    with (
        orders.plans.alone("first"),
        pytest.raises(LakeError, match="by another process"),
        orders.plans.alone("first"),
    ):
        pass
    with pytest.raises(BadRequest, match="--id is"), orders.plans.alone("../first"):
        pass


def test_times_choose_files_and_rows(orders: Orders) -> None:
    day = 86_400_000
    now_ms = replay.now_ms()
    table = orders.lake.messages
    assert selection.files(table, since_ms=now_ms - day, until_ms=now_ms)
    assert not selection.files(table, since_ms=now_ms, until_ms=now_ms + day)
    assert chosen(orders, Asked(queue="orders", since="1h")).count == 42
    old = datetime.fromtimestamp(now_ms / 1000 - 7_200, UTC).isoformat()
    assert chosen(orders, Asked(queue="orders", until=old)).count == 0


def test_a_piece_that_the_broker_may_have_forgotten_is_not_published_again(orders: Orders) -> None:
    asked = Asked(queue="orders", into="again", where="seq = 1")
    plan = replay.make(orders.plans, "late", asked, chosen(orders, asked))
    begun = orders.plans.keep(replace(plan, began_ms=replay.now_ms() - 25 * 3_600_000))
    with pytest.raises(LakeError, match="interrupted more than a day ago"):
        replay.publish(orders.plans, begun, orders.place)


def test_what_is_cut_into_pieces_comes_in_order(orders: Orders) -> None:
    plans = Plans(orders.lake.root, piece_rows=10)
    asked = Asked(queue="orders", into="pieces")
    plan = replay.make(plans, "pieces", asked, chosen(orders, asked, id="pieces"))
    assert len(plan.rows) > 2 and plan.total == 42
    assert replay.publish(plans, plan, orders.place).done
    assert plans.find("pieces") == replace(plan, published=len(plan.rows))
    new = [row["body"] for row in orders.published("pieces")]
    assert new == [row["body"] for row in orders.published("orders")]


class Trial:
    """Runs of one replay that are killed, each in its turn."""

    def __init__(self, orders: Orders, home: Path, target: CloudflareClient) -> None:
        self.toll = Toll()
        self.interrupted = 0
        self._server = orders.server
        self._many = orders.many
        self._home = home
        self._target = target
        self._dice = random.Random(KILLS)
        self._points = list(killed.REPLAY) if KILLS >= LONG else []
        self._command = [
            *("tests.lake.killed", str(home), "replay", "--queue", "source", "--into", "target"),
            *("--id", "night", "--rate", f"{RATE}/s", "--master", "local[2]"),
            *("--data", str(self._server.data)),
        ]

    def run(self) -> None:
        with Victims(self._home) as victims:
            for turn in range(KILLS):
                with victims.next(*self._command) as victim:
                    if self._points:
                        self._at_point(victim, self._points.pop(0), alone=turn % 2 == 1)
                    else:
                        self._at_random(victim, turn)

    def _at_point(self, victim: Victim, point: str, *, alone: bool) -> None:
        victim.arm(point, alone=alone)
        assert victim.dies_at(point), f"not killed at {point}: {victim.log()}"
        self.toll.points[point] = self.toll.points.get(point, 0) + 1
        self.toll.alone += alone

    def _at_random(self, victim: Victim, turn: int) -> None:
        # It ends more than a second before its last message.
        some = self._target.backlog() + self._dice.randint(1, ROWS_PER_KILL)
        upto = min(some, self._many - 2 * RATE)
        assert victim.until(lambda: self._target.backlog() >= upto), victim.log()
        if turn % 2:
            # The replay waits for its broker, and is killed when that is back.
            self._server.kill()
            self._server.start()
            self.toll.broker += victim.runs
        if turn % 3 == 0:
            assert victim.interrupt(), victim.log()
            self.interrupted += 1
        else:
            alone = turn % 3 == 2
            assert victim.kill(alone=alone), victim.log()
            self.toll.random += 1
            self.toll.alone += alone


@pytest.mark.timeout(200 + 120 * KILLS)
def test_a_replay_killed_again_and_again_publishes_each_message_once(
    orders: Orders,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    with orders.server.client() as http:
        trial = Trial(orders, tmp_path, CloudflareClient(http, "target"))
        trial.run()
    told = (tmp_path / "log").read_text()
    assert f"to continue: courier replay --id night --rate {RATE} --data" in told
    assert "Traceback" not in told
    plan = replay.find(orders.plans, "night", Asked())
    assert plan is not None and not plan.done
    with orders.plans.alone("night"):
        command._publish(orders.plans, plan, orders.place, Namespace(rate=None))
    assert f"{orders.many} messages published to 'target'" in capsys.readouterr().out
    found = [row["body"].decode() for row in orders.published("target")]
    assert found == [f"m{n}" for n in range(orders.many)]
    left = [each for each in Path(orders.lake.root, "_replays").iterdir() if each.is_dir()]
    assert not [each for each in left if "night" in each.name]
    record_property(
        TOLD,
        f"{trial.toll}; {trial.interrupted} times interrupted; {orders.many} messages, each "
        "published once and in order",
    )


def test_the_rate_is_held(orders: Orders) -> None:
    new = replayed(
        orders, Asked(queue="source", into="paced", where="seq <= 600"), id="pace", rate=RATE
    )
    times = [row["at"] for row in new]
    # What comes with the first request took no time before it.
    first = times.count(times[0])
    rate = (len(new) - first) / (times[-1] - times[0]).total_seconds()
    assert RATE * 0.9 <= rate <= RATE * 1.1
