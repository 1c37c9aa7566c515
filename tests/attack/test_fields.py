"""Every documented field, with every kind of value it does not take."""

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.attack.peer import Account, Answer, accepted, refused
from tests.attack.target import Target, aim

VALUES: list[Any] = [None, "", [], {}, True, 1.5, -1, 10**30, "5"]
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"

# Where a POST creates something, and under which key the answer has its id.
CREATIONS = {"/queues": "queue_id", "$path/consumers": "consumer_id", SUBSCRIPTIONS: "id"}

# Bodies that are accepted as they are; "$path" and "$queue" are the target's path and id.
QUEUE = {
    "queue_name": "$name-x",
    "settings": {
        "delivery_delay": 1,
        "delivery_paused": False,
        "message_retention_period": 60,
    },
}
PULL_CONSUMER = {
    "type": "http_pull",
    "dead_letter_queue": "$name-x",
    "settings": {
        "batch_size": 1,
        "max_retries": 1,
        "retry_delay": 1,
        "visibility_timeout_ms": 1,
    },
}
PUSH_CONSUMER = {
    "type": "worker",
    "script_name": "$name-x",
    "settings": {
        "batch_size": 1,
        "max_retries": 1,
        "retry_delay": 1,
        "max_wait_time_ms": 1,
        "max_concurrency": 1,
    },
}
DRAFT = {"body": "text", "content_type": "text", "delay_seconds": 1}
BATCH = {"messages": [DRAFT], "delay_seconds": 1}
PULL = {"batch_size": 1, "visibility_timeout_ms": 1}
ALIAS = {"visibility_timeout": 1}
ACK = {"acks": [{"lease_id": "x"}], "retries": [{"lease_id": "y", "delay_seconds": 1}]}
REFS = {"refs": [{"ref": "x"}]}
SURE = {"delete_messages_permanently": True}
SUBSCRIPTION = {
    "name": "good name",
    "enabled": True,
    "source": {"type": "workersAi.model", "model_name": "m"},
    "destination": {"type": "queues.queue", "queue_id": "$queue"},
    "events": ["batch.queued"],
}


class Case(NamedTuple):
    """A field of a request. `takes` are the values it accepts, `may` those it is free to accept."""

    method: str
    path: str
    body: dict[str, Any]
    field: str
    takes: list[Any]
    may: list[Any]
    code: int | None
    statuses: tuple[int, ...] = (400,)

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} {self.field}"


def cases() -> Iterator[Case]:
    takes: list[Any]
    may: list[Any]
    for method, path in (("POST", "/queues"), ("PUT", "$path"), ("PATCH", "$path")):
        kept = [] if method == "POST" else [None]
        yield case(method, path, QUEUE, "queue_name", takes=["5"], may=kept, code=11003)
        yield case(method, path, QUEUE, "jurisdiction", may=[None])
        for field, takes in (
            ("settings", [{}]),
            ("settings.delivery_delay", []),
            ("settings.delivery_paused", [True]),
            ("settings.message_retention_period", []),
        ):
            yield case(method, path, QUEUE, field, takes=takes, may=[None], code=100128)
    for consumer in (PULL_CONSUMER, PUSH_CONSUMER):
        path = "$path/consumers"
        yield case("POST", path, consumer, "type", code=10026)
        yield case("POST", path, consumer, "settings", takes=[{}], may=[None])
        for name in consumer["settings"]:
            yield case("POST", path, consumer, f"settings.{name}", takes=[None], code=100127)
    yield case("POST", path, PULL_CONSUMER, "dead_letter_queue", takes=["5"], may=[None, ""])
    yield case("POST", path, PUSH_CONSUMER, "script_name", takes=["5"], code=10026)

    path = "$path/messages"
    yield case("POST", path, DRAFT, "body", takes=["", "5"], code=10207)
    yield case("POST", path, DRAFT, "content_type", may=[None], code=10203)
    yield case("POST", path, DRAFT, "delay_seconds", may=[None], code=10203)
    path = "$path/messages/batch"
    yield case("POST", path, BATCH, "messages", statuses=(400, 413))
    yield case("POST", path, BATCH, "messages.0", code=10207)
    yield case("POST", path, BATCH, "messages.0.body", takes=["", "5"], code=10207)
    yield case("POST", path, BATCH, "messages.0.content_type", may=[None], code=10203)
    yield case("POST", path, BATCH, "messages.0.delay_seconds", may=[None], code=10203)
    yield case("POST", path, BATCH, "delay_seconds", may=[None], code=10202)

    path = "$path/messages/pull"
    for body in (PULL, ALIAS):
        for name in body:
            yield case("POST", path, body, name, may=[None], code=10026)
    yield case("POST", "$path/messages/peek", {"batch_size": 1}, "batch_size", may=[None])
    path = "$path/messages/ack"
    for items in ("acks", "retries"):
        yield case("POST", path, ACK, items, takes=[[]], may=[None], code=10026)
        yield case("POST", path, ACK, f"{items}.0", code=10026)
        yield case("POST", path, ACK, f"{items}.0.lease_id", takes=["", "5"], code=10026)
    yield case("POST", path, ACK, "retries.0.delay_seconds", may=[None], code=10026)
    path = "$path/messages/purge"
    yield case("POST", path, REFS, "refs", takes=[[]], code=10207)
    yield case("POST", path, REFS, "refs.0", code=10207)
    yield case("POST", path, REFS, "refs.0.ref", takes=["", "5"], code=10207)
    yield case("POST", "$path/purge", SURE, *SURE, takes=[True], may=[None], code=10026)

    for field, takes, may in (
        ("name", ["5"], [None, ""]),
        ("enabled", [True], [None]),
        ("source", [], []),
        ("source.type", [], []),
        ("source.model_name", ["5"], [""]),
        ("destination", [], []),
        ("destination.type", [], []),
        ("events", [], []),
        ("events.0", [], []),
    ):
        yield case("POST", SUBSCRIPTIONS, SUBSCRIPTION, field, takes=takes, may=may, code=0)
    field = "destination.queue_id"
    yield case("POST", SUBSCRIPTIONS, SUBSCRIPTION, field, code=0, statuses=(400, 404))


def case(
    method: str,
    path: str,
    body: dict[str, Any],
    field: str,
    *,
    takes: list[Any] | None = None,
    may: list[Any] | None = None,
    code: int | None = None,
    statuses: tuple[int, ...] = (400,),
) -> Case:
    return Case(method, path, body, field, takes or [], may or [], code, statuses)


CASES = list(cases())


def among(value: Any, values: list[Any]) -> bool:
    """Python holds True for 1; JSON does not."""
    return any(type(value) is type(other) and value == other for other in values)


def with_field(body: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    inner: Any = changed
    *steps, last = [int(step) if step.isdigit() else step for step in field.split(".")]
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return changed


def ask(target: Target, case: Case, body: dict[str, Any]) -> Answer:
    path = case.path.replace("$path", target.path)
    text = json.dumps(body).replace("$queue", target.id).replace("$name", target.name)
    return target.account.ask(case.method, path, text.encode())


@pytest.fixture
def bare(account: Account, queue_name: str) -> Iterator[Target]:
    """A queue without a consumer, and the name "5" free for the taking."""
    target = aim(account, f"{queue_name}-bare")
    for consumer in accepted(account.ask("GET", f"{target.path}/consumers")):
        accepted(account.ask("DELETE", f"{target.path}/consumers/{consumer['consumer_id']}"))
    yield target
    accepted(account.ask("DELETE", target.path))
    for queue in accepted(account.ask("GET", "/queues?name=5")):
        accepted(account.ask("DELETE", f"/queues/{queue['queue_id']}"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_field_takes_its_own_kind_of_value_and_no_other(
    target: Target, bare: Target, case: Case
) -> None:
    """Refusals name the field and change nothing."""
    aimed = bare if case.method != "POST" or case.path in CREATIONS else target
    good = ask(aimed, case, case.body)
    accepted(good)
    undo(aimed, case, good)
    for value in VALUES:
        before = seen(aimed)
        answer = ask(aimed, case, with_field(case.body, case.field, value))
        told = f"{case.name} = {json.dumps(value)}: {answer.status} {answer.body.decode()}"
        if among(value, case.takes):
            assert answer.status == 200, told
        elif not among(value, case.may):
            assert answer.status in case.statuses, told
        if answer.status == 200:
            accepted(answer)
            undo(aimed, case, answer)
            continue
        sentence = refused(answer, *case.statuses, code=case.code)
        if answer.status == 400 and not case.field.endswith("0"):
            assert case.field.rpartition(".")[2] in sentence, told
        assert seen(aimed) == before, f"refused, yet it did something: {told}"


def seen(target: Target) -> list[Any]:
    """Everything a refused request might have changed."""
    account = target.account
    return [
        accepted(account.ask("GET", path))
        for path in ("/queues", SUBSCRIPTIONS, f"{target.path}/metrics")
    ]


def undo(target: Target, case: Case, answer: Answer) -> None:
    """Remove what was created, so that the next value does not meet it."""
    created = answer.json()["result"]
    key = CREATIONS.get(case.path)
    if case.method == "POST" and key is not None:
        path = case.path.replace("$path", target.path)
        accepted(target.account.ask("DELETE", f"{path}/{created[key]}"))
