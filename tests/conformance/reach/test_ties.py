"""A queue within reach that is tied to one beyond it, on every route that shows something.

`tied` gets the dead letters of `alpha`, buries in it, and is bound to the same exchange. Nothing
that a key for `alpha` is shown names it.
"""

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from courier.dialects.discue import names
from tests.conformance.reach.aims import send
from tests.conformance.reach.tables import Place, places
from tests.conformance.reach.test_references import Holder
from tests.conformance.reach.world import WRITE, Credential, Side, World

with tempfile.TemporaryDirectory() as directory:
    SHOWN = [
        place
        for place in places(Path(directory))
        if place.route.method == "GET" and place.route.reach in ("target", "listed", "named")
    ]


class Tied:
    """`buried` went from `alpha` to the other queue, `dead` came from there."""

    def __init__(self, world: World, alpha: Side) -> None:
        self.world, self.alpha = world, alpha
        self.name = f"tied-{uuid.uuid4().hex[:12]}"
        queues = f"/client/v4/accounts/{world.account}/queues"
        made = world.call("cloudflare", "POST", queues, {"queue_name": self.name})
        self.id = str(made["result"]["queue_id"])
        at = f"{queues}/{self.id}/messages"
        world.call("cloudflare", "POST", at, {"body": "neutral", "content_type": "text"})
        self.holder = Holder(world, alpha)
        region = self.holder.region(alpha)
        for one, other in ((alpha.queue, self.name), (self.name, alpha.queue)):
            limits = {"deadLetterQueueId": other, "maxDeliveries": 1}
            world.call("anypoint", "PATCH", f"{region}/destinations/queues/{one}", limits)
        exchange = alpha.params["anypoint"]["exchangeId"]
        world.call("anypoint", "PUT", f"{region}/bindings/exchanges/{exchange}/queues/{self.name}")
        self.buried = self._bury(alpha.queue)
        self._bury(self.name)
        self.dead = self._newest(alpha)
        self.key: Credential = world.credential(WRITE, alpha.queue)

    @property
    def marks(self) -> tuple[str, ...]:
        return self.name, self.id, names.shown(self.id)

    def _bury(self, queue: str) -> str:
        at = self.holder.messages(self.alpha, queue)
        (got,) = self.world.call("anypoint", "GET", f"{at}?pollingTime=0&batchSize=1")
        lock = got["headers"]
        path = f"{at}/{lock['messageId']}/locks/{lock['lockId']}"
        self.world.call("anypoint", "DELETE", path)
        return str(lock["messageId"])

    def _newest(self, side: Side) -> str:
        found = self.world.call(
            "console", "GET", f"/console/queues/{side.params['console']['queue']}"
        )
        return str(found["messages"]["rows"][0]["id"])


@pytest.fixture(scope="module")
def tied(world: World, new_side: Callable[[], Side]) -> Tied:
    return Tied(world, new_side())


@pytest.mark.parametrize("message", ["buried", "dead"])
@pytest.mark.parametrize("place", SHOWN, ids=str)
def test_a_queue_beyond_reach_is_not_named_by_one_within(
    world: World, tied: Tied, place: Place, message: str
) -> None:
    params: dict[str, dict[str, str]] = {site: dict(own) for site, own in tied.alpha.params.items()}
    id = tied.buried if message == "buried" else tied.dead
    params["console"]["message"] = id
    side = replace(tied.alpha, params=params)
    answer = send(world.http, place, side, tied.key)
    assert answer.status_code < 500
    assert not [mark for mark in tied.marks if mark in answer.text], answer.text


def test_those_who_reach_both_are_shown_the_ties(world: World, tied: Tied) -> None:
    """Else the test above would show nothing."""
    queue = tied.alpha.params["console"]["queue"]
    for path in (f"/console/queues/{queue}", f"/console/messages/{tied.buried}?queue={queue}"):
        answer = world.http.get(path, headers=world.own.headers("console"))
        assert tied.name in answer.text, answer.text
        hidden = world.http.get(path, headers=tied.key.headers("console"))
        assert "another queue" in hidden.text, hidden.text


def test_settings_are_saved_without_the_name_of_a_queue_beyond_reach(
    world: World, tied: Tied
) -> None:
    queue = tied.alpha.params["console"]["queue"]
    at = f"/console/queues/{queue}"
    headers = tied.key.headers("console")
    shown: dict[str, Any] = world.http.get(at, headers=headers).json()
    asked = {"lease": "45s", "delay": "0s", "retry": "0s", "retention": "4d", "attempts": "1"}
    for dead_letter in (shown["dead_letter"], ""):
        body = {**asked, "dead_letter": dead_letter}
        difference = world.http.post(f"{at}/settings", json=body, headers=headers)
        assert difference.status_code == 200 and tied.name not in difference.text
    body = {**asked, "dead_letter": shown["dead_letter"], "confirm": True}
    body["modified"] = shown["modified_ms"]
    saved = world.http.post(f"{at}/settings", json=body, headers=headers)
    assert saved.status_code == 303, saved.text
    now = world.call("console", "GET", at)
    assert (now["settings"]["lease_ms"], now["dead_letter"]) == (45_000, tied.name)
