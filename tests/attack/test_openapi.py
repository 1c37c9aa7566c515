"""The published description of the API, against the server that publishes it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.attack.peer import Account, accepted
from tests.attack.target import Target, aim, no_traceback
from tests.server import Server

SEED = 20_261_116
RUN_SECONDS_MAX = 150
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]

# Ids are drawn from real ones most of the time: made-up ids would only ever see 404.
CONFIG = """
seed = {seed}
workers = 2
request-timeout = 15
continue-on-failure = true
headers = {{ Authorization = "Bearer {token}" }}
[cache]
enabled = false
[dictionaries]
accounts = {{ values = ["{account}"] }}
queues = {{ values = {queues} }}
consumers = {{ values = {consumers} }}
[parameters]
"path.account_id" = {{ dictionary = "accounts", probability = 0.95 }}
"path.queue_id" = {{ dictionary = "queues", probability = 0.8 }}
"path.consumer_id" = {{ dictionary = "consumers", probability = 0.6 }}
[generation]
max-examples = {examples}
no-shrink = true
database = "none"
"""


@pytest.fixture
def attacked(fresh_server: Server) -> Iterator[Server]:
    yield fresh_server
    assert httpx.get(f"{fresh_server.url}/health", trust_env=False).status_code == 200
    no_traceback(fresh_server)


def prepared(server: Server) -> tuple[list[Target], list[str]]:
    """Queues with something in them, and their consumers' ids."""
    account = Account(server)
    targets = [aim(account, f"attacked-{number}") for number in range(40)]
    consumers = []
    for target in targets:
        accepted(target.post("/messages/batch", b'{"messages":[{"body":1},{"body":"two"}]}'))
        listed = accepted(account.ask("GET", f"{target.path}/consumers"))
        consumers.append(listed[0]["consumer_id"])
    return targets, consumers


def config(server: Server, *, examples: int) -> str:
    targets, consumers = prepared(server)
    account = targets[0].account
    return CONFIG.format(
        seed=SEED,
        token=account.token,
        account=account.root.rpartition("/")[2],
        queues=json.dumps([target.id for target in targets]),
        consumers=json.dumps(consumers),
        examples=examples,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phases", "examples"),
    [("examples,coverage", 1), ("fuzzing", 40), ("stateful", 15)],
    ids=["coverage", "fuzzing", "stateful"],
)
def test_answers_are_as_the_description_says_whatever_is_asked(
    attacked: Server, tmp_path: Path, phases: str, examples: int
) -> None:
    (tmp_path / "schemathesis.toml").write_text(config(attacked, examples=examples))
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run"]
    ran = subprocess.run(
        [
            *command,
            f"{attacked.url}/client/v4/openapi.json",
            *("--url", attacked.url, "--phases", phases, "--checks", ",".join(CHECKS)),
            *("--warnings", "off"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]


def test_description_names_every_route(server: Server) -> None:
    document = httpx.get(f"{server.url}/client/v4/openapi.json", trust_env=False).json()
    assert document["openapi"].startswith("3.")
    operations = {
        (method.upper(), path.partition("/accounts/{account_id}")[2])
        for path, item in document["paths"].items()
        for method in item
        if method in ("get", "put", "post", "patch", "delete")
    }
    queue = "/queues/{queue_id}"
    subscriptions = "/event_subscriptions/subscriptions"
    assert operations >= {
        ("POST", "/queues"),
        ("GET", "/queues"),
        ("GET", queue),
        ("PUT", queue),
        ("PATCH", queue),
        ("DELETE", queue),
        ("GET", f"{queue}/metrics"),
        ("POST", f"{queue}/consumers"),
        ("GET", f"{queue}/consumers"),
        ("GET", f"{queue}/consumers/{{consumer_id}}"),
        ("PUT", f"{queue}/consumers/{{consumer_id}}"),
        ("DELETE", f"{queue}/consumers/{{consumer_id}}"),
        ("POST", f"{queue}/messages"),
        ("POST", f"{queue}/messages/batch"),
        ("POST", f"{queue}/messages/pull"),
        ("POST", f"{queue}/messages/ack"),
        ("POST", f"{queue}/messages/peek"),
        ("POST", f"{queue}/messages/purge"),
        ("POST", f"{queue}/purge"),
        ("GET", f"{queue}/purge"),
        ("POST", subscriptions),
        ("GET", subscriptions),
        ("GET", f"{subscriptions}/{{subscription_id}}"),
        ("PATCH", f"{subscriptions}/{{subscription_id}}"),
        ("DELETE", f"{subscriptions}/{{subscription_id}}"),
    }
