"""A key for one queue, on plans of every action that touch another queue as well."""

import time
import uuid
from collections.abc import Callable
from typing import Any, get_args

import httpx
import pytest

from courier.console import deeds
from courier.console.plans import TOUCHED_MAX, Action, Plan
from courier.dialects.discue import names
from tests.conformance.reach.test_references import Holder
from tests.conformance.reach.world import Credential, Side, World

ACTIONS: tuple[Action, ...] = get_args(Action)


class Story:
    """`charlie` buries in `alpha`, which holds one of its messages; the key is for `alpha`."""

    def __init__(self, world: World, alpha: Side, charlie: Side) -> None:
        self.world, self.alpha, self.charlie = world, alpha, charlie
        self.key = world.credential(["write", "usage:read"], alpha.queue)
        self._operator = {
            "Authorization": f"Bearer {world.server.credentials['admin']['token']}",
            "Accept": "application/json",
        }
        holder = Holder(world, alpha)
        source = f"{holder.region(alpha)}/destinations/queues/{charlie.queue}"
        world.call(
            "anypoint", "PATCH", source, {"deadLetterQueueId": alpha.queue, "maxDeliveries": 1}
        )
        at = holder.messages(charlie, charlie.queue)
        (got,) = world.call("anypoint", "GET", f"{at}?pollingTime=0&batchSize=1")
        lock = got["headers"]
        world.call("anypoint", "DELETE", f"{at}/{lock['messageId']}/locks/{lock['lockId']}")

    def id(self, side: Side) -> str:
        return side.params["console"]["queue"]

    def listener(self, side: Side) -> str:
        return names.read(side.params["discue"]["listener_id"])

    def post(self, path: str, by: Credential | None, **fields: Any) -> httpx.Response:
        headers = by.headers("console") if by else self._operator
        return self.world.http.post(f"/console/plans{path}", json=fields, headers=headers)

    def facts(self, plan: str) -> Any:
        answer = self.world.http.get(f"/console/plans/{plan}", headers=self._operator)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def over(self, plan: str) -> Any:
        deadline = time.monotonic() + 30
        while (facts := self.facts(plan))["state"] in ("choosing", "running"):
            assert time.monotonic() < deadline, facts
            time.sleep(0.02)
        return facts

    def wanted(self, action: Action) -> dict[str, str]:
        """What asks for a plan that touches `charlie`; an action that is not here fails."""
        alpha, charlie = self.id(self.alpha), self.id(self.charlie)
        return {
            "delete": {"selected": f"{alpha},{charlie}", "which": "all"},
            "purge": {"selected": f"{alpha},{charlie}"},
            "redrive": {"selected": alpha},
            "retry_pushes": {"queue": charlie, "target": self.listener(self.charlie)},
            "backfill": {"queue": charlie, "target": self.listener(self.charlie)},
            "delete_queue": {"queue": alpha},
            "delete_key": {"target": self.world.own.ids[0]},
            "delete_tenant": {"target": self.other_tenant() if action == "delete_tenant" else ""},
            "replay": {"sql": "SELECT * FROM messages", "which": "all", "target": self.alpha.queue},
        }[action]

    def other_tenant(self) -> str:
        name = f"leaver-{uuid.uuid4().hex[:8]}"
        self.world.operate("POST", "/courier/v1/tenants", {"name": name})
        path = "/console/settings/tenants"
        shown = self.world.http.get(path, headers=self._operator).json()["tenants"]
        return next(str(each["id"]) for each in shown if each["name"] == name)

    def planned(self, action: Action, **fields: str) -> str:
        """A plan of the operator's."""
        made = self.post("", None, action=action, **(fields or self.wanted(action)))
        assert made.status_code == 303, made.text
        plan = str(made.headers["location"]).rpartition("/")[2]
        self.over(plan)
        return plan

    def ran(self, plan: str, **fields: str) -> Any:
        facts = self.facts(plan)
        answer = self.post(f"/{plan}/run", None, confirm=facts["confirm"])
        assert answer.status_code == 303, answer.text
        return self.over(plan)

    def made(self, action: Action) -> str:
        """A plan of that action which is there, made by the operator."""
        undone: dict[Action, Action] = {
            "put_back": "purge",
            "take_back": "redrive",
            "create_again": "delete_queue",
        }
        if action not in undone:
            return self.planned(action)
        first = self.planned(undone[action])
        assert self.ran(first)["state"] == "done"
        answer = self.post(f"/{first}/undo", None)
        assert answer.status_code == 303, answer.text
        plan = str(answer.headers["location"]).rpartition("/")[2]
        assert self.over(plan)["plan"]["action"] == action
        return plan


@pytest.fixture
def story(world: World, new_side: Callable[[], Side]) -> Story:
    return Story(world, new_side(), world.side("charlie"))


def test_every_action_has_a_decision() -> None:
    assert set(deeds.DEEDS) == set(ACTIONS)
    unknown = Plan(id="x", action="new", tenant="t", made_ms=0, made_by="k")  # type: ignore[arg-type]
    assert deeds.targets(unknown) == [""] and deeds.of_operator(unknown)


@pytest.mark.parametrize("action", [each for each in ACTIONS if each != "replay"])
def test_a_plan_beyond_reach_is_not_seen_run_stopped_or_undone(
    story: Story, action: Action
) -> None:
    plan = story.made(action)
    before = story.facts(plan)
    headers = story.key.headers("console")
    http = story.world.http
    shown = http.get(f"/console/plans/{plan}", headers=headers)
    assert shown.status_code == 403, shown.text
    assert story.charlie.queue not in shown.text
    listed = http.get("/console/plans", headers=headers)
    assert listed.status_code == 200 and plan not in listed.text
    for verb in ("run", "stop", "undo"):
        answer = story.post(f"/{plan}/{verb}", story.key, confirm=before["confirm"])
        assert answer.status_code == 403, (verb, answer.text)
    assert story.facts(plan) == before


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_what_was_done_beyond_reach_is_not_undone(story: Story, action: Action) -> None:
    """A redrive put messages where the key does not reach: it must not take them back."""
    plan = story.planned(action)
    assert story.ran(plan)["state"] == "done"
    assert story.post(f"/{plan}/undo", story.key).status_code == 403
    assert story.facts(plan)["plan"]["undone_by"] == ""


@pytest.mark.parametrize("action", ACTIONS)
def test_no_plan_is_made_that_touches_a_queue_beyond_reach(story: Story, action: Action) -> None:
    if action in ("put_back", "take_back", "create_again"):
        fields = {"queue": story.id(story.alpha)}
        assert story.post("", story.key, action=action, **fields).status_code == 403
        return
    answer = story.post("", story.key, action=action, **story.wanted(action))
    assert story.charlie.queue not in answer.text
    if action != "redrive":
        assert answer.status_code == 403, answer.text
        return
    # Of dead letters it plans those that go where it reaches: here none.
    plan = str(answer.headers["location"]).rpartition("/")[2]
    facts = story.over(plan)
    assert (facts["plan"]["count"], facts["plan"]["touched"]) == (0, [])


def test_within_reach_a_limited_key_plans_runs_and_undoes(
    world: World, new_side: Callable[[], Side]
) -> None:
    story = Story(world, new_side(), world.side("charlie"))
    story.key = world.credential(["write"], story.alpha.queue, story.charlie.queue)
    for action in ("redrive", "purge"):
        made = story.post("", story.key, action=action, selected=story.id(story.alpha))
        assert made.status_code == 303, made.text
        plan = str(made.headers["location"]).rpartition("/")[2]
        count = story.over(plan)["plan"]["count"]
        assert count > 0
        assert story.post(f"/{plan}/run", story.key, confirm=str(count)).status_code == 303
        assert story.over(plan)["done"] > 0
        undone = story.post(f"/{plan}/undo", story.key)
        assert undone.status_code == 303, undone.text
        assert story.over(str(undone.headers["location"]).rpartition("/")[2])["state"] == "done"


@pytest.mark.parametrize("action", ["backfill", "retry_pushes", "put_back"])
def test_whoever_runs_a_plan_needs_the_scopes_of_what_it_does(story: Story, action: Action) -> None:
    """Not only those who made it."""
    alpha = story.id(story.alpha)
    few = story.world.credential(["queues:read", "queues:write"], story.alpha.queue)
    if action == "put_back":
        plan, verb = story.planned("purge", queue=alpha), "undo"
        assert story.ran(plan)["done"] > 0
    else:
        listener = story.listener(story.alpha)
        plan, verb = story.planned(action, queue=alpha, target=listener), "run"
    shown = story.world.http.get(f"/console/plans/{plan}", headers=few.headers("console"))
    assert shown.status_code == 200 and shown.json()["samples"] == []
    answer = story.post(f"/{plan}/{verb}", few)
    wanted = deeds.DEEDS[action].scopes[0]
    assert answer.status_code == 403 and wanted in answer.text, answer.text


def test_words_are_searched_only_where_all_messages_may_be_read(story: Story) -> None:
    """A count of matches says what is in messages."""
    world, alpha, charlie = story.world, story.alpha, story.charlie
    made = world.operate(
        "POST",
        f"/courier/v1/tenants/{world.tenant}/keys",
        {"name": f"two-{alpha.queue}", "scopes": ["write"], "targets": [alpha.queue]},
    )
    assert made["token"]
    both = world.credential(["queues:read", "queues:write"], alpha.queue, charlie.queue)
    selected = f"{story.id(alpha)},{story.id(charlie)}"
    answer = story.post("", both, action="delete", selected=selected, which="all", q="body")
    assert answer.status_code == 403 and "messages:read" in answer.text, answer.text


def test_plans_of_which_not_all_queues_are_known_are_for_keys_without_limits() -> None:
    plan = Plan(
        id="x", action="redrive", tenant="t", made_ms=0, made_by="k", queues=[("a", "alpha")]
    )
    assert deeds.targets(plan) == [""], "as plans of an earlier release"
    plan.touched = []
    plan.touch("a", "b", "", "b")
    assert deeds.targets(plan) == ["a", "b"]
    plan.touch(*(f"q{number}" for number in range(TOUCHED_MAX)))
    assert deeds.targets(plan) == [""]
